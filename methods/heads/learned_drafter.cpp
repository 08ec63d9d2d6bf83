#include "methods/heads/learned_drafter.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "methods/adaptive.h"

namespace evalrun::methods {
namespace {

struct DraftFormat {
  const char* name;
  engine::WeightStorage storage;
};
constexpr DraftFormat kFormats[] = {{"f32", engine::WeightStorage::kF32},
                                    {"bf16", engine::WeightStorage::kBf16},
                                    {"int8", engine::WeightStorage::kInt8Group},
                                    {"q4", engine::WeightStorage::kQ4Group}};

}  // namespace

std::vector<ParamInfo> adapter_parameters() {
  using Type = ParamInfo::Type;
  return {
      {"adapter",
       "auto",
       "trained weights: a path (evalrun's own or the published layout), a name, or auto: those "
       "for this model that come with evalrun or lie in $EVALRUN_HOME/adapters",
       Type::kText,
       0,
       0,
       {}},
      {"any_target",
       "false",
       "take weights that were trained for another file of the target",
       Type::kBool,
       0,
       0,
       {}},
      {"dtype",
       "int8",
       "weight format of the drafter",
       Type::kText,
       0,
       0,
       {"f32", "bf16", "int8", "q4"}}};
}

ParamInfo tree_parameter() {
  return {"tree",
          "auto",
          "auto (of the tree stored with the weights what pays at this machine's T(n)/T(1)), "
          "stored:N (its first N nodes), a published tree by name, chain:N, or paths: 0+00+1",
          ParamInfo::Type::kText,
          0,
          0,
          {},
          Steps::kFollowMachine,
          "auto"};
}

ParamInfo draft_parameter(const std::string& default_value) {
  return {"draft",
          default_value,
          "children when sampling: drawn from the drafter's distribution without replacement "
          "(multi-candidate rejection), or its best tokens (sample and match)",
          ParamInfo::Type::kText,
          0,
          0,
          {"drawn", "best"}};
}

OpenedAdapter open_adapter(const std::string& weights, const MethodParams& params,
                           const MethodBuildContext& context) {
  EVALRUN_CHECK(context.target != nullptr);
  OpenedAdapter opened;
  opened.adapter = find_adapter(weights, params.text("adapter"), *context.target);
  opened.reader = std::make_unique<AdapterReader>(*opened.adapter, weights, *context.target,
                                                  params.boolean("any_target"));
  return opened;
}

std::map<std::string, std::string> adapter_file(const std::string& weights,
                                                const MethodParams& params,
                                                const MethodBuildContext& context) {
  EVALRUN_CHECK(context.target != nullptr);
  return {
      {"adapter", find_adapter(weights, params.text("adapter"), *context.target)->content_hash()}};
}

engine::WeightStorage draft_storage(const MethodParams& params) {
  for (const DraftFormat& format : kFormats)
    if (params.text("dtype") == format.name) return format.storage;
  EVALRUN_CHECK(false, "unknown format {}", params.text("dtype"));
}

GivenTree given_tree(const std::string& who, const std::string& text, const Adapter& adapter,
                     int deepest, const std::string& fallback) {
  constexpr std::string_view kStored = "stored:";
  const bool counted = text.starts_with(kStored);
  if (counted && adapter.tree_paths().empty())
    throw base::usage_error(
        fmt::format("{}: tree={}: no tree is stored in {}", who, text, adapter.path()),
        "find one with evalrun tune tree, or give a published tree by name");
  const bool stored = (counted || text == "auto") && !adapter.tree_paths().empty();
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
  if (whole.depth() > deepest)
    throw base::usage_error(fmt::format("{}: tree '{}' has {} levels, these weights draft {}", who,
                                        text, whole.depth(), deepest),
                            "take a shallower tree, or weights that draft deeper");
  return {whole, stored && !counted};
}

RankTree choose_tree(const std::string& who, const MethodParams& params, const Adapter& adapter,
                     const MethodBuildContext& context, int deepest,
                     const std::function<double(int)>& draft_cost, const std::string& fallback) {
  const auto [whole, choose] = given_tree(who, params.text("tree"), adapter, deepest, fallback);
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
