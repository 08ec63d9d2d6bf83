// Falcon (Gao et al. 2025, arXiv 2412.12639): an EAGLE-like drafter whose forward gives the
// features of the next k positions at once. Rows stand in blocks of k that see each other fully; a
// tree of depth m k takes m forwards. Within one forward the k places are ranked independently of
// each other: the children at place 2 come from the same list whatever was chosen at place 1.
#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/heads/block_drafter.h"
#include "methods/heads/confidence_tree.h"
#include "methods/heads/learned_drafter.h"
#include "methods/heads/static_draft.h"

namespace evalrun::methods {
namespace {

// The paper's trees: which ranks become nodes is fixed.
class FalconDrafter final : public BlockDrafter {
 public:
  FalconDrafter(std::shared_ptr<DraftNetwork> network, int k, bool right_aligned, RankTree tree,
                DraftRule rule, int vocab_size, std::shared_ptr<SlotDists> dists, int slot)
      : BlockDrafter(std::move(network), k, right_aligned, slot),
        tree_(std::move(tree)),
        rule_(rule),
        vocab_size_(vocab_size),
        dists_(std::move(dists)),
        choices_(slot, dists_),
        block_of_(static_cast<size_t>(tree_.plan().size()) + 1) {
    size_t blocks = 0;
    for (int level = k; level < tree_.depth(); level += k) blocks += tree_.inner(level).size();
    expect(k * static_cast<int>(blocks), tree_.depth());
  }
  std::unique_ptr<Drafter> another(int slot) const override {
    return std::make_unique<FalconDrafter>(network_, k_, right_aligned_, tree_.plan(), rule_,
                                           vocab_size_, dists_, slot);
  }

  void start(const GenerationContext& context) override {
    // A list for each place after the root and after each node of the plan.
    prompt_ = context.prompt.size();
    choices_.start(context, rule_, (tree_.plan().size() + 1) * k_, (tree_.inner() + 1) * k_,
                   tree_.plan().width(), network_->ids(), vocab_size_);
    network_->want_best(choices_.best());
    network_->want_draws(choices_.dists(), choices_.sampling());
    BlockDrafter::start(context);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree&) override {
    text_ = sequence;
    position_ = static_cast<int64_t>(sequence.size() - prompt_);
    choices_.clear(position_);
    tree_.clear();
    level_ = 0;
    depth_ = begin_root(sequence) ? std::min(max_depth, tree_.depth()) : 0;
  }

  bool stage(TokenTree& tree) override {
    if (level_ == 0 && depth_ > 0) {
      stage_root(text_, &choices_);
      return true;
    }
    while (level_ <= depth_ && level_ > 0) {
      tree_.add_level(
          level_, choices_, [this](int node) { return list_behind(node); }, tree);
      const int level = level_++;
      if (level % k_ == 0 && level < depth_ && expand(level)) return true;
    }
    return false;
  }

  void take(TokenTree&) override {
    if (level_ == 0) {
      take_root();
      for (int place = 0; place < k_; ++place)
        choices_.note(place, position_ + place, root_scores(place));
      level_ = 1;
      return;
    }
    int row = first_row_;
    for (const int node : blocks_)
      for (int place = 0; place < k_; ++place, ++row)
        choices_.note(node * k_ + place, position_ + level_ - 1 + place, network_->scores(row));
  }

  LargestStep largest_step() const override {
    LargestStep step = {.rows = 1 + tree_.plan().size(),
                        .draft_cost = network_->relative_cost(),
                        .draft_rows = {k_}};
    for (int level = k_; level < tree_.depth(); level += k_)
      step.draft_rows.push_back(k_ * static_cast<int>(tree_.inner(level).size()));
    return step;
  }
  std::span<const double> q_of(int node) const override {
    return choices_.q(tree_.list_of_node(node));
  }
  DraftDraw draw_of(int node) const override { return tree_.draw_of_node(node); }
  engine::DistributionStore* dists() const override { return choices_.dists(); }
  int distribution_of(int node) const override { return choices_.dist(tree_.list_of_node(node)); }

 private:
  // The node whose block tells what follows `node`, and the place in it: level l is told by the
  // block after its ancestor at level floor(l / k) k.
  int list_behind(int node) const {
    const int level = node == 0 ? 0 : tree_.plan().level[static_cast<size_t>(node) - 1];
    int ancestor = node;
    for (int l = level; l % k_ != 0; --l)
      ancestor = tree_.plan().parent[static_cast<size_t>(ancestor) - 1];
    return ancestor * k_ + level % k_;
  }

