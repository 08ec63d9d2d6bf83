#include "methods/heads/learned_drafter.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "methods/adaptive.h"
#include "methods/heads/optimal_tree.h"

namespace evalrun::methods {

Parameters<AdapterOptions> weights_parameters() {
  return Parameters<AdapterOptions>{}
      .add("adapter", &AdapterOptions::adapter,
           "trained weights: a path (evalrun's own or the published layout), a name, or auto: "
           "those for this model that come with evalrun or lie in $EVALRUN_HOME/adapters")
      .add("any_target", &AdapterOptions::any_target,
           "take weights that were trained for another file of the target");
}

Parameters<AdapterOptions> format_parameter() {
  using Storage = engine::WeightStorage;
  return Parameters<AdapterOptions>{}.choice("dtype", &AdapterOptions::format,
                                             {{"f32", Storage::kF32},
                                              {"bf16", Storage::kBf16},
                                              {"int8", Storage::kInt8Group},
                                              {"q4", Storage::kQ4Group}},
                                             "weight format of the drafter");
}

Parameters<AdapterOptions> adapter_parameters() {
  return weights_parameters().add(format_parameter());
}

Parameters<DraftOptions> draft_parameter() {
  return Parameters<DraftOptions>{}.choice(
      "draft", &DraftOptions::rule,
      {{"drawn", DraftRule::kAuto},
       {"best", DraftRule::kArgmax},
       {"matched", DraftRule::kMatch},
       {"traversal", DraftRule::kPaths}},
      "children when sampling: drawn from the drafter's distribution without replacement "
      "(multi-candidate rejection; with --sampler gumbel by the target's noise), its best tokens, "
      "drawn and kept where the target's own draw is one of them (matched), or drawn without "
      "replacement and tested by whole paths, leaves first (traversal)");
}

Parameters<DraftOptions> tree_parameter(const std::string& description) {
  return Parameters<DraftOptions>{}
      .add("tree", &DraftOptions::tree, description)
      .with(&ParamInfo::steps_at, {"auto", StepReproducibility::kFollowMachine});
}

OpenedAdapter open_adapter(const std::string& weights, const AdapterOptions& options,
                           const MethodBuildContext& context) {
  EVALRUN_CHECK(context.target != nullptr);
  OpenedAdapter opened;
  opened.adapter = find_adapter(weights, options.adapter, *context.target);
  opened.reader = std::make_unique<AdapterReader>(*opened.adapter, weights, *context.target,
                                                  options.any_target);
  return opened;
}

std::map<std::string, std::string> adapter_file(const std::string& weights,
                                                const AdapterOptions& options,
                                                const MethodBuildContext& context) {
  EVALRUN_CHECK(context.target != nullptr);
  const std::shared_ptr<const Adapter> adapter =
      find_adapter(weights, options.adapter, *context.target);
  std::map<std::string, std::string> file = {{"adapter", adapter->content_hash()}};
  if (!adapter->budget().is_null()) {
    nlohmann::json budget = adapter->budget();
    budget["target"] = adapter->target_hash();
    file["adapter_budget"] = budget.dump();
  }
  if (!adapter->overlap().empty())
    file["adapter_overlap"] = nlohmann::json(adapter->overlap()).dump();
  return file;
}

GivenTree given_tree(const std::string& who, const std::string& text, const Adapter& adapter,
                     int deepest, const std::string& fallback) {
  constexpr std::string_view kStored = "stored:", kSequoia = "sequoia:";
  const bool counted = text.starts_with(kStored), optimal = text.starts_with(kSequoia);
  if ((counted || optimal) && adapter.tree_paths().empty())
    throw base::usage_error(
        fmt::format("{}: tree={}: no tree is stored in {}", who, text, adapter.path()),
        "find one with evalrun tune tree, or give a published tree by name");
  const bool stored = (counted || optimal || text == "auto") && !adapter.tree_paths().empty();
  RankTree whole = stored ? rank_tree(who + ": " + adapter.path(), adapter.tree_paths())
                          : parse_rank_tree(who, text == "auto" ? fallback : text);
  if (counted) {
    const auto n = base::parse_number<int>(std::string_view(text).substr(kStored.size()));
    if (!n || *n < 1 || *n > whole.size())
      throw base::usage_error(
          fmt::format("{}: tree={}: the stored tree has {} nodes", who, text, whole.size()),
          fmt::format("give stored:1 to stored:{}", whole.size()));
    whole = whole.first(*n);
  }
  if (optimal) {
    const auto n = base::parse_number<int>(std::string_view(text).substr(kSequoia.size()));
    if (!n || *n < 1 || *n >= engine::kMaxRows)
      throw base::usage_error(fmt::format("{}: tree={} has no number of nodes", who, text),
                              fmt::format("give sequoia:1 to sequoia:{}", engine::kMaxRows - 1));
    whole = optimal_tree(positional_acceptance(whole, adapter.tree_gains()), *n);
  }
  if (whole.depth() > deepest)
    throw base::usage_error(fmt::format("{}: tree '{}' has {} levels, these weights draft {}", who,
                                        text, whole.depth(), deepest),
                            "take a shallower tree, or weights that draft deeper");
  return {whole, stored && text == "auto"};
}

RankTree choose_tree(const std::string& who, const std::string& tree, const Adapter& adapter,
                     const MethodBuildContext& context, int deepest,
                     const std::function<double(int)>& draft_cost, const std::string& fallback) {
  const auto [whole, choose] = given_tree(who, tree, adapter, deepest, fallback);
  if (!choose) return whole;
  const RowPrice price(context.row_cost);
  int best = 1;
  double gain = 1, best_speed = 0;
  for (int n = 1; n <= whole.size(); ++n) {
    gain += adapter.tree_gains()[static_cast<size_t>(n) - 1];
    const double speed = gain / (price(1 + n) + draft_cost(whole.first(n).depth()));
    if (speed > best_speed) {
      best_speed = speed;
      best = n;
    }
  }
  return whole.first(best);
}

}  // namespace evalrun::methods
