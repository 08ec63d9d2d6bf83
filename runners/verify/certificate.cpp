#include "runners/verify/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/stats.h"
#include "engine/base/text.h"

namespace evalrun::runners {
namespace {

using Json = nlohmann::ordered_json;

template <class Result>
Outcome outcome_of_dist(const Controlled<Result>& dist, const results::ArmRecord& arm,
                        double level) {
  if (arm.lossless != "both") return Outcome::kLossy;
  if (dist.result.rejected(level)) return Outcome::kFails;
  return dist.control.rejected(level) ? Outcome::kHolds : Outcome::kInconclusive;
}

// Why an audit without a difference shows nothing; "" = it shows something.
std::string why_blind(const DecisionAudit& audit) {
  if (!audit.blocked.empty()) return audit.blocked;
  if (audit.decisions() == 0) return "no decision was made";
  const auto most = kMostUndecided * static_cast<double>(audit.decisions());
  if (static_cast<double>(audit.undecided) <= 1 + most) return "";
  return fmt::format(
      "{} of {} decisions are within rounding of another one{}", base::with_commas(audit.undecided),
      base::with_commas(audit.decisions()),
      2 * audit.borders > audit.undecided ? ", mostly where the top-p set is just full" : "");
}

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(); }

Json json_of(const TokenDifference& d) {
  return {{"task", d.task},         {"prompt", d.prompt},      {"index", d.index},
          {"expected", d.expected}, {"found", d.found},        {"gap", number(d.gap)},
          {"spacing", d.spacing},   {"near_tie", d.near_tie()}};
}

// Smallest, median and largest gap; differences without two tokens to compare have none.
Json gap_statistics(const std::vector<TokenDifference>& differences) {
  std::vector<double> gaps;
  for (const TokenDifference& d : differences)
    if (std::isfinite(d.gap)) gaps.push_back(d.gap);
  if (gaps.empty()) return {};
  std::sort(gaps.begin(), gaps.end());
  return {{"n", gaps.size()},
          {"smallest", gaps.front()},
          {"median", base::median(gaps)},
          {"largest", gaps.back()}};
}

Json json_of_sampled(const TokenIdentity& identity) {
  Json out = {{"shown_by", "tokens"},
              {"answers", identity.answers},
              {"tokens", identity.tokens},
              {"identical", identity.identical},
              {"divergent", identity.divergent}};
  out["first_differences"] = Json::array();
  for (const TokenDifference& d : identity.first)
    out["first_differences"].push_back({{"task", d.task},
                                        {"prompt", d.prompt},
                                        {"index", d.index},
                                        {"expected", d.expected},
                                        {"found", d.found}});
  return out;
}

Json json_of(const DecisionAudit& audit) {
  Json out = {{"shown_by", "decisions"},
              {"answers", audit.answers},
              {"tokens", audit.tokens},
              {"equal", audit.equal},
              {"steps", audit.steps},
              {"drafts", audit.drafts},
              {"tests", audit.tests},
              {"refused", audit.refused},
              {"draws", audit.draws},
              {"redraws", audit.redraws},
              {"undecided", audit.undecided},
              {"undecided_by_top_p", audit.borders},
              {"on_host", audit.on_host},
              {"blocked", audit.blocked},
              {"smallest_variation_found", audit.smallest_found()},
              {"step_seconds", audit.step_seconds},
              {"audit_seconds", audit.audit_seconds}};
  if (const std::string why = why_blind(audit); audit.first.empty() && !why.empty())
    out["why"] = why;
  out["first_differences"] = Json::array();
  for (const AuditDifference& d : audit.first)
    out["first_differences"].push_back(
        {{"task", d.task}, {"prompt", d.prompt}, {"index", d.index}, {"what", d.what}});
  return out;
}

Json json_of(const PlainLaw& law, double level) {
  Json out = {{"outcome", to_string(outcome_of(law, level))},
              {"level", level},
              {"draws", law.draws()},
              {"differing", law.differing()},
              {"p", law.p()},
              {"rejected", law.rejected(level)}};
  if (law.smallest_found) out["smallest_variation_found"] = *law.smallest_found;
  out["rows"] = Json::array();
  for (const PlainLawRow& row : law.rows)
    out["rows"].push_back({{"draws", row.draws}, {"cells", row.cells}, {"p", row.p}});
  return out;
}

Json json_of_greedy(const TokenIdentity& proof) {
  Json out = {{"prompts", proof.answers},     {"tokens", proof.tokens},
              {"identical", proof.identical}, {"near_ties", proof.near_ties},
              {"divergent", proof.divergent}, {"near_tie_spacings", kNearTieSpacings}};
  out["first_differences"] = Json::array();
  for (const TokenDifference& d : proof.first) out["first_differences"].push_back(json_of(d));
  const auto ties = std::count_if(proof.replay.begin(), proof.replay.end(),
                                  [](const TokenDifference& d) { return d.near_tie(); });
  out["replay"] = {{"places", proof.replayed},
                   {"differing", proof.replay.size()},
                   {"near_ties", ties},
                   {"gaps", gap_statistics(proof.replay)}};
  return out;
}

Json json_of(const StepDistribution& dist, double level) {
  Json out = {
      {"draws", dist.draws}, {"drafts_tested", dist.tested},    {"drafts_accepted", dist.accepted},
      {"p", dist.p()},       {"smallest_p", dist.smallest_p()}, {"rejected", dist.rejected(level)}};
  if (dist.smallest_found) out["smallest_variation_found"] = *dist.smallest_found;
  out["tests"] = Json::array();
  for (const StepTest& t : dist.tests)
    out["tests"].push_back({{"context", t.context},
                            {"depth", t.depth},
                            {"draws", t.draws},
                            {"cells", t.cells},
                            {"p", t.p}});
  return out;
}

Json json_of(const TextDistribution& dist, double level) {
  Json out = {{"answers", dist.answers},
              {"tokens", dist.tokens},
              {"p", dist.p()},
              {"smallest_p", dist.smallest_p()},
              {"rejected", dist.rejected(level)}};
  out["tests"] = Json::array();
  for (const TextTest& t : dist.tests)
    out["tests"].push_back(
        {{"counts", t.name}, {"cells", t.cells}, {"statistic", t.statistic}, {"p", t.p}});
  return out;
}

Json json_of_arm(const results::ArmRecord& arm) {
  return {{"method", arm.label},
          {"params", arm.params},
          {"method_version", arm.method_version},
          {"claims", arm.lossless},
          {"model", arm.model},
          {"model_hash", arm.model_hash},
          {"draft", arm.draft},
          {"draft_hash", arm.draft_hash},
          {"dtype", arm.dtype},
          {"isa", arm.isa},
          {"device", arm.device},
          {"kv_cache", arm.kv_cache},
          {"settings", arm.settings}};
}

}  // namespace

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kHolds:
      return "holds";
    case Outcome::kFails:
      return "fails";
    case Outcome::kInconclusive:
      return "inconclusive";
    case Outcome::kLossy:
      return "lossy";
  }
  return "";
}

