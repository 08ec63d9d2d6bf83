// EAGLE, three versions: a decoder layer drafts from the target's own features, one token a
// forward.
//   eagle   static tree (Li et al. 2024, arXiv 2401.15077); children sampled without replacement
//   eagle2  the same weights; the tree follows the drafter's confidence (arXiv 2406.16858)
//   eagle3  features of three layers, a draft vocabulary, dynamic tree (arXiv 2503.01840)
// Published checkpoints load (methods/heads/adapter.h). Pairs of the text enter the drafter's cache
// with the target's true features; what a draft computed from predicted ones is dropped after the
// step.
#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/heads/adapter.h"
#include "methods/heads/confidence_tree.h"
#include "methods/heads/learned_drafter.h"
#include "methods/heads/pair_drafter.h"
#include "methods/heads/rank_tree.h"
#include "methods/heads/static_draft.h"

namespace evalrun::methods {
namespace {

// EAGLE-1: which ranks become nodes is fixed. Each level is one forward over the nodes that have
// children.
class StaticDrafter final : public PairDrafter {
 public:
  StaticDrafter(std::shared_ptr<DraftNetwork> network, std::vector<int> layers, RankTree tree,
                DraftRule rule, int vocab_size, std::shared_ptr<SlotDists> dists, int slot)
      : PairDrafter(std::move(network), std::move(layers), tree.depth() + 1, slot),
        tree_(std::move(tree)),
        rule_(rule),
        vocab_size_(vocab_size),
        dists_(std::move(dists)),
        choices_(slot, dists_),
        row_of_(static_cast<size_t>(tree_.plan().size()) + 1) {
    network_->expect(std::max(tree_.inner(), tree_.depth()) + 1);
  }
  std::unique_ptr<Drafter> another(int slot) const override {
    return std::make_unique<StaticDrafter>(network_, layers(), tree_.plan(), rule_, vocab_size_,
                                           dists_, slot);
  }

  void start(const GenerationContext& context) override {
    prompt_ = context.prompt.size();
    choices_.start(context, rule_, tree_.plan().size() + 1, tree_.inner() + 1, tree_.plan().width(),
                   network_->ids(), vocab_size_);
    network_->want_best(choices_.best());
    network_->want_draws(choices_.dists(), choices_.sampling());
    PairDrafter::start(context);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree&) override {
    text_ = sequence;
    position_ = static_cast<int64_t>(sequence.size() - prompt_);
    choices_.clear(position_);
    tree_.clear();
    depth_ = std::min(max_depth, tree_.depth());
    level_ = 0;
    catch_up(sequence);
  }

  bool stage(TokenTree& tree) override {
    if (level_ == 0) {  // the root's choices come from the last pair of the text
      rows_.assign(1, 0);
      first_row_ = stage_pairs(text_, &choices_);
      return true;
    }
    while (level_ <= depth_) {
      tree_.add_level(
          level_, choices_, [](int plan_node) { return plan_node; }, tree);
      if (level_++ < depth_ && expand(level_ - 1)) return true;
    }
    return false;
  }

  void take(TokenTree&) override {
    if (level_ == 0) {
      const auto feature = network_->feature(first_row_);
      root_feature_.assign(feature.begin(), feature.end());
      ++level_;
    }
    for (size_t i = 0; i < rows_.size(); ++i)
      choices_.note(rows_[i], position_ + level_ - 1,
                    network_->scores(first_row_ + static_cast<int>(i)));
  }

  LargestStep largest_step() const override {
    LargestStep step = {.rows = 1 + tree_.plan().size(),
                        .draft_cost = network_->relative_cost(),
                        .draft_rows = {1}};
    for (int level = 1; level < tree_.depth(); ++level)
      step.draft_rows.push_back(static_cast<int>(tree_.inner(level).size()));
    return step;
  }
  std::span<const double> q_of(int node) const override {
    return choices_.q(tree_.list_of_node(node));
  }
  DraftDraw draw_of(int node) const override { return tree_.draw_of_node(node); }
  engine::DistributionStore* dists() const override { return choices_.dists(); }
  int distribution_of(int node) const override { return choices_.dist(tree_.list_of_node(node)); }

