#include "reports/gate/gate_comparable.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "reports/data/matching.h"
#include "reports/gate/gate_yardstick.h"

namespace evalrun::reports {

namespace {

// What a run says of a server; nullptr where it does not.
const std::string* server_fact(const RunData& run, const std::string& label, const char* what) {
  const auto fact = run.run.environment.find(fmt::format("endpoint.{}.{}", label, what));
  return fact == run.run.environment.end() ? nullptr : &fact->second;
}

}  // namespace

std::vector<GateCheck> comparable_checks(const RunData& base, const RunData& current,
                                         const GateOptions& options) {
  std::vector<std::string> reasons;
  const auto differs = [&](const std::string& what, const std::string& was, const std::string& is) {
    if (was != is) reasons.push_back(fmt::format("{} was {}, is {}", what, was, is));
  };
  if (base.baseline() == nullptr) reasons.push_back("the baseline has no plain-decoding arm");
  if (current.baseline() == nullptr) reasons.push_back("the run has no plain-decoding arm");
  for (const OtherMachine& m : other_machines(base.run, current.run))
    differs("the " + m.what, m.first, m.second);
  for (const ArmInfo& a : base.arms) {
    const ArmInfo* other = current.arm(a.label);
    if (other == nullptr) {
      reasons.push_back(fmt::format("{} is in the baseline only", a.label));
      continue;
    }
    for (const auto& [fact, name] : {std::pair{"model", "model"}, std::pair{"host", "machine"}}) {
      const std::string* was = server_fact(base, a.label, fact);
      const std::string* is = server_fact(current, a.label, fact);
      if (is_server(a) && was != nullptr && is != nullptr)
        differs(fmt::format("{}: {}", a.label, name), *was, *is);
    }
    for (const OtherMode& m : other_modes(a, *other))
      differs(fmt::format("{}: {}", a.label, m.what), m.first, m.second);
  }
  if (reasons.empty()) {
    const Yardsticks yardsticks = yardsticks_of(base, options);
    if (!yardsticks.refusal.empty())
      reasons.push_back(yardsticks.refusal + "; " + yardsticks.remedy);
    else if (yardsticks.arms.empty())
      reasons.push_back("the baseline has no method to compare");
  }
  const auto was = prompts_by_key(base), is = prompts_by_key(current);
  const auto missing = [](const auto& from, const auto& in) {
    return std::count_if(from.begin(), from.end(),
                         [&](const auto& p) { return !in.contains(p.first); });
  };
  if (const auto n = missing(was, is))
    reasons.push_back(fmt::format("{} prompts of the baseline are missing", n));
  if (const auto n = missing(is, was))
    reasons.push_back(fmt::format("{} prompts are not in the baseline", n));
  std::vector<GateCheck> checks;
  for (const std::string& r : reasons)
    checks.push_back(gate_check("comparable", "", Outcome::kIncompatible, r, 0));
  if (reasons.empty())
    checks.push_back(gate_check("comparable", "", Outcome::kOk,
                                "same model, prompts, settings and engine mode",
                                static_cast<int64_t>(was.size())));
  return checks;
}

std::vector<GateCheck> complete_checks(const RunData& base, const RunData& current) {
  // By the labels of the baseline: those of the other run may hold less of a path (RunData::arm).
  const auto cells = [&base](const RunData& d) {
    std::map<int64_t, std::string> arm, prompt;
    for (const ArmInfo& a : base.arms)
      if (const ArmInfo* same = d.arm(a.label)) arm[same->id] = a.label;
    for (const PromptInfo& p : d.prompts) prompt[p.id] = p.key;
    std::set<std::string> set;
    for (const SampleRow& s : d.samples)
      if (const auto a = arm.find(s.arm_id); a != arm.end())
        set.insert(fmt::format("{}\n{}\n{}", a->second, prompt[s.prompt_id], s.sample));
    return set;
  };
  const auto was = cells(base), is = cells(current);
  const auto missing =
      std::count_if(was.begin(), was.end(), [&](const auto& c) { return !is.contains(c); });
  if (missing == 0) return {};
  return {
      gate_check("complete", "", Outcome::kInconclusive,
                 fmt::format("{} of the baseline's {} cells are not measured", missing, was.size()),
                 static_cast<int64_t>(was.size()))};
}

}  // namespace evalrun::reports