  // A block of k rows for each node of a level that has descendants: the last k tokens of its path
  // with the features its parent block predicted. False where there are none.
  bool expand(int level) {
    blocks_.clear();
    for (const int node : tree_.inner(level)) {
      if (tree_.node(node) < 0) continue;
      int32_t tokens[kMostPlaces] = {};
      int at = node;
      for (int s = k_ - 1; s >= 0; --s) {
        tokens[s] = tree_.token(at);
        at = tree_.plan().parent[static_cast<size_t>(at) - 1];
      }
      const int parent_block = at == 0 ? -1 : block_of_[static_cast<size_t>(at)];
      const int row = add_block({tokens, static_cast<size_t>(k_)}, parent_block,
                                static_cast<int>(blocks_.size()), &choices_, node * k_);
      block_of_[static_cast<size_t>(node)] = row;
      if (blocks_.empty()) first_row_ = row;
      blocks_.push_back(node);
    }
    return !blocks_.empty();
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
  int level_ = 0;  // the next that nodes are added to; 0 = the root block is not known yet
  std::vector<int> block_of_;  // [plan node] first row of the block after it
  std::vector<int> blocks_;    // plan nodes of the current forward
  int first_row_ = -1;         // of the first of them
};

// tree=dynamic: EAGLE-2's tree over Falcon's blocks. A level inside a block takes its choices from
// the block's next place, whatever stands before it, and costs no forward; at a block's end the
// surest nodes get a block of their own.
class DynamicFalconDrafter final : public BlockDrafter {
 public:
  DynamicFalconDrafter(std::shared_ptr<DraftNetwork> network, int k, bool right_aligned,
                       const ConfidenceTree::Options& options, const engine::RowCostTable* costs,
                       int slot)
      : BlockDrafter(std::move(network), k, right_aligned, slot),
        costs_(costs),
        tree_(options, costs) {
    network_->want_best(options.k, true);
    const int forwards = (options.levels - 1) / k;
    blocks_.reserve(1 + static_cast<size_t>(forwards * options.k));
    lists_.resize(blocks_.capacity() * static_cast<size_t>(k));
    for (std::vector<Choice>& one : lists_) one.reserve(static_cast<size_t>(options.k));
    expect(forwards * options.k * k, options.levels);
  }
  std::unique_ptr<Drafter> another(int slot) const override {
    return std::make_unique<DynamicFalconDrafter>(network_, k_, right_aligned_, tree_.options(),
                                                  costs_, slot);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree&) override {
    text_ = sequence;
    tree_.clear(network_->relative_cost());
    blocks_.assign(1, -1);
    level_ = 0;
    levels_ = begin_root(sequence) ? std::min(tree_.options().levels, max_depth) : 0;
  }

  bool stage(TokenTree& tree) override {
    if (levels_ == 0) return false;
    if (level_ == 0) {
      stage_root(text_, nullptr);
      return true;
    }
    for (; level_ < levels_; ++level_) {
      const bool forward = level_ % k_ == 0;
      nodes_ = tree_.next_level(forward ? network_->relative_cost() : 0, k_);
      if (nodes_.empty()) break;
      if (forward) {
        expand();
        return true;
      }
      for (const int node : nodes_) add_choices(node, tree_.node(node).from, level_ % k_);
    }
    tree_.choose(tree);
    return false;
  }

  void take(TokenTree&) override {
    if (level_++ == 0) {
      take_root();
      for (int place = 0; place < k_; ++place) note(0, place, root_scores(place));
      return add_choices(-1, 0, 0);
    }
    int block = first_block_;
    for (const int node : nodes_) {
      for (int place = 0; place < k_; ++place)
        note(block, place, network_->scores(blocks_[static_cast<size_t>(block)] + place));
      add_choices(node, block++, 0);
    }
  }
  LargestStep largest_step() const override {
    const int forwards = 1 + (tree_.options().levels - 1) / k_;
    std::vector<int> rows(static_cast<size_t>(forwards), tree_.options().k * k_);
    rows[0] = k_;
    return tree_.largest_step(network_->relative_cost(), std::move(rows));
  }

