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

Json json_of(const GreedyDifference& d) {
  return {{"task", d.task},         {"prompt", d.prompt},      {"index", d.index},
          {"expected", d.expected}, {"found", d.found},        {"gap", number(d.gap)},
          {"spacing", d.spacing},   {"near_tie", d.near_tie()}};
}

// Smallest, median and largest gap; differences without two tokens to compare have none.
Json gap_statistics(const std::vector<GreedyDifference>& differences) {
  std::vector<double> gaps;
  for (const GreedyDifference& d : differences)
    if (std::isfinite(d.gap)) gaps.push_back(d.gap);
  if (gaps.empty()) return {};
  std::sort(gaps.begin(), gaps.end());
  return {{"n", gaps.size()},
          {"smallest", gaps.front()},
          {"median", base::median(gaps)},
          {"largest", gaps.back()}};
}

Json json_of(const GreedyProof& proof) {
  Json out = {{"prompts", proof.prompts},     {"tokens", proof.tokens},
              {"identical", proof.identical}, {"near_ties", proof.near_ties},
              {"divergent", proof.divergent}, {"near_tie_spacings", kNearTieSpacings}};
  out["first_differences"] = Json::array();
  for (const GreedyDifference& d : proof.first) out["first_differences"].push_back(json_of(d));
  const auto ties = std::count_if(proof.replay.begin(), proof.replay.end(),
                                  [](const GreedyDifference& d) { return d.near_tie(); });
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

Outcome outcome_of(const GreedyProof& proof, const results::ArmRecord& arm) {
  if (arm.lossless == "none") return Outcome::kLossy;
  if (proof.prompts == 0) return Outcome::kInconclusive;
  return proof.identical == proof.prompts ? Outcome::kHolds : Outcome::kFails;
}

Outcome outcome_of(const Controlled<StepDistribution>& steps, const results::ArmRecord& arm) {
  return outcome_of_dist(steps, arm);
}

Outcome outcome_of(const Controlled<TextDistribution>& texts, const results::ArmRecord& arm) {
  return outcome_of_dist(texts, arm);
}

Outcome outcome_of(const Certificate& c) {
  std::vector<Outcome> dist;
  if (c.steps) dist.push_back(outcome_of(*c.steps, c.arm));
  if (c.texts) dist.push_back(outcome_of(*c.texts, c.arm));
  std::vector<Outcome> all = dist;
  if (c.greedy) all.push_back(outcome_of(*c.greedy, c.arm));
  const auto has = [](const std::vector<Outcome>& list, Outcome o) {
    return std::find(list.begin(), list.end(), o) != list.end();
  };
  if (has(all, Outcome::kFails)) return Outcome::kFails;
  if (all.empty() || (c.greedy && all.back() == Outcome::kInconclusive))
    return Outcome::kInconclusive;
  // One of the two tests of the distribution that refused its control is enough: they test the same
  // claim.
  if (has(dist, Outcome::kInconclusive) && !has(dist, Outcome::kHolds))
    return Outcome::kInconclusive;
  return has(all, Outcome::kHolds) ? Outcome::kHolds : Outcome::kLossy;
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
  return text;
}

}  // namespace

std::string proven_parts(const Certificate& c) {
  std::string parts;
  if (c.greedy && outcome_of(*c.greedy, c.arm) == Outcome::kHolds) parts = "greedy";
  const bool steps = c.steps && outcome_of(*c.steps, c.arm) == Outcome::kHolds;
  const bool texts = c.texts && outcome_of(*c.texts, c.arm) == Outcome::kHolds;
  if (steps || texts) {
    const char* tested = steps ? "steps" : "texts";
    parts += parts.empty() ? "" : "+";
    parts += sampling_text(c.settings.contains(tested) ? c.settings[tested] : Json());
  }
  return outcome_of(c) == Outcome::kFails ? "" : parts;
}

Json to_json(const Certificate& c) {
  Json out = {{"certificate", 1},          {"outcome", to_string(outcome_of(c))},
              {"proven", proven_parts(c)}, {"created", c.created},
              {"commit", c.commit},        {"key", results::certificate_key(c.arm, c.commit)},
              {"arm", json_of_arm(c.arm)}, {"tests", c.settings}};
  if (c.greedy) {
    out["greedy"] = {{"outcome", to_string(outcome_of(*c.greedy, c.arm))}};
    out["greedy"].update(json_of(*c.greedy));
  }
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
