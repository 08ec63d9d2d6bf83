#include "reports/figures/undrafted_steps.h"

#include <algorithm>

namespace evalrun::reports {

UndraftedSteps::UndraftedSteps(const RunData& data) {
  for (const ArmInfo& arm : data.arms) {
    const ArmInfo* reference = arm.drafts() ? data.reference(arm) : nullptr;
    if (reference == nullptr || reference->batch != arm.batch) continue;
    reference_of_[arm.id] = reference->id;
    is_reference_[reference->id] = true;
  }
}

void UndraftedSteps::add(const results::BatchMemberRow& step, bool is_new) {
  const StepTime time{step.context, static_cast<double>(step.ns) / 1e6};
  const Place place{step.arm_id, step.prompt_id};
  // Every member of a plain step is a neighbour: which of them comes first differs between arms.
  if (is_reference_.contains(step.arm_id))
    plain_[place].push_back(time);
  else if (is_new && step.rows == step.members && reference_of_.contains(step.arm_id))
    undrafted_[place].push_back(time);
}

std::map<int64_t, std::map<int64_t, UndraftedTimes>> UndraftedSteps::beside_plain() {
  for (auto& [place, times] : plain_)
    std::sort(times.begin(), times.end(),
              [](const StepTime& a, const StepTime& b) { return a.context < b.context; });
  std::map<int64_t, std::map<int64_t, UndraftedTimes>> by_arm;
  for (const auto& [place, steps] : undrafted_) {
    const auto& [arm, prompt] = place;
    const auto found = plain_.find({reference_of_.at(arm), prompt});
    if (found == plain_.end()) continue;
    const std::vector<StepTime>& plain = found->second;
    for (const StepTime& step : steps) {
      const auto first =
          std::lower_bound(plain.begin(), plain.end(), step.context - kNear,
                           [](const StepTime& s, int64_t context) { return s.context < context; });
      double n = 0, sum = 0;
      for (auto it = first; it != plain.end() && it->context <= step.context + kNear; ++it)
        n += 1, sum += it->ms;
      if (n == 0) continue;
      UndraftedTimes& times = by_arm[arm][prompt];
      times.steps += 1, times.ms += step.ms, times.plain_ms += sum / n;
    }
  }
  return by_arm;
}

}  // namespace evalrun::reports
