#include "methods/masks/mask_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "methods/adaptive.h"

namespace evalrun::methods {
namespace {

constexpr std::string_view kStraightforward = "straightforward";

int number_in(const std::string& who, const std::string& what, std::string_view digits, int lowest,
              const std::string& hint) {
  const auto n = base::parse_number<int>(digits);
  if (!n || *n < lowest)
    throw base::usage_error(fmt::format("{}: {} is not understood", who, what), hint);
  return *n;
}

// Probability that a step stops at the root or a node, [n + 1]: its own path was accepted and no
// child.
std::vector<double> stopping(const RankTree& tree, const std::vector<double>& gains) {
  std::vector<double> stop(static_cast<size_t>(tree.size()) + 1);
  stop[0] = 1;
  for (size_t i = 0; i < static_cast<size_t>(tree.size()); ++i) {
    stop[i + 1] += gains[i];
    stop[static_cast<size_t>(tree.parent[i])] -= gains[i];
  }
  return stop;
}

std::vector<int> by_chance(const std::vector<double>& stop) {
  std::vector<int> order(stop.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return stop[static_cast<size_t>(a)] > stop[static_cast<size_t>(b)];
  });
  return order;
}

// How often the nodes of a tree are accepted, where the stored tree knows all of them; else empty.
std::vector<double> gains_of(const RankTree& tree, const Adapter* adapter) {
  std::vector<double> gains;
  if (adapter == nullptr) return gains;
  std::map<std::string, double> known;
  for (size_t i = 0; i < adapter->tree_paths().size(); ++i)
    known[adapter->tree_paths()[i]] = adapter->tree_gains()[i];
  for (const std::string& path : tree.paths()) {
    const auto it = known.find(path);
    if (it == known.end()) return {};
    gains.push_back(it->second);
  }
  return gains;
}

struct PlanChoice {
  int nodes = 0, groups = 0;
  double speed = 0;
};

class PlanSearch {
 public:
  PlanSearch(const RankTree& whole, const std::vector<double>& gains, const RowPrice& price,
             double mask_cost)
      : whole_(whole), gains_(gains), price_(price), mask_cost_(mask_cost) {}

  // As many groups as pay, `least` to `most` of them (at most one per node and the root). None: a
  // step with drafts computes no masks, and the next has no drafts.
  PlanChoice of(int nodes, int least, int most) const {
    const RankTree tree = whole_.first(nodes);
    const int masks = tree.depth();
    const std::vector<double> gains(gains_.begin(), gains_.begin() + nodes);
    const std::vector<double> stop = stopping(tree, gains);
    const std::vector<int> order = by_chance(stop);
    const double accepted = std::accumulate(gains.begin(), gains.end(), 0.0);
    const double bare = price_(1 + masks) + mask_cost_;
    PlanChoice best;
    double missed = 1;
    for (int g = 0; g <= std::min(most, nodes + 1) && 1 + nodes + g * masks <= engine::kMaxRows;
         ++g) {
      if (g > 0)
        missed =
            std::max(0.0, missed - stop[static_cast<size_t>(order[static_cast<size_t>(g) - 1])]);
      if (g < std::min(least, nodes + 1)) continue;
      const double time = price_(1 + nodes + g * masks) + (g > 0 ? mask_cost_ : 0) + missed * bare;
      const double speed = (1 + accepted + missed) / time;
      if (speed > best.speed) best = {nodes, g, speed};
    }
    return best;
  }

 private:
  const RankTree& whole_;
  const std::vector<double>& gains_;
  const RowPrice& price_;
  const double mask_cost_;
};

// Groups stand after the likeliest stops; without known chances after the first nodes.
MaskPlan plan_of(const RankTree& whole, const std::vector<double>& gains,
                 const PlanChoice& choice) {
  MaskPlan plan;
  plan.tree = whole.first(choice.nodes);
  plan.masks = plan.tree.depth();
  std::vector<int> order(static_cast<size_t>(choice.nodes) + 1);
  if (gains.empty())
    std::iota(order.begin(), order.end(), 0);
  else
    order = by_chance(stopping(plan.tree, gains));
  plan.groups.assign(order.begin(), order.begin() + choice.groups);
  return plan;
}

}  // namespace

