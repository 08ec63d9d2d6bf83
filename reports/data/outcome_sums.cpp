#include "reports/data/outcome_sums.h"

namespace evalrun::reports {

OutcomeSums::OutcomeSums(const std::vector<ArmInfo>& arms, const ArmTasks& places)
    : drafts_(places.size()), steps_(places.size()), nodes_(places.size()) {
  for (const ArmInfo& arm : arms)
    if (arm.drafts())
      for (const size_t place : places.of_arm(arm.id)) drafts_[place] = true;
}

RunCounts OutcomeSums::by_name(const ArmTasks& places) && {
  RunCounts counts;
  for (const auto& [key, of] : places.by_name(std::move(steps_)))
    for (const auto& [step, n] : of.all()) {
      const int64_t cut = ((step.second % 2) + 2) % 2;
      counts.steps[key].push_back({step.first, (step.second - cut) / 2, n, cut == 1});
    }
  for (const auto& [key, of] : places.by_name(std::move(nodes_)))
    for (const auto& [place, n] : of.all())
      counts.nodes[key].push_back({place.first, place.second, n[0], n[1]});
  return counts;
}

}  // namespace evalrun::reports