const char* to_string(Grade grade) {
  switch (grade) {
    case Grade::kNotShown:
      return "not shown";
    case Grade::kNotRefuted:
      return "law not refuted";
    case Grade::kAudited:
      return "decisions audited";
    case Grade::kIdentical:
      return "identical";
  }
  return "";
}

namespace {

Outcome outcome_of_identity(const TokenIdentity& identity) {
  if (identity.answers == 0) return Outcome::kInconclusive;
  return identity.identical == identity.answers ? Outcome::kHolds : Outcome::kFails;
}

Outcome outcome_of_audit(const DecisionAudit& audit) {
  if (!audit.first.empty()) return Outcome::kFails;
  return why_blind(audit).empty() ? Outcome::kHolds : Outcome::kInconclusive;
}

// An audit without a refused draft has not seen what follows a refusal.
std::string why_unseen(const DecisionAudit& audit) {
  if (audit.tests == 0) return "no drawn draft was tested";
  return audit.refused == 0 ? "no draft was refused" : "";
}

}  // namespace

double level_of_part(int parts) { return kCertificateLevel / std::max(parts, 1); }

double level_of_part(const Certificate& c) {
  return level_of_part((c.law ? 1 : 0) + (c.steps ? 1 : 0) + (c.texts ? 1 : 0));
}

Outcome outcome_of_greedy(const TokenIdentity& identity, const results::ArmRecord& arm) {
  return arm.lossless == "none" ? Outcome::kLossy : outcome_of_identity(identity);
}

std::optional<Outcome> outcome_of_sampled(const Certificate& c) {
  if (!c.sampled && !c.audit) return std::nullopt;
  if (c.arm.lossless != "both") return Outcome::kLossy;
  Outcome own = c.sampled ? outcome_of_identity(*c.sampled) : outcome_of_audit(*c.audit);
  if (c.audit && own == Outcome::kHolds && !why_unseen(*c.audit).empty())
    own = Outcome::kInconclusive;
  if (own == Outcome::kFails || !c.plain_audit) return own;
  const Outcome plain = outcome_of_audit(*c.plain_audit);
  return plain == Outcome::kHolds ? own : plain;
}