int MaskPlan::rows() const { return 1 + tree.size() + masks * static_cast<int>(groups.size()); }

std::optional<RankTree> bita_tree(const std::string& who, const std::string& text, int n) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const bool full = kind == "full", triangle = kind == "upper-triangle";
  if (!full && !triangle && kind != "efficient") return std::nullopt;
  const std::string hint = "give efficient:K, upper-triangle:K or full:K with K candidates a level";
  if (colon == std::string::npos)
    throw base::usage_error(fmt::format("{}: tree={} lacks its number", who, text), hint);
  const int k = number_in(who, "tree=" + text, std::string_view(text).substr(colon + 1), 1, hint);
  RankTree tree;
  std::vector<int> parents(1, 0);
  for (int level = 1; level <= n; ++level) {
    const int width = triangle ? k - level + 1 : k;
    std::vector<int> nodes;
    for (const int parent : parents)
      for (int rank = 0; rank < width; ++rank) {
        if (tree.size() + 1 >= engine::kMaxRows)
          throw base::usage_error(
              fmt::format("{}: tree={} has more than {} nodes", who, text, engine::kMaxRows - 1),
              "take fewer candidates or masks");
        tree.add(parent, rank);
        nodes.push_back(tree.size());
      }
    if (nodes.empty()) break;
    parents.clear();
    for (const int node : nodes)
      if (full || parents.empty()) parents.push_back(node);
  }
  return tree;
}

MaskPlan choose_mask_plan(const std::string& who, const MaskOptions& options,
                          const Adapter* adapter, const MethodBuildContext& context, int most,
                          double mask_cost, const std::string& fallback) {
  const int masks = options.masks == 0 ? most : options.masks;
  if (masks > most)
    throw base::usage_error(
        fmt::format("{}: masks={}, but these weights were trained with {}", who, masks, most),
        fmt::format("give at most {}, or train more (scripts/train, --masks)", most));
  const std::string& text = options.draft.tree;
  const std::string& asked = options.groups;
  if (text == kStraightforward) {
    MaskPlan plan;
    plan.tree = parse_rank_tree(who, fmt::format("chain:{}", masks));
    plan.groups.assign(1, 0), plan.masks = masks, plan.reuse = true;
    return plan;
  }
  const bool stored = adapter != nullptr && !adapter->tree_paths().empty();
  GivenTree given;
  const std::string& wanted = text == "auto" && !stored ? fallback : text;
  if (const std::optional<RankTree> named = bita_tree(who, wanted, masks))
    given.tree = *named;
  else if (adapter != nullptr)
    given = given_tree(who, wanted, *adapter, text == "auto" ? engine::kMaxRows : masks, fallback);
  else
    given.tree = parse_rank_tree(who, wanted);
  if (text == "auto") {  // fewer masks than were trained cut the tree that nobody asked for
    const std::vector<std::string> all = given.tree.paths();
    std::vector<std::string> kept;
    for (size_t i = 0; i < all.size(); ++i)
      if (given.tree.level[i] <= masks) kept.push_back(all[i]);
    given.tree = rank_tree(who, kept);
  } else if (given.tree.depth() > masks) {
    throw base::usage_error(fmt::format("{}: tree '{}' has {} levels, there are {} masks", who,
                                        text, given.tree.depth(), masks),
                            "take a shallower tree, or weights with more masks");
  }
  const std::vector<double> gains = gains_of(given.tree, adapter);
  int n_groups = 0;  // 0 = to be chosen
  if (asked == "all")
    n_groups = engine::kMaxRows;
  else if (asked != "auto")
    n_groups = number_in(who, "groups=" + asked, asked, 1, "give auto, all, or a number");
  const RowPrice price(context.row_cost);
  PlanChoice best;
  if (gains.empty()) {  // nothing is known of the nodes: the papers' groups, or the first of them
    best = {given.tree.size(),
            n_groups == 0 ? given.tree.size() + 1 : std::min(n_groups, given.tree.size() + 1), 1};
  } else {
    const PlanSearch search(given.tree, gains, price, mask_cost);
    for (int n = given.choose ? 1 : given.tree.size(); n <= given.tree.size(); ++n) {
      const PlanChoice c = search.of(n, std::max(1, n_groups), n_groups == 0 ? n + 1 : n_groups);
      if (c.speed > best.speed) best = c;
    }
  }
  MaskPlan plan = plan_of(given.tree, gains, best);
  if (plan.rows() > engine::kMaxRows)
    throw base::usage_error(
        fmt::format("{}: tree={} with {} groups of {} masks needs {} rows a step, at most {} are "
                    "possible",
                    who, text, best.groups, plan.masks, plan.rows(), engine::kMaxRows),
        "take a smaller tree, or fewer groups");
  return plan;
}

