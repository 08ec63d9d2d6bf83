// Energy of a run's arms, of the GPU's board or of the processor and its memory. From the view
// v_energy; docs/measurement.md, "Energy".
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "reports/data/design.h"
#include "reports/data/estimators.h"
#include "reports/data/run_data.h"
#include "results/store.h"

namespace evalrun::reports {

// Finished generations whole, prompts included, all repeats; ratios of sums. A prompt with a
// generation of unknown energy is left out.
struct EnergyUse {
  std::optional<Estimate> joules_per_token;  // absent where several machines measured
  // Tokens per joule over the reference arm's, same prompts: 2 = half the energy. Absent for an arm
  // that is its own reference.
  std::optional<Estimate> gain;
};

class EnergyTotals {
 public:
  EnergyTotals() = default;
  EnergyTotals(const results::ResultStore& store, const RunData& data);
  // nullopt where nothing is known of these prompts.
  std::optional<EnergyUse> of(const ArmInfo& arm, const ArmInfo* reference,
                              const std::function<bool(int64_t prompt_id)>& keep,
                              const PromptDesigns& designs = {}) const;

 private:
  struct Total {
    double tokens = 0, mj = 0;
  };
  const Total* find(int64_t arm, int64_t prompt) const;
  std::map<std::pair<int64_t, int64_t>, Total> totals_;  // arm id, prompt id
  // Then energies are multiplied as the machines' times are: each weighs by what it decoded.
  bool several_machines_ = false;
};

}  // namespace evalrun::reports