std::string why_open(const Certificate& c) {
  if (outcome_of_sampled(c) != Outcome::kInconclusive) return "";
  if (c.sampled && c.sampled->answers == 0) return "no answer was compared";
  if (c.audit) {
    if (const std::string why = why_blind(*c.audit); !why.empty()) return why;
    if (const std::string why = why_unseen(*c.audit); !why.empty()) return why;
  }
  return c.plain_audit ? "plain decoding: " + why_blind(*c.plain_audit) : "";
}

Outcome outcome_of(const PlainLaw& law, double level) {
  if (law.rows.empty()) return Outcome::kInconclusive;
  return law.rejected(level) ? Outcome::kFails : Outcome::kHolds;
}

Outcome outcome_of(const Controlled<StepDistribution>& steps, const results::ArmRecord& arm,
                   double level) {
  return outcome_of_dist(steps, arm, level);
}

Outcome outcome_of(const Controlled<TextDistribution>& texts, const results::ArmRecord& arm,
                   double level) {
  return outcome_of_dist(texts, arm, level);
}

Outcome outcome_of(const Certificate& c) {
  const double level = level_of_part(c);
  std::vector<Outcome> laws;  // of the method's own distribution
  if (c.steps) laws.push_back(outcome_of(*c.steps, c.arm, level));
  if (c.texts) laws.push_back(outcome_of(*c.texts, c.arm, level));
  std::vector<Outcome> proofs;
  if (c.greedy) proofs.push_back(outcome_of_greedy(*c.greedy, c.arm));
  const std::optional<Outcome> sampled = outcome_of_sampled(c);
  if (sampled) proofs.push_back(*sampled);
  if (c.law && c.arm.lossless == "both") proofs.push_back(outcome_of(*c.law, level));
  std::vector<Outcome> all = laws;
  all.insert(all.end(), proofs.begin(), proofs.end());
  const auto has = [](const std::vector<Outcome>& list, Outcome o) {
    return std::find(list.begin(), list.end(), o) != list.end();
  };
  if (has(all, Outcome::kFails)) return Outcome::kFails;
  if (all.empty() || has(proofs, Outcome::kInconclusive)) return Outcome::kInconclusive;
  // Tests of laws that could not refuse their control do no harm beside a proof of the same claim,
  // nor beside a test that could.
  if (has(laws, Outcome::kInconclusive) && !has(laws, Outcome::kHolds) &&
      sampled != Outcome::kHolds)
    return Outcome::kInconclusive;
  return has(all, Outcome::kHolds) ? Outcome::kHolds : Outcome::kLossy;
}

Grade greedy_grade(const Certificate& c) {
  return c.greedy && outcome_of_greedy(*c.greedy, c.arm) == Outcome::kHolds ? Grade::kIdentical
                                                                            : Grade::kNotShown;
}

Grade sampling_grade(const Certificate& c) {
  if (outcome_of(c) == Outcome::kFails) return Grade::kNotShown;
  if (outcome_of_sampled(c) == Outcome::kHolds)
    return c.sampled ? Grade::kIdentical : Grade::kAudited;
  const double level = level_of_part(c);
  const bool tested = (c.steps && outcome_of(*c.steps, c.arm, level) == Outcome::kHolds) ||
                      (c.texts && outcome_of(*c.texts, c.arm, level) == Outcome::kHolds);
  return tested ? Grade::kNotRefuted : Grade::kNotShown;
}

std::optional<double> smallest_found(const Certificate& c) {
  switch (sampling_grade(c)) {
    case Grade::kIdentical:
      return 0;
    case Grade::kAudited:
      return c.audit->smallest_found();
    case Grade::kNotRefuted:
      return c.steps ? c.steps->result.smallest_found : std::nullopt;
    case Grade::kNotShown:
      break;
  }
  return std::nullopt;
}