 private:
  // Rows of the level's nodes that have children; false: there are none.
  bool expand(int level) {
    rows_.clear();
    for (const int node : tree_.inner(level)) {
      if (tree_.node(node) < 0) continue;
      const int parent = tree_.plan().parent[static_cast<size_t>(node) - 1];
      DraftNetwork::Row r;
      r.slot = slot_;
      r.token = tree_.token(node);
      r.predicted = true;
      r.read = true;
      if (choices_.keeps()) r.draw = choices_.ask(node, 0);
      if (parent == 0) {
        r.feature = root_feature_;
      } else {
        r.parent = row_of_[static_cast<size_t>(parent)];
        r.feature = network_->feature(r.parent);
      }
      row_of_[static_cast<size_t>(node)] = network_->add(r);
      if (rows_.empty()) first_row_ = row_of_[static_cast<size_t>(node)];
      rows_.push_back(node);
    }
    return !rows_.empty();
  }

  StaticTree tree_;
  const DraftRule rule_;
  const int vocab_size_;
  const std::shared_ptr<SlotDists> dists_;
  RankedChoices choices_;
  size_t prompt_ = 0;  // tokens
  // Of the current draft.
  std::span<const int32_t> text_;
  int64_t position_ = 0;  // of its first token
  int depth_ = 0;
  int level_ = 0;  // the next that nodes are added to; 0 = the root's choices are not known yet
  std::vector<float> root_feature_;
  std::vector<int> row_of_;  // [plan node]
  std::vector<int> rows_;    // plan nodes of the current forward
  int first_row_ = -1;       // the row of the first of them
};

// EAGLE-2: one forward a level, over the nodes that the tree goes on from.
class DynamicDrafter final : public PairDrafter {
 public:
  DynamicDrafter(std::shared_ptr<DraftNetwork> network, std::vector<int> layers,
                 const ConfidenceTree::Options& options, const engine::RowCostTable* costs,
                 int slot)
      : PairDrafter(std::move(network), std::move(layers), options.levels + 1, slot),
        costs_(costs),
        tree_(options, costs) {
    network_->want_best(options.k, true);
    network_->expect(std::max(options.k * (options.levels - 1), options.levels + 1));
  }
  std::unique_ptr<Drafter> another(int slot) const override {
    return std::make_unique<DynamicDrafter>(network_, layers(), tree_.options(), costs_, slot);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree&) override {
    text_ = sequence;
    tree_.clear(network_->relative_cost());
    levels_ = std::min(tree_.options().levels, max_depth);
    level_ = 0;
    catch_up(sequence);
  }

  bool stage(TokenTree& tree) override {
    if (level_ == 0) {
      first_row_ = stage_pairs(text_, nullptr);
      return true;
    }
    if (level_ < levels_) {
      nodes_ = tree_.next_level(network_->relative_cost(), 1);
      if (!nodes_.empty()) {
        expand();
        return true;
      }
    }
    tree_.choose(tree);
    return false;
  }

  void take(TokenTree&) override {
    if (level_++ == 0) {
      const auto feature = network_->feature(first_row_);
      root_feature_.assign(feature.begin(), feature.end());
      return note(-1, -1, network_->scores(first_row_));
    }
    int row = first_row_;
    for (const int node : nodes_) {
      note(node, row, network_->scores(row));
      ++row;
    }
  }

  LargestStep largest_step() const override {
    std::vector<int> rows(static_cast<size_t>(tree_.options().levels), tree_.options().k);
    rows[0] = 1;
    return tree_.largest_step(network_->relative_cost(), std::move(rows));
  }

