#include "runners/verify/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/stats.h"

namespace evalrun::runners {
namespace {

using Json = nlohmann::ordered_json;

template <class Result>
Outcome outcome_of_dist(const Controlled<Result>& dist, const results::ArmRecord& arm) {
  if (arm.lossless != "both") return Outcome::kLossy;
  if (dist.result.rejected(kCertificateLevel)) return Outcome::kFails;
  return dist.control.rejected(kCertificateLevel) ? Outcome::kHolds : Outcome::kInconclusive;
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
              {"blocked", audit.blocked},
              {"smallest_variation_found", audit.smallest_found()},
              {"step_seconds", audit.step_seconds},
              {"audit_seconds", audit.audit_seconds}};
  out["first_differences"] = Json::array();
  for (const AuditDifference& d : audit.first)
    out["first_differences"].push_back(
        {{"task", d.task}, {"prompt", d.prompt}, {"index", d.index}, {"what", d.what}});
  return out;
}

Json json_of(const PlainLaw& law) {
  Json out = {{"outcome", to_string(outcome_of(law))},
              {"level", kCertificateLevel},
              {"draws", law.draws()},
              {"differing", law.differing()},
              {"p", law.p()},
              {"rejected", law.rejected(kCertificateLevel)}};
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

Json json_of(const StepDistribution& dist) {
  Json out = {{"draws", dist.draws},
              {"drafts_tested", dist.tested},
              {"drafts_accepted", dist.accepted},
              {"p", dist.p()},
              {"smallest_p", dist.smallest_p()},
              {"rejected", dist.rejected(kCertificateLevel)}};
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

Json json_of(const TextDistribution& dist) {
  Json out = {{"answers", dist.answers},
              {"tokens", dist.tokens},
              {"p", dist.p()},
              {"smallest_p", dist.smallest_p()},
              {"rejected", dist.rejected(kCertificateLevel)}};
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
  const bool blind = !audit.blocked.empty() || audit.decisions() == 0 ||
                     static_cast<double>(audit.undecided) >
                         1 + kMostUndecided * static_cast<double>(audit.decisions());
  return blind ? Outcome::kInconclusive : Outcome::kHolds;
}

}  // namespace

Outcome outcome_of_greedy(const TokenIdentity& identity, const results::ArmRecord& arm) {
  return arm.lossless == "none" ? Outcome::kLossy : outcome_of_identity(identity);
}

std::optional<Outcome> outcome_of_sampled(const Certificate& c) {
  if (!c.sampled && !c.audit) return std::nullopt;
  if (c.arm.lossless != "both") return Outcome::kLossy;
  Outcome own = c.sampled ? outcome_of_identity(*c.sampled) : outcome_of_audit(*c.audit);
  // An audit without a refused draft has not seen what follows a refusal.
  if (c.audit && own == Outcome::kHolds && (c.audit->refused == 0 || c.audit->tests == 0))
    own = Outcome::kInconclusive;
  if (own == Outcome::kFails || !c.plain_audit) return own;
  const Outcome plain = outcome_of_audit(*c.plain_audit);
  return plain == Outcome::kHolds ? own : plain;
}

Outcome outcome_of(const PlainLaw& law) {
  if (law.rows.empty()) return Outcome::kInconclusive;
  return law.rejected(kCertificateLevel) ? Outcome::kFails : Outcome::kHolds;
}

Outcome outcome_of(const Controlled<StepDistribution>& steps, const results::ArmRecord& arm) {
  return outcome_of_dist(steps, arm);
}

Outcome outcome_of(const Controlled<TextDistribution>& texts, const results::ArmRecord& arm) {
  return outcome_of_dist(texts, arm);
}

Outcome outcome_of(const Certificate& c) {
  std::vector<Outcome> laws;  // of the method's own distribution
  if (c.steps) laws.push_back(outcome_of(*c.steps, c.arm));
  if (c.texts) laws.push_back(outcome_of(*c.texts, c.arm));
  std::vector<Outcome> proofs;
  if (c.greedy) proofs.push_back(outcome_of_greedy(*c.greedy, c.arm));
  const std::optional<Outcome> sampled = outcome_of_sampled(c);
  if (sampled) proofs.push_back(*sampled);
  if (c.law && c.arm.lossless == "both") proofs.push_back(outcome_of(*c.law));
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
  const bool tested = (c.steps && outcome_of(*c.steps, c.arm) == Outcome::kHolds) ||
                      (c.texts && outcome_of(*c.texts, c.arm) == Outcome::kHolds);
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

}  // namespace

namespace {

// How the part that the sampling grade rests on was sampled.
Json sampling_of(const Certificate& c) {
  for (const char* part : {"sampled", "steps", "texts"})
    if (c.settings.contains(part)) return c.settings[part];
  return {};
}

std::string parts_from(const Certificate& c, Grade least) {
  if (outcome_of(c) == Outcome::kFails) return "";
  std::string parts;
  if (const Grade grade = greedy_grade(c); grade >= least)
    parts = fmt::format("greedy: {}", to_string(grade));
  const Grade grade = sampling_grade(c);
  if (grade < least) return parts;
  parts += fmt::format("{}{}: {}", parts.empty() ? "" : "; ", sampling_text(sampling_of(c)),
                       to_string(grade));
  if (grade == Grade::kNotRefuted) {
    const std::optional<double> found = smallest_found(c);
    parts += found ? fmt::format(" (would find {:.2g})", *found) : " (power not computed)";
  }
  return parts;
}

}  // namespace

std::string proven_parts(const Certificate& c) { return parts_from(c, Grade::kAudited); }
std::string shown_parts(const Certificate& c) { return parts_from(c, Grade::kNotRefuted); }

Json to_json(const Certificate& c) {
  Json out = {{"certificate", 2},
              {"outcome", to_string(outcome_of(c))},
              {"proven", proven_parts(c)},
              {"shown", shown_parts(c)},
              {"created", c.created},
              {"commit", c.commit},
              {"key", results::certificate_key(c.arm, c.commit)},
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
    if (c.plain_audit) out["sampled"]["plain_decoding"] = json_of(*c.plain_audit);
  }
  if (c.law) out["law"] = json_of(*c.law);
  if (c.steps)
    out["steps"] = {{"outcome", to_string(outcome_of(*c.steps, c.arm))},
                    {"level", kCertificateLevel},
                    {"result", json_of(c.steps->result)},
                    {"negative_control", json_of(c.steps->control)}};
  if (c.texts)
    out["texts"] = {{"outcome", to_string(outcome_of(*c.texts, c.arm))},
                    {"level", kCertificateLevel},
                    {"result", json_of(c.texts->result)},
                    {"negative_control", json_of(c.texts->control)}};
  if (c.plain_texts) out["texts"]["plain_against_plain"] = json_of(*c.plain_texts);
  return out;
}

}  // namespace evalrun::runners