namespace {

// "sampling T=0.8 top_p=0.95": a distribution was tested as it is drawn from then.
std::string sampling_text(const Json& tests) {
  std::string text = "sampling";
  if (!tests.contains("temperature")) return text;
  text += fmt::format(" T={:g}", tests["temperature"].get<double>());
  if (const int top_k = tests["top_k"].get<int>(); top_k > 0)
    text += fmt::format(" top_k={}", top_k);
  if (const double top_p = tests["top_p"].get<double>(); top_p < 1)
    text += fmt::format(" top_p={:g}", top_p);
  if (const std::string sampler = tests.value("sampler", "inverse"); sampler != "inverse")
    text += " by " + sampler;
  return text;
}

// How the parts that sample were sampled: the first of them says it, which the sampling grade rests
// on where it can.
Json sampling_of(const Json& tests) {
  for (const char* part : {"sampled", "steps", "texts", "law"})
    if (tests.contains(part)) return tests[part];
  return {};
}

std::string grade_text(const Certificate& c, Grade grade) {
  const bool on_host = grade == Grade::kAudited && c.audit->on_host;
  return fmt::format("{}{}", to_string(grade), on_host ? " on the host" : "");
}

// " over 2,560 tokens", " (2,113; would find 0.0014)": what the sampling grade rests on.
std::string amount_text(const Certificate& c, Grade grade) {
  if (grade == Grade::kIdentical)
    return fmt::format(" over {} tokens", base::with_commas(c.sampled->tokens));
  const std::optional<double> found = smallest_found(c);
  const std::string power = found ? fmt::format("would find {:.2g}", *found) : "power not computed";
  return grade == Grade::kAudited
             ? fmt::format(" ({}; {})", base::with_commas(c.audit->decisions()), power)
             : fmt::format(" ({})", power);
}

std::string parts_from(const Certificate& c, Grade least, bool amounts) {
  if (outcome_of(c) == Outcome::kFails) return "";
  std::string parts;
  if (const Grade grade = greedy_grade(c); grade >= least) {
    parts = fmt::format("greedy: {}", to_string(grade));
    if (amounts) parts += fmt::format(" over {} tokens", base::with_commas(c.greedy->tokens));
  }
  const Grade grade = sampling_grade(c);
  if (grade < least) return parts;
  return parts + fmt::format("{}{}: {}{}", parts.empty() ? "" : "; ",
                             sampling_text(sampling_of(c.settings)), grade_text(c, grade),
                             amounts ? amount_text(c, grade) : "");
}

}  // namespace

std::string proven_parts(const Certificate& c) { return parts_from(c, Grade::kAudited, false); }
std::string shown_parts(const Certificate& c) { return parts_from(c, Grade::kNotRefuted, true); }

std::string key_by_tests(const results::ArmRecord& arm, const std::string& commit,
                         const Json& tests) {
  results::AnswerSampling sampling;
  if (const Json by = sampling_of(tests); by.contains("temperature"))
    sampling = {by["temperature"].get<double>(), by["top_k"].get<int64_t>(),
                by["top_p"].get<double>(), by.value("sampler", std::string())};
  return results::stored_key(results::certificate_key(arm, commit), sampling);
}

Json to_json(const Certificate& c) {
  Json out = {{"certificate", 2},
              {"outcome", to_string(outcome_of(c))},
              {"proven", proven_parts(c)},
              {"shown", shown_parts(c)},
              {"created", c.created},
              {"commit", c.commit},
              {"key", key_by_tests(c.arm, c.commit, c.settings)},
              {"arm", json_of_arm(c.arm)},
              {"tests", c.settings}};
  out["grades"] = {{"greedy", to_string(greedy_grade(c))},
                   {"sampling", to_string(sampling_grade(c))}};
  if (const std::optional<double> found = smallest_found(c))
    out["smallest_variation_found"] = *found;
  if (c.greedy) {
    out["greedy"] = {{"outcome", to_string(outcome_of_greedy(*c.greedy, c.arm))}};
    out["greedy"].update(json_of_greedy(*c.greedy));
  }
  if (const std::optional<Outcome> outcome = outcome_of_sampled(c)) {
    out["sampled"] = {{"outcome", to_string(*outcome)}};
    out["sampled"].update(c.sampled ? json_of_sampled(*c.sampled) : json_of(*c.audit));
    if (const std::string why = why_open(c); !why.empty()) out["sampled"]["why"] = why;
    if (c.plain_audit) out["sampled"]["plain_decoding"] = json_of(*c.plain_audit);
  }
  if (c.bound) out["bound"] = to_json(*c.bound);
  const double level = level_of_part(c);
  if (c.law) out["law"] = json_of(*c.law, level);
  if (c.steps)
    out["steps"] = {{"outcome", to_string(outcome_of(*c.steps, c.arm, level))},
                    {"level", level},
                    {"result", json_of(c.steps->result, level)},
                    {"negative_control", json_of(c.steps->control, level)}};
  if (c.texts)
    out["texts"] = {{"outcome", to_string(outcome_of(*c.texts, c.arm, level))},
                    {"level", level},
                    {"result", json_of(c.texts->result, level)},
                    {"negative_control", json_of(c.texts->control, level)}};
  if (c.plain_texts) out["texts"]["plain_against_plain"] = json_of(*c.plain_texts, level);
  return out;
}

}  // namespace evalrun::runners