 private:
  // The best choices after a node. `row` of the network: whose feature they go on from, -1 = the
  // last pair.
  void note(int parent, int row, const engine::RowScores& scores) {
    for (const engine::TokenLogit& b : scores.best)
      tree_.add(parent, row, network_->token(b.token),
                static_cast<double>(b.logit) - scores.log_sum);
  }

  void expand() {
    bool first = true;
    for (const int i : nodes_) {
      const ConfidenceTree::Node& node = tree_.node(i);
      DraftNetwork::Row r;
      r.slot = slot_;
      r.token = node.token;
      r.predicted = true;
      r.read = true;
      r.parent = node.from;
      r.feature =
          node.from < 0 ? std::span<const float>(root_feature_) : network_->feature(node.from);
      const int row = network_->add(r);
      if (std::exchange(first, false)) first_row_ = row;
    }
  }

  const engine::RowCostTable* const costs_;
  ConfidenceTree tree_;
  // Of the current draft.
  std::span<const int32_t> text_;
  int levels_ = 0, level_ = 0;  // at most, and seen
  std::span<const int> nodes_;  // of the current forward
  int first_row_ = -1;          // the row of the first of them
  std::vector<float> root_feature_;
};

struct OpenedEagle {
  OpenedAdapter weights;
  std::shared_ptr<DraftNetwork> network;
  std::vector<int> layers;  // EAGLE-3: whose input streams are read
};

OpenedEagle open_eagle(const std::string& weights, const AdapterOptions& adapter,
                       const MethodBuildContext& context) {
  OpenedEagle opened;
  opened.weights = open_adapter(weights, adapter, context);
  AdapterReader& reader = *opened.weights.reader;
  DraftNetwork::Options options;
  options.session = context.session;
  options.slots = context.slots;
  options.storage = adapter.format;
  if (weights == "eagle3") {
    options.input = DraftNetwork::Input::kPaired;
    const int n = context.target->config().n_layers;
    opened.layers = reader.layers("residual_layers", {2, n / 2, n - 3}, n);
  }
  opened.network = std::make_shared<DraftNetwork>(reader, *context.target, options);
  return opened;
}

struct EagleOptions {
  AdapterOptions adapter;
  DraftOptions draft;
  EagleOptions() { draft.rule = DraftRule::kAuto; }
};

std::unique_ptr<Drafter> static_drafter(const EagleOptions& options,
                                        const MethodBuildContext& context) {
  OpenedEagle opened = open_eagle("eagle", options.adapter, context);
  const double cost = opened.network->relative_cost();
  RankTree tree = choose_tree(
      "eagle", options.draft.tree, *opened.weights.adapter, context, engine::kMaxRows,
      [cost](int depth) { return cost * depth; }, "eagle");
  return std::make_unique<StaticDrafter>(
      std::move(opened.network), std::move(opened.layers), std::move(tree), options.draft.rule,
      context.target->config().vocab_size, std::make_shared<SlotDists>(context.slots), 0);
}

struct DynamicOptions {
  AdapterOptions adapter;
  ConfidenceTree::Options draft;
};

Parameters<DynamicOptions> dynamic_parameters() {
  using Draft = ConfidenceTree::Options;
  return Parameters<DynamicOptions>{}
      .add(adapter_parameters(), &DynamicOptions::adapter)
      .add(Parameters<Draft>{}
               .add("delta", &Draft::delta, {0, 64},
                    "one more level only where the last one raised the expected tokens of the best "
                    "`total` nodes by more (OPT-Tree's threshold); 0 = all levels")
               .add("k", &Draft::k, {1, 64},
                    "choices looked at after a node, and nodes expanded in a level")
               .add("levels", &Draft::levels, {1, 32},
                    "deepest draft, one forward of the drafter each (EAGLE-3's paper: 8)")
               .add("total", &Draft::total, {0, engine::kMaxRows - 1},
                    "draft nodes of a step; 0 = as many as pay here by the drafter's confidence "
                    "and T(n)/T(1) (the repository's 60 with the root: 59)")
               .with(&ParamInfo::steps_at, {"0", StepReproducibility::kFollowMachine}),
           &DynamicOptions::draft);
}

// `weights`: as in open_adapter().
MethodInfo dynamic_method(const std::string& name, const std::string& weights) {
  MethodInfo info;
  info.name = name;
  info.needs = fmt::format("trained weights (scripts/train {}, or a published {} checkpoint)",
                           weights, weights == "eagle3" ? "EAGLE-3" : "EAGLE");
  const auto parameters = dynamic_parameters();
  info.params = parameters.infos();
  info.check = parameters.bound([name](const DynamicOptions& options) {
    const auto& [k, levels, total, delta] = options.draft;
    if (k * (levels - 1) >= engine::kMaxRows)
      throw base::usage_error(
          fmt::format("{}: k={} nodes in each of {} levels are more than the {} rows of a forward",
                      name, k, levels, engine::kMaxRows),
          "lower k or levels");
    if (delta > 0 && total == 0)
      throw base::usage_error(
          fmt::format("{}: delta={} goes by the gain of a fixed number of nodes, total=0 has none",
                      name, delta),
          "give total, or leave delta out");
  });
  draft_by(info, parameters,
           [weights](const DynamicOptions& options, const MethodBuildContext& context) {
             OpenedEagle opened = open_eagle(weights, options.adapter, context);
             return std::make_unique<DynamicDrafter>(std::move(opened.network),
                                                     std::move(opened.layers), options.draft,
                                                     context.row_cost, 0);
           });
  info.files =
      parameters.bound([weights](const DynamicOptions& options, const MethodBuildContext& context) {
        return adapter_file(weights, options.adapter, context);
      });
  return info;
}

}  // namespace

MethodInfo eagle_method() {
  MethodInfo info;
  info.name = "eagle";
  info.summary = "a decoder layer on the target's features drafts a tree of fixed shape (EAGLE-1)";
  info.source = "EAGLE, Li et al. 2024, arXiv 2401.15077";
  info.needs = "trained weights (scripts/train eagle, or a published EAGLE checkpoint)";
  info.notes =
      "The released tree has 25 nodes (tree=eagle). Papers count tau with the bonus. The released "
      "sampling draws the bonus after a full match from unwarped logits; here it is the target's.";
  const auto parameters = Parameters<EagleOptions>{}
                              .add(adapter_parameters(), &EagleOptions::adapter)
                              .add(draft_parameter(), &EagleOptions::draft)
                              .add(tree_parameter(), &EagleOptions::draft);
  info.params = parameters.infos();
  info.sampled =
      parameters.bound([](const EagleOptions& options, const engine::SamplingParams& sampling) {
        return sampled_answers(options.draft.rule, sampling);
      });
  draft_by(info, parameters, static_drafter);
  info.files = parameters.bound([](const EagleOptions& options, const MethodBuildContext& context) {
    return adapter_file("eagle", options.adapter, context);
  });
  return info;
}

MethodInfo eagle2_method() {
  MethodInfo info = dynamic_method("eagle2", "eagle");
  info.summary = "EAGLE's weights, a tree that follows the drafter's confidence";
  info.source = "EAGLE-2, Li et al. 2024, arXiv 2406.16858";
  info.notes =
      "As released: k=10,levels=6,total=59. Confidence is the drafter's own, at temperature 1 "
      "whatever is sampled; verification is by sample and match. OPT-Tree (Wang et al. 2024, arXiv "
      "2406.17276, Algorithm 1) with EAGLE's weights, as in its repository: "
      "k=60,total=60,levels=9,delta=0.5.";
  return info;
}

MethodInfo eagle3_method() {
  MethodInfo info = dynamic_method("eagle3", "eagle3");
  info.summary = "features of three layers, a vocabulary of its own, a tree by confidence";
  info.source = "EAGLE-3, Li et al. 2025, arXiv 2503.01840";
  info.notes = "As in the paper: k=10,levels=8,total=59; its released scripts draft six levels.";
  return info;
}

}  // namespace evalrun::methods
