#include "reports/papers/budgets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/format.h"

namespace evalrun::reports {

namespace {

// The beginning of a hash, for a sentence.
std::string hash_start(const std::string& hash) { return hash.substr(0, 12); }

// "" for equal ones.
std::string budget_difference(const TrainingBudget& own, const TrainingBudget& common) {
  std::vector<std::string> parts;
  const auto compare = [&](const char* name, const auto& mine, const auto& theirs) {
    if (mine != theirs) parts.push_back(fmt::format("{} {} (elsewhere {})", name, mine, theirs));
  };
  compare("text", hash_start(own.text), hash_start(common.text));
  compare("updates", own.updates, common.updates);
  compare("batch", own.batch, common.batch);
  compare("recipe", own.recipe, common.recipe);
  compare("optimiser", own.optimiser, common.optimiser);
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

bool has_adapter(const ArmInfo& arm) { return !arm_setting(arm, "adapter").empty(); }

std::optional<TrainingBudget> training_budget(const ArmInfo& arm) {
  const nlohmann::json stored =
      nlohmann::json::parse(arm_setting(arm, "adapter_budget"), nullptr, false);
  if (!stored.is_object()) return std::nullopt;
  TrainingBudget budget;
  try {
    stored.at("text").get_to(budget.text);
    stored.at("recipe").get_to(budget.recipe);
    stored.at("optimiser").get_to(budget.optimiser);
    stored.at("target").get_to(budget.target);
    stored.at("updates").get_to(budget.updates);
    stored.at("tokens").get_to(budget.tokens);
    stored.at("batch").get_to(budget.batch);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // of a later version: not known here
  }
  return budget;
}

std::string budget_text(const TrainingBudget& b) {
  std::string tokens = count(static_cast<double>(b.tokens));
  if (b.most_tokens > b.tokens) tokens += " to " + count(static_cast<double>(b.most_tokens));
  return fmt::format("{} updates of batch {} ({} tokens) on text {}, recipe {}, {}",
                     count(static_cast<double>(b.updates)), b.batch, tokens, hash_start(b.text),
                     b.recipe, b.optimiser);
}

ComparedBudgets compare_budgets(const std::vector<const ArmInfo*>& arms,
                                const std::string& model_hash) {
  // An adapter may serve several arms, and counts once.
  std::vector<std::string> known;
  std::vector<std::optional<TrainingBudget>> budgets;
  for (const ArmInfo* arm : arms) {
    const std::string hash = arm_setting(*arm, "adapter");
    if (hash.empty() || std::find(known.begin(), known.end(), hash) != known.end()) continue;
    known.push_back(hash);
    budgets.push_back(training_budget(*arm));
  }
  ComparedBudgets result;
  result.adapters = known.size();
  int64_t most = 0;
  for (const auto& candidate : budgets) {
    if (!candidate) continue;
    const auto n = std::count_if(budgets.begin(), budgets.end(), [&](const auto& other) {
      return other && budget_difference(*other, *candidate).empty();
    });
    if (n > most) most = n, result.common = candidate;
  }
  for (const auto& other : budgets) {
    if (!other || !budget_difference(*other, *result.common).empty()) continue;
    result.common->tokens = std::min(result.common->tokens, other->tokens);
    result.common->most_tokens = std::max(result.common->most_tokens, other->tokens);
  }
  const auto unlike = [&](const ArmInfo& arm) -> std::string {
    const auto budget = training_budget(arm);
    if (budget && !model_hash.empty() && budget->target != model_hash)
      return fmt::format("trained for another model ({})", hash_start(budget->target));
    if (known.size() < 2) return "";
    return budget ? budget_difference(*budget, *result.common)
                  : "unknown: the adapter states no budget";
  };
  for (const ArmInfo* arm : arms)
    if (has_adapter(*arm))
      if (const std::string what = unlike(*arm); !what.empty())
        result.unequal.push_back({arm->id, arm->label, what});
  return result;
}

}  // namespace evalrun::reports
