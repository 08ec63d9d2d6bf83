#include "reports/figures/energy_use.h"

#include <vector>

#include "results/queries.h"

namespace evalrun::reports {

EnergyTotals::EnergyTotals(const results::ResultStore& store, const RunData& data) {
  // The stored rows of a large run are not read for nothing.
  bool any = data.run.environment.contains("energy_domains");
  for (const ArmInfo& a : data.arms) any = any || a.device != "cpu";
  if (!any) return;
  several_machines_ = data.run.several_machines();
  const std::map<int64_t, double> scales = data.time_scales();
  for (const results::EnergyRow& row : results::energy_by_prompt(store, data.run.id))
    totals_[{row.arm_id, row.prompt_id}] = {
        static_cast<double>(row.tokens),
        static_cast<double>(row.energy_mj) * (several_machines_ ? scales.at(row.prompt_id) : 1)};
}

const EnergyTotals::Total* EnergyTotals::find(int64_t arm, int64_t prompt) const {
  const auto it = totals_.find({arm, prompt});
  return it == totals_.end() ? nullptr : &it->second;
}

std::optional<EnergyUse> EnergyTotals::of(const ArmInfo& arm, const ArmInfo* reference,
                                          const std::function<bool(int64_t)>& keep,
                                          const PromptDesigns& designs) const {
  std::vector<RatioTerm> energy;  // joules, tokens
  std::vector<int64_t> of_energy, of_pairs;
  std::vector<PromptPair> pairs;  // millijoules where speeds have nanoseconds
  for (auto it = totals_.lower_bound({arm.id, 0}); it != totals_.end() && it->first.first == arm.id;
       ++it) {
    const int64_t prompt = it->first.second;
    const Total& own = it->second;
    if (!keep(prompt)) continue;
    of_energy.push_back(prompt);
    energy.push_back({own.mj / 1e3, own.tokens});
    if (reference == nullptr || reference->id == arm.id) continue;
    if (const Total* base = find(reference->id, prompt); base != nullptr) {
      of_pairs.push_back(prompt);
      pairs.push_back(
          {.base_tokens = base->tokens, .base_ns = base->mj, .tokens = own.tokens, .ns = own.mj});
    }
  }
  const auto joules_per_token = ratio_of_sums(energy, designs.of(of_energy, arm.batch));
  if (!joules_per_token) return std::nullopt;
  return EnergyUse{several_machines_ ? std::nullopt : joules_per_token,
                   speedup_sum(pairs, designs.of(of_pairs, arm.batch))};
}

}  // namespace evalrun::reports
