// What methods with trained drafters share: parameters, and the choice of a tree by what its nodes
// bring (measured on held-out answers, stored with the weights) and what rows cost on this machine.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "methods/heads/adapter.h"
#include "methods/heads/rank_tree.h"
#include "methods/method.h"

namespace evalrun::methods {

// adapter=, any_target=, dtype=.
std::vector<ParamInfo> adapter_parameters();
ParamInfo tree_parameter();
// draft=drawn | best: how children are chosen when sampling.
ParamInfo draft_parameter(const std::string& default_value);

struct OpenedAdapter {
  std::shared_ptr<const Adapter> adapter;
  std::unique_ptr<AdapterReader> reader;
};
// `weights`: the adapter's method name ("eagle" for eagle and eagle2).
OpenedAdapter open_adapter(const std::string& weights, const MethodParams& params,
                           const MethodBuildContext& context);
// For MethodInfo::files.
std::map<std::string, std::string> adapter_file(const std::string& weights,
                                                const MethodParams& params,
                                                const MethodBuildContext& context);
engine::WeightStorage draft_storage(const MethodParams& params);

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
// first N nodes. Anything else is parsed; usage_error when it is deeper than `deepest`.
RankTree choose_tree(const std::string& who, const MethodParams& params, const Adapter& adapter,
                     const MethodBuildContext& context, int deepest,
                     const std::function<double(int depth)>& draft_cost,
                     const std::string& fallback);

}  // namespace evalrun::methods
