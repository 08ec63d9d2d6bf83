// EAGLE, three versions: a decoder layer drafts from the target's own features, one token a
// forward.
//   eagle   static tree (Li et al. 2024, arXiv 2401.15077); children sampled without replacement
//   eagle2  the same weights; the tree follows the drafter's confidence (arXiv 2406.16858)
//   eagle3  features of three layers, a draft vocabulary, dynamic tree (arXiv 2503.01840)
// Published checkpoints load (methods/heads/adapter.h). Pairs of the text enter the drafter's cache
// with the target's true features; what a draft computed from predicted ones is dropped after the
// step.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "methods/builtin_methods.h"
#include "methods/heads/adapter.h"
#include "methods/heads/confidence_tree.h"
#include "methods/heads/draft_network.h"
#include "methods/heads/learned_drafter.h"
#include "methods/heads/rank_tree.h"
#include "methods/heads/static_draft.h"

namespace evalrun::methods {
namespace {

// What drafters that predict one token a forward share: the pairs of the text.
class PairDrafter : public Drafter {
 public:
  PairDrafter(std::unique_ptr<DraftNetwork> network, std::vector<int> layers)
      : network_(std::move(network)), layers_(std::move(layers)) {
    feature_.resize(static_cast<size_t>(network_->feature_width()));
    path_.reserve(kChunk);
  }

  engine::FeatureSet needs() const override {
    engine::FeatureSet set;
    set.hidden = layers_.empty();
    set.residual_layers = layers_;
    return set;
  }
  void start(const GenerationContext& context) override {
    target_ = context.target;
    network_->reset();
    // The last pair waits for the first draft: its token is the root.
    feed(context.prompt, static_cast<int>(context.prompt.size()) - 1, {});
  }
  size_t extra_parameter_bytes() const override { return network_->weight_bytes(); }
  size_t extra_kv_bytes() const override { return network_->kv_bytes(); }

 protected:
  static constexpr int kChunk = 256;  // pairs of one forward
  using Look = DraftNetwork::Look;

  // Commits pairs up to `pairs`; `last` sees the scores of the last one, or its draws of list 0.
  // Returns that one's row.
  int feed(std::span<const int32_t> sequence, int pairs, std::optional<Look> last,
           RankedChoices* choices = nullptr) {
    int row = -1;
    while (network_->length() < pairs) {
      const int begin = network_->length(), end = std::min(pairs, begin + kChunk);
      network_->begin(false);
      path_.clear();
      for (int t = begin; t < end; ++t) {
        DraftNetwork::Row r;
        r.token = sequence[static_cast<size_t>(t) + 1];
        r.feature = true_feature(t);
        r.parent = t - begin - 1;
        r.read = last.has_value() && t + 1 == pairs;
        if (r.read && choices != nullptr && choices->keeps()) r.draw = choices->ask(0, 0);
        row = network_->add(r);
        path_.push_back(row);
      }
      const auto nobody = [](int, const engine::RowScores&) {};
      network_->run(last.has_value() ? *last : Look(nobody));
      network_->commit(path_);
    }
    EVALRUN_CHECK(!last || row >= 0, "the drafter is ahead of the text");
    return row;
  }

  std::span<const float> true_feature(int position) {
    if (layers_.empty()) return target_->hidden_features().row(position);
    size_t at = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const auto part = target_->residual_features(static_cast<int>(i)).row(position);
      std::copy(part.begin(), part.end(), feature_.begin() + static_cast<ptrdiff_t>(at));
      at += part.size();
    }
    return feature_;
  }

  std::unique_ptr<DraftNetwork> network_;
  engine::Session* target_ = nullptr;

 private:
  const std::vector<int> layers_;
  std::vector<float> feature_;
  std::vector<int> path_;
};

// EAGLE-1: which ranks become nodes is fixed. Each level is one forward over the nodes that have
// children.
class StaticDrafter final : public PairDrafter {
 public:
  StaticDrafter(std::unique_ptr<DraftNetwork> network, std::vector<int> layers, RankTree tree,
                DraftRule rule, int vocab_size)
      : PairDrafter(std::move(network), std::move(layers)),
        tree_(std::move(tree)),
        rule_(rule),
        vocab_size_(vocab_size),
        row_of_(static_cast<size_t>(tree_.plan().size()) + 1) {}

