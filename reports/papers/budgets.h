// How the adapters of a paper's table were trained, as the adapters themselves state it
// (docs/adapters.md, "Budget"), and where they differ: figures of unequal training compare the
// training, whatever the table is about.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/data/run_data.h"

namespace evalrun::reports {

struct TrainingBudget {
  std::string text, recipe, optimiser, target;  // text and target: hashes
  int64_t updates = 0, tokens = 0, batch = 0;
  int64_t most_tokens = 0;  // of several adapters, where they differ: `tokens` is the fewest
};
// Whether an arm has trained weights, and their budget; nullopt where they state none.
bool has_adapter(const ArmInfo& arm);
std::optional<TrainingBudget> training_budget(const ArmInfo& arm);
// "225 updates of batch 4 (41,203 tokens)" or "(13,334 to 78,380 tokens) on text 3f2a9c01d5e7,
// recipe small, AdamW ..."
std::string budget_text(const TrainingBudget& budget);

// What an arm's adapter has otherwise than the others: "updates 300 (elsewhere 225)", or that it
// states nothing.
struct UnequalArm {
  int64_t arm = 0;
  std::string label, what;
};
struct ComparedBudgets {
  size_t adapters = 0;                   // different ones
  std::optional<TrainingBudget> common;  // of most of those that state one, the first of equals
  std::vector<UnequalArm> unequal;       // arms in their order
};
// Equal are adapters of the same text, updates, batch, recipe and optimiser; tokens follow from
// these, by which masks or glances an ablation has, and are only told: from the fewest to the most.
// One that was trained for another model than `model_hash` ("" = not known) is like none. Arms
// without an adapter take no part.
ComparedBudgets compare_budgets(const std::vector<const ArmInfo*>& arms,
                                const std::string& model_hash);

}  // namespace evalrun::reports