 private:
  struct Choice {
    int32_t token;
    double log_prob;
  };
  std::vector<Choice>& list(int block, int place) {
    return lists_[static_cast<size_t>(block * k_ + place)];
  }
  void note(int block, int place, const engine::RowScores& scores) {
    std::vector<Choice>& choices = list(block, place);
    choices.clear();
    for (const engine::TokenLogit& b : scores.best)
      choices.push_back({network_->token(b.token), static_cast<double>(b.logit) - scores.log_sum});
  }
  void add_choices(int parent, int block, int place) {
    for (const Choice& choice : list(block, place))
      tree_.add(parent, block, choice.token, choice.log_prob);
  }

  // A block for each of the nodes, at whose level one ends, in order.
  void expand() {
    first_block_ = static_cast<int>(blocks_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      int32_t tokens[kMostPlaces] = {};
      int at = nodes_[i];
      for (int s = k_ - 1; s >= 0; --s) {
        tokens[s] = tree_.node(at).token;
        at = tree_.node(at).parent;
      }
      const int parent_block = blocks_[static_cast<size_t>(tree_.node(nodes_[i]).from)];
      blocks_.push_back(
          add_block({tokens, static_cast<size_t>(k_)}, parent_block, static_cast<int>(i)));
    }
  }

  const engine::RowCostTable* const costs_;
  ConfidenceTree tree_;
  // Of the current draft.
  std::span<const int32_t> text_;
  int levels_ = 0, level_ = 0;              // at most, and seen
  std::span<const int> nodes_;              // of the current forward
  int first_block_ = 0;                     // of theirs
  std::vector<int> blocks_;                 // first row; block 0 is the root block, -1
  std::vector<std::vector<Choice>> lists_;  // [block][place]
};

struct FalconOptions {
  AdapterOptions adapter;
  bool right_aligned = true;  // align=
  DraftOptions draft;
  ConfidenceTree::Options dynamic{10, 8, 59};  // tree=dynamic
  int k = 0;
  std::string lstm = "auto";
};

constexpr const char* kDynamic = "dynamic";

DraftNetwork::Input input_of(const AdapterReader& reader, const std::string& given) {
  const std::string stored = reader.text("input", reader.has("fc.weight") ? "fc" : "per_token");
  const std::string input = given == "auto" ? stored : given == "none" ? "fc" : given;
  if ((input == "fc") != reader.has("fc.weight"))
    throw base::usage_error(
        fmt::format("falcon: lstm={} does not fit these weights, whose input stage is '{}'", given,
                    stored),
        "leave lstm=auto, or train with --input " + input);
  if (input == "fc") return DraftNetwork::Input::kLinear;
  if (input == "per_token") return DraftNetwork::Input::kPerToken;
  if (input == "recurrent") return DraftNetwork::Input::kRecurrent;
  reader.fail("config.input", fmt::format("is '{}', expected fc, per_token or recurrent", input));
}

std::unique_ptr<Drafter> falcon_drafter(const FalconOptions& given,
                                        const MethodBuildContext& context) {
  const OpenedAdapter opened = open_adapter("falcon", given.adapter, context);
  AdapterReader& reader = *opened.reader;
  const int k = reader.integer("k", 1, BlockDrafter::kMostPlaces);
  if (given.k != 0 && given.k != k)
    throw base::usage_error(
        fmt::format("falcon: k={}, but these weights were trained for k={}", given.k, k),
        "leave k out, or give the adapter that was trained for it");
  DraftNetwork::Options options;
  options.session = context.session;
  options.slots = context.slots;
  options.storage = given.adapter.format;
  options.layers = reader.integer("layers", 1, 2);
  options.scale = reader.number("scale", 1);
  if (!(options.scale > 0)) reader.fail("config.scale", "must be positive");
  options.input = input_of(reader, given.lstm);
  auto network = std::make_shared<DraftNetwork>(reader, *context.target, options);
  if (given.draft.tree == kDynamic) {
    const int blocks = given.dynamic.k * ((given.dynamic.levels - 1) / k);
    if (blocks * k >= engine::kMaxRows)
      throw base::usage_error(
          fmt::format(
              "falcon: choices={} and levels={} need {} blocks of {} rows, a forward has {}",
              given.dynamic.k, given.dynamic.levels, blocks, k, engine::kMaxRows),
          "lower choices or levels");
    return std::make_unique<DynamicFalconDrafter>(std::move(network), k, given.right_aligned,
                                                  given.dynamic, context.row_cost, 0);
  }
  const double cost = network->relative_cost();
  RankTree tree = choose_tree(
      "falcon", given.draft.tree, *opened.adapter, context, engine::kMaxRows,
      [cost, k](int depth) { return cost * ((depth + k - 1) / k); }, "falcon_small");
  // All blocks of a draft stay in one forward's rows.
  const StaticTree levels(tree);
  size_t blocks = 0;
  for (int level = k; level < tree.depth(); level += k) blocks += levels.inner(level).size();
  if (blocks * static_cast<size_t>(k) >= engine::kMaxRows)
    throw base::usage_error(
        fmt::format("falcon: this tree needs {} blocks of {} rows, a forward has {}", blocks, k,
                    engine::kMaxRows),
        "take a smaller tree");
  return std::make_unique<FalconDrafter>(
      std::move(network), k, given.right_aligned, std::move(tree), given.draft.rule,
      context.target->config().vocab_size, std::make_shared<SlotDists>(context.slots), 0);
}

}  // namespace

MethodInfo falcon_method() {
  MethodInfo info;
  info.name = "falcon";
  info.version = "3";
  info.summary = "k features a forward: a semi-autoregressive drafter";
  info.source = "Falcon, Gao et al. 2025, arXiv 2412.12639, section 3";
  info.needs = "trained weights (scripts/train falcon, or a published Falcon checkpoint)";
  info.notes =
      "The paper's trees are tree=falcon_llama (118 nodes) and tree=falcon_vicuna (157 nodes, with "
      "the 20 children of the root that its text names; its picture shows 19: "
      "tree=falcon_vicuna_figure), its chain is chain:8; its tau leaves the bonus out. Of the tree "
      "for k=3 it gives the height alone: tree=falcon_height6 is ours, falcon_vicuna without its "
      "last two levels. The paper samples its drafts: draft=drawn; the default takes the "
      "likeliest. "
      "tree=dynamic is EAGLE-2's tree on Falcon's probabilities, the paper's future work. Its text "
      "has an LSTM along the pairs (lstm=recurrent), its code one without state (lstm=per_token); "
      "the weights decide. The released blocks start at the first new pair (align=chunk).";
  using Shape = FalconOptions;
  const std::vector<base::Named<std::string>> stages = {
      {"auto", "auto"}, {"per_token", "per_token"}, {"recurrent", "recurrent"}, {"none", "none"}};
  const auto parameters =
      Parameters<Shape>{}
          .add(adapter_parameters(), &Shape::adapter)
          .choice("align", &Shape::right_aligned, {{"right", true}, {"chunk", false}},
                  "blocks end at the last pair, or start at the first new one (chunk)")
          .add(Parameters<ConfidenceTree::Options>{}
                   .add("choices", &ConfidenceTree::Options::k, {1, 64},
                        "tree=dynamic: choices looked at after a node, and nodes a level goes on "
                        "from")
                   .add("levels", &ConfidenceTree::Options::levels, {1, 64},
                        "tree=dynamic: deepest draft, one forward of the drafter for k levels")
                   .add("total", &ConfidenceTree::Options::total, {0, engine::kMaxRows - 1},
                        "tree=dynamic: draft nodes of a step; 0 = as many as pay here by the "
                        "drafter's confidence and T(n)/T(1)")
                   .with(&ParamInfo::steps_at, {"0", StepReproducibility::kFollowMachine}),
               &Shape::dynamic)
          .add(draft_parameter(), &Shape::draft)
          .add("k", &Shape::k, {0, BlockDrafter::kMostPlaces}, "features a forward; 0 = as trained")
          .choice("lstm", &Shape::lstm, stages,
                  "input stage: as trained, or the one the weights must have")
          .add(tree_parameter(
                   std::string(kTreeText) +
                   "; dynamic (follows the drafter's confidence: choices, levels, total)"),
               &Shape::draft);
  info.params = parameters.infos();
  info.check = parameters.bound([](const Shape& options) {
    if (options.draft.tree == kDynamic && options.draft.rule != DraftRule::kArgmax)
      throw base::usage_error("falcon: tree=dynamic drafts the likeliest tokens",
                              "leave draft=best, or give a tree of fixed shape");
  });
  info.sampled = parameters.bound([](const Shape& options, const engine::SamplingParams& sampling) {
    return sampled_answers(options.draft.rule, sampling);
  });
  draft_by(info, parameters, falcon_drafter);
  info.files = parameters.bound([](const Shape& options, const MethodBuildContext& context) {
    return adapter_file("falcon", options.adapter, context);
  });
  return info;
}

}  // namespace evalrun::methods