  void start(const GenerationContext& context) override {
    prompt_ = context.prompt.size();
    choices_.start(context, rule_, tree_.plan().size() + 1, tree_.inner() + 1, tree_.plan().width(),
                   network_->ids(), vocab_size_);
    network_->want_best(choices_.best());
    network_->want_draws(choices_.dists(), choices_.sampling());
    PairDrafter::start(context);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    const auto position = static_cast<int64_t>(sequence.size() - prompt_);
    choices_.clear(position);
    tree_.clear();
    // The root's choices come from the last pair of the text.
    const auto root = [&](int, const engine::RowScores& scores) {
      choices_.note(0, position, scores);
    };
    const int last = feed(sequence, static_cast<int>(sequence.size()) - 1, Look(root), &choices_);
    const auto feature = network_->feature(last);
    root_feature_.assign(feature.begin(), feature.end());
    const int depth = std::min(max_depth, tree_.depth());
    for (int level = 1; level <= depth; ++level) {
      tree_.add_level(
          level, choices_, [](int plan_node) { return plan_node; }, tree);
      if (level < depth) expand(level, position + level);
    }
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
  void expand(int level, int64_t position) {
    network_->begin(level > 1);
    rows_.clear();
    for (const int node : tree_.inner(level)) {
      if (tree_.node(node) < 0) continue;
      const int parent = tree_.plan().parent[static_cast<size_t>(node) - 1];
      DraftNetwork::Row r;
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
      rows_.push_back(node);
    }
    if (rows_.empty()) return;
    size_t next = 0;  // rows are looked at in the order they were added
    const auto look = [&](int, const engine::RowScores& scores) {
      choices_.note(rows_[next++], position, scores);
    };
    network_->run(Look(look));
  }

  StaticTree tree_;
  const DraftRule rule_;
  size_t prompt_ = 0;  // tokens
  const int vocab_size_;
  RankedChoices choices_;
  std::vector<float> root_feature_;
  std::vector<int> row_of_;  // [plan node]
  std::vector<int> rows_;    // plan nodes of the current forward
};

// EAGLE-2: one forward a level, over the nodes that the tree goes on from.
class DynamicDrafter final : public PairDrafter {
 public:
  DynamicDrafter(std::unique_ptr<DraftNetwork> network, std::vector<int> layers,
                 const ConfidenceTree::Options& options, const engine::RowCostTable* costs)
      : PairDrafter(std::move(network), std::move(layers)),
        levels_(options.levels),
        tree_(options, costs) {
    network_->want_best(options.k, true);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    tree_.clear(network_->relative_cost());
    const auto root = [&](int, const engine::RowScores& scores) { note(-1, -1, scores); };
    const int last = feed(sequence, static_cast<int>(sequence.size()) - 1, Look(root));
    const auto feature = network_->feature(last);
    root_feature_.assign(feature.begin(), feature.end());
    const int levels = std::min(levels_, max_depth);
    for (int level = 1; level < levels; ++level) {
      const auto nodes = tree_.next_level(network_->relative_cost(), 1);
      if (nodes.empty()) break;
      expand(nodes, level > 1);
    }
    tree_.choose(tree);
  }
  LargestStep largest_step() const override {
    std::vector<int> rows(static_cast<size_t>(levels_), tree_.options().k);
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

  void expand(std::span<const int> nodes, bool extend) {
    network_->begin(extend);
    for (const int i : nodes) {
      const ConfidenceTree::Node& node = tree_.node(i);
      DraftNetwork::Row r;
      r.token = node.token;
      r.predicted = true;
      r.read = true;
      r.parent = node.from;
      r.feature =
          node.from < 0 ? std::span<const float>(root_feature_) : network_->feature(node.from);
      network_->add(r);
    }
    size_t next = 0;
    const auto look = [&](int row, const engine::RowScores& scores) {
      note(nodes[next++], row, scores);
    };
    network_->run(Look(look));
  }

  const int levels_;
  ConfidenceTree tree_;
  std::vector<float> root_feature_;
};

struct OpenedEagle {
  OpenedAdapter weights;
  std::unique_ptr<DraftNetwork> network;
  std::vector<int> layers;  // EAGLE-3: whose input streams are read
};

OpenedEagle open_eagle(const std::string& weights, const AdapterOptions& adapter,
                       const MethodBuildContext& context) {
  OpenedEagle opened;
  opened.weights = open_adapter(weights, adapter, context);
  AdapterReader& reader = *opened.weights.reader;
  DraftNetwork::Options options;
  options.session = context.session;
  options.storage = adapter.format;
  if (weights == "eagle3") {
    options.input = DraftNetwork::Input::kPaired;
    const int n = context.target->config().n_layers;
    opened.layers = reader.layers("residual_layers", {2, n / 2, n - 3}, n);
  }
  opened.network = std::make_unique<DraftNetwork>(reader, *context.target, options);
  return opened;
}

struct EagleOptions {
  AdapterOptions adapter;
  DraftOptions draft;
  EagleOptions() { draft.rule = DraftRule::kAuto; }
};

std::unique_ptr<DecodingMethod> build_static(const EagleOptions& options,
                                             const MethodBuildContext& context) {
  OpenedEagle opened = open_eagle("eagle", options.adapter, context);
  const double cost = opened.network->relative_cost();
  RankTree tree = choose_tree(
      "eagle", options.draft.tree, *opened.weights.adapter, context, engine::kMaxRows,
      [cost](int depth) { return cost * depth; }, "eagle");
  return make_speculative_method(std::make_unique<StaticDrafter>(
      std::move(opened.network), std::move(opened.layers), std::move(tree), options.draft.rule,
      context.target->config().vocab_size));
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
    const auto& [k, levels, total] = options.draft;
    if (k * (levels - 1) >= engine::kMaxRows)
      throw base::usage_error(
          fmt::format("{}: k={} nodes in each of {} levels are more than the {} rows of a forward",
                      name, k, levels, engine::kMaxRows),
          "lower k or levels");
  });
  info.build =
      parameters.bound([weights](const DynamicOptions& options, const MethodBuildContext& context) {
        OpenedEagle opened = open_eagle(weights, options.adapter, context);
        return make_speculative_method(std::make_unique<DynamicDrafter>(
            std::move(opened.network), std::move(opened.layers), options.draft, context.row_cost));
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
  info.build = parameters.bound(build_static);
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
      "whatever is sampled; verification is by sample and match.";
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
