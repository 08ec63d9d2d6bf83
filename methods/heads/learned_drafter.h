// What methods with trained drafters share: parameters, and the choice of a tree by what its nodes
// bring (measured on held-out answers, stored with the weights) and what rows cost on this machine.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "methods/heads/adapter.h"
#include "methods/heads/rank_tree.h"
#include "methods/registration.h"

namespace evalrun::methods {

struct AdapterOptions {
  std::string adapter = "auto";
  bool any_target = false;
  engine::WeightStorage format = engine::WeightStorage::kInt8Group;  // dtype=
};
Parameters<AdapterOptions> weights_parameters();  // adapter=, any_target=
Parameters<AdapterOptions> format_parameter();    // dtype=
Parameters<AdapterOptions> adapter_parameters();  // all three

struct DraftOptions {
  DraftRule rule = DraftRule::kArgmax;  // draft=: how children are chosen when sampling
  std::string tree = "auto";
};
Parameters<DraftOptions> draft_parameter();
inline constexpr const char* kTreeText =
    "auto (of the tree stored with the weights what pays at this machine's T(n)/T(1)), "
    "stored:N (its first N nodes), sequoia:N (at most N nodes by Sequoia's programme, from what "
    "its "
    "ranks bring), a published tree by name, chain:N, delayed:K:L1:L2 (a chain of L1, then K of "
    "L2), or paths: 0+00+1";
Parameters<DraftOptions> tree_parameter(const std::string& description = kTreeText);

struct OpenedAdapter {
  std::shared_ptr<const Adapter> adapter;
  std::unique_ptr<AdapterReader> reader;
};
// `weights`: the adapter's method name ("eagle" for eagle and eagle2).
OpenedAdapter open_adapter(const std::string& weights, const AdapterOptions& options,
                           const MethodBuildContext& context);
// For MethodInfo::files: "adapter"; "adapter_budget" where the adapter states one
// (Adapter::budget() and, as `target`, the hash of the model it was trained for); and
// "adapter_overlap" where test prompts stood in its text (Adapter::overlap()).
std::map<std::string, std::string> adapter_file(const std::string& weights,
                                                const AdapterOptions& options,
                                                const MethodBuildContext& context);

// What tree= asks for: the whole tree, and whether it is the stored one of which a part is to be
// chosen (auto). usage_error when it is deeper than `deepest`.
struct GivenTree {
  RankTree tree;
  bool choose = false;
};
GivenTree given_tree(const std::string& who, const std::string& text, const Adapter& adapter,
                     int deepest, const std::string& fallback);

// tree=auto: of the stored tree's prefixes the one with the largest
//   (1 + sum of gains) / (T(1 + nodes) / T(1) + draft_cost(depth)),
// at most `deepest` levels and at least one node; `fallback` without a stored tree. stored:N: its
// first N nodes. sequoia:N: methods/heads/optimal_tree.h. Anything else is parsed; usage_error when
// it is deeper than `deepest`.
RankTree choose_tree(const std::string& who, const std::string& tree, const Adapter& adapter,
                     const MethodBuildContext& context, int deepest,
                     const std::function<double(int depth)>& draft_cost,
                     const std::string& fallback);

}  // namespace evalrun::methods