MaskPlan choose_chain_plan(const std::string& who, int look_ahead, DraftCalls calls,
                           const Adapter& adapter, const MethodBuildContext& context, int most,
                           double mask_cost) {
  if (look_ahead > most)
    throw base::usage_error(
        fmt::format("{}: look_ahead={}, but these weights were trained with {} embeddings", who,
                    look_ahead, most),
        fmt::format("give at most {}, or train more (scripts/train {} --masks {})", most, who,
                    look_ahead));
  const int longest = look_ahead == 0 ? most : look_ahead;
  const auto least_of = [calls](int nodes) { return calls == DraftCalls::kOne ? nodes + 1 : 0; };
  const auto most_of = [calls](int nodes) { return calls == DraftCalls::kTwo ? 0 : nodes + 1; };
  const RankTree whole = parse_rank_tree(who, fmt::format("chain:{}", longest));
  const std::vector<double> gains = gains_of(whole, &adapter);
  PlanChoice best;
  if (gains.empty()) {
    best = {longest, least_of(longest), 1};  // the paper's two calls, unless one is asked for
  } else {
    const RowPrice price(context.row_cost);
    const PlanSearch search(whole, gains, price, mask_cost);
    for (int n = look_ahead == 0 ? 1 : longest; n <= longest; ++n) {
      const PlanChoice c = search.of(n, least_of(n), most_of(n));
      if (c.speed > best.speed) best = c;
    }
  }
  const MaskPlan plan = plan_of(whole, gains, best);
  if (plan.tree.size() == 0 || plan.rows() > engine::kMaxRows)
    throw base::usage_error(
        fmt::format("{}: a chain of {} with a group after every node needs {} rows a step, at most "
                    "{} are possible",
                    who, longest, (1 + longest) * (1 + longest), engine::kMaxRows),
        "take calls=two, or a smaller look_ahead");
  return plan;
}

Parameters<MaskOptions> mask_plan_parameters() {
  return Parameters<MaskOptions>{}
      .add(tree_parameter(
               "auto (of the tree stored with the weights what pays at this machine's T(n)/T(1)), "
               "stored:N, sequoia:N, efficient:K, upper-triangle:K or full:K (K candidates a "
               "level), "
               "chain:N, delayed:K:L1:L2, straightforward (one group, its masks used again; "
               "groups= says nothing then), or "
               "paths: 0+00+1"),
           &MaskOptions::draft)
      .add("groups", &MaskOptions::groups,
           "mask groups of a step: all (after every node, as published), a number (after the "
           "likeliest stops; a step that stops elsewhere goes on without drafts), or auto (as "
           "many as pay; all where the tree's chances are unknown)")
      .with(&ParamInfo::steps_at, {"auto", StepReproducibility::kFollowMachine})
      .add("masks", &MaskOptions::masks, {0, 64},
           "masks of a group at most; 0 = as many as were trained");
}

}  // namespace evalrun::methods
