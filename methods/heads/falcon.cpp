// Falcon (Gao et al. 2025, arXiv 2412.12639): an EAGLE-like drafter whose forward gives the
// features of the next k positions at once. Rows stand in blocks of k that see each other fully; a
// tree of depth m k takes m forwards. Within one forward the k places are ranked independently of
// each other: the children at place 2 come from the same list whatever was chosen at place 1.
//
// The last k pairs of the text always form the root block (align=right), as in training with a
// random border; the released code starts blocks at the first pair that is new (align=chunk), so
// that the last rows may straddle two. The root block is computed anew in each step: with one layer
// that changes no key or value, with two it replaces what the first layer saw.
#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "methods/builtin_methods.h"
#include "methods/heads/confidence_tree.h"
#include "methods/heads/draft_network.h"
#include "methods/heads/learned_drafter.h"
#include "methods/heads/static_draft.h"

namespace evalrun::methods {
namespace {

constexpr int kMostSlots = 8;

// What both kinds of tree share: the pairs of the text, and blocks of k rows.
class BlockDrafter : public Drafter {
 public:
  BlockDrafter(std::unique_ptr<DraftNetwork> network, int k, bool right_aligned)
      : network_(std::move(network)), k_(k), right_aligned_(right_aligned) {
    path_.reserve(kChunk);
    root_features_.resize(static_cast<size_t>(k_));
  }

  engine::FeatureSet needs() const override { return {.hidden = true, .residual_layers = {}}; }
  size_t extra_parameter_bytes() const override { return network_->weight_bytes(); }
  size_t extra_kv_bytes() const override { return network_->kv_bytes(); }

 protected:
  using Look = DraftNetwork::Look;

  // The prompt's pairs but the last, whose token is the root.
  void feed_prompt(const GenerationContext& context) {
    target_ = context.target;
    network_->reset();
    const int ready = static_cast<int>(context.prompt.size()) - 1;
    const auto nobody = [](int, const engine::RowScores&) {};
    feed(context.prompt, 0, ready, 0, Look(nobody));
  }

  // The root block: `look(slot, scores)` for each of its k rows. `choices` are asked for draws of
  // the lists 0..k-1 where they keep distributions. False where the text has no k pairs yet.
  bool feed_root(std::span<const int32_t> sequence, Look look, RankedChoices* choices = nullptr) {
    const int pairs = static_cast<int>(sequence.size()) - 1;
    if (pairs < k_) return false;
    const int first = std::min(network_->length(), pairs - k_);
    network_->rewind(first);
    const auto slot = [&](int row, const engine::RowScores& scores) {
      look(row - root_rows_, scores);
    };
    feed(sequence, first, pairs, k_, Look(slot), choices);
    for (int s = 0; s < k_; ++s) {
      const auto f = network_->feature(root_rows_ + s);
      root_features_[static_cast<size_t>(s)].assign(f.begin(), f.end());
    }
    return true;
  }

  // Adds block `number` of a forward: `tokens` with the features that the block in front of it, of
  // rows `parent_block`.. (-1 = the root block), has predicted. Returns its first row. `choices`
  // are asked for draws of the lists `first_list`...
  int add_block(std::span<const int32_t> tokens, int parent_block, int number,
                RankedChoices* choices = nullptr, int first_list = 0) {
    int first_row = -1;
    for (int s = 0; s < k_; ++s) {
      DraftNetwork::Row r;
      r.token = tokens[static_cast<size_t>(s)];
      r.feature = parent_block < 0 ? std::span<const float>(root_features_[static_cast<size_t>(s)])
                                   : network_->feature(parent_block + s);
      r.predicted = true;
      r.parent = parent_block < 0 ? -1 : parent_block + k_ - 1;
      r.block = number;
      r.read = true;
      if (choices != nullptr && choices->keeps()) r.draw = choices->ask(first_list + s, 0);
      r.previous = s > 0 ? first_row + s - 1 : r.parent;
      const int row = network_->add(r);
      if (s == 0) first_row = row;
    }
    return first_row;
  }

  std::unique_ptr<DraftNetwork> network_;
  const int k_;

 private:
  static constexpr int kChunk = 256;

  // Commits pairs [first, pairs), in blocks of k; the last `read` rows are looked at.
  void feed(std::span<const int32_t> sequence, int first, int pairs, int read, Look look,
            RankedChoices* choices = nullptr) {
    const auto hidden = target_->hidden_features();
    // Chunks end at block borders, so that no block is cut and the root block is in the last one.
    const int border = (right_aligned_ ? pairs : first) % k_;
    int begin = first;
    while (begin < pairs) {
      int end = std::min(pairs, begin + kChunk);
      if (end < pairs) end -= ((end - border) % k_ + k_) % k_;
      network_->begin(false);
      path_.clear();
      int block = -1, parent = -1;
      for (int t = begin; t < end; ++t) {
        if (t == begin || ((t - border) % k_ + k_) % k_ == 0) {  // a new block
          ++block;
          parent = t == begin ? -1 : t - 1 - begin;
        }
        DraftNetwork::Row r;
        r.token = sequence[static_cast<size_t>(t) + 1];
        r.feature = hidden.row(t);
        r.parent = parent;
        r.block = block;
        r.previous = t - begin - 1;
        r.read = t >= pairs - read;
        if (r.read && choices != nullptr && choices->keeps())
          r.draw = choices->ask(t - (pairs - read), 0);
        if (t == pairs - read) root_rows_ = t - begin;
        path_.push_back(network_->add(r));
      }
      network_->run(look);
      network_->commit(path_);
      begin = end;
    }
  }

  const bool right_aligned_;
  engine::Session* target_ = nullptr;
  int root_rows_ = 0;                              // first row of the root block in the last feed
  std::vector<std::vector<float>> root_features_;  // [k]
  std::vector<int> path_;
};

// The paper's trees: which ranks become nodes is fixed.
class FalconDrafter final : public BlockDrafter {
 public:
  FalconDrafter(std::unique_ptr<DraftNetwork> network, int k, bool right_aligned, RankTree tree,
                DraftRule rule, int vocab_size)
      : BlockDrafter(std::move(network), k, right_aligned),
        tree_(std::move(tree)),
        rule_(rule),
        vocab_size_(vocab_size),
        block_of_(static_cast<size_t>(tree_.plan().size()) + 1) {}

  void start(const GenerationContext& context) override {
    // A list for each place after the root and after each node of the plan.
    prompt_ = context.prompt.size();
    choices_.start(context, rule_, (tree_.plan().size() + 1) * k_, (tree_.inner() + 1) * k_,
                   tree_.plan().width(), network_->ids(), vocab_size_);
    network_->want_best(choices_.best());
    network_->want_draws(choices_.dists(), choices_.sampling());
    feed_prompt(context);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    const auto position = static_cast<int64_t>(sequence.size() - prompt_);
    choices_.clear(position);
    tree_.clear();
    const auto look = [&](int slot, const engine::RowScores& scores) {
      choices_.note(slot, position + slot, scores);
    };
    if (!feed_root(sequence, Look(look), &choices_)) return;
    const int depth = std::min(max_depth, tree_.depth());
    for (int level = 1; level <= depth; ++level) {
      tree_.add_level(
          level, choices_, [this](int node) { return list_behind(node); }, tree);
      if (level % k_ == 0 && level < depth) expand(level, position + level);
    }
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
  // with the features its parent block predicted.
  void expand(int level, int64_t position) {
    network_->begin(level > k_);
    blocks_.clear();
    for (const int node : tree_.inner(level)) {
      if (tree_.node(node) < 0) continue;
      int32_t tokens[kMostSlots] = {};
      int at = node;
      for (int s = k_ - 1; s >= 0; --s) {
        tokens[s] = tree_.token(at);
        at = tree_.plan().parent[static_cast<size_t>(at) - 1];
      }
      const int parent_block = at == 0 ? -1 : block_of_[static_cast<size_t>(at)];
      block_of_[static_cast<size_t>(node)] =
          add_block({tokens, static_cast<size_t>(k_)}, parent_block,
                    static_cast<int>(blocks_.size()), &choices_, node * k_);
      blocks_.push_back(node);
    }
    if (blocks_.empty()) return;
    size_t next = 0;
    const auto look = [&](int, const engine::RowScores& scores) {
      const auto slot = static_cast<int>(next % static_cast<size_t>(k_));
      choices_.note(blocks_[next / static_cast<size_t>(k_)] * k_ + slot, position + slot, scores);
      ++next;
    };
    network_->run(Look(look));
  }

  StaticTree tree_;
  const DraftRule rule_;
  size_t prompt_ = 0;  // tokens
  const int vocab_size_;
  RankedChoices choices_;
  std::vector<int> block_of_;  // [plan node] first row of the block after it
  std::vector<int> blocks_;    // plan nodes of the current forward
};

// tree=dynamic: EAGLE-2's tree over Falcon's blocks. A level inside a block takes its choices from
// the block's next place, whatever stands before it, and costs no forward; at a block's end the
// surest nodes get a block of their own.
class DynamicFalconDrafter final : public BlockDrafter {
 public:
  DynamicFalconDrafter(std::unique_ptr<DraftNetwork> network, int k, bool right_aligned,
                       const ConfidenceTree::Options& options, const engine::RowCostTable* costs)
      : BlockDrafter(std::move(network), k, right_aligned),
        levels_(options.levels),
        tree_(options, costs) {
    network_->want_best(options.k, true);
    const int forwards = (options.levels - 1) / k;
    blocks_.reserve(1 + static_cast<size_t>(forwards * options.k));
    lists_.resize(blocks_.capacity() * static_cast<size_t>(k));
    for (std::vector<Choice>& one : lists_) one.reserve(static_cast<size_t>(options.k));
  }

  void start(const GenerationContext& context) override { feed_prompt(context); }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    tree_.clear(network_->relative_cost());
    blocks_.assign(1, -1);
    const auto look = [&](int slot, const engine::RowScores& scores) { note(0, slot, scores); };
    if (!feed_root(sequence, Look(look))) return;
    add_choices(-1, 0, 0);
    const int levels = std::min(levels_, max_depth);
    for (int level = 1; level < levels; ++level) {
      const bool forward = level % k_ == 0;
      const auto nodes = tree_.next_level(forward ? network_->relative_cost() : 0, k_);
      if (nodes.empty()) break;
      const int first_block = static_cast<int>(blocks_.size());
      if (forward) expand(nodes, level > k_);
      for (size_t i = 0; i < nodes.size(); ++i)
        add_choices(nodes[i],
                    forward ? first_block + static_cast<int>(i) : tree_.node(nodes[i]).from,
                    level % k_);
    }
    tree_.choose(tree);
  }
  LargestStep largest_step() const override {
    const int forwards = 1 + (levels_ - 1) / k_;
    std::vector<int> rows(static_cast<size_t>(forwards), tree_.options().k * k_);
    rows[0] = k_;
    return tree_.largest_step(network_->relative_cost(), std::move(rows));
  }

 private:
  struct Choice {
    int32_t token;
    double log_prob;
  };
  std::vector<Choice>& list(int block, int slot) {
    return lists_[static_cast<size_t>(block * k_ + slot)];
  }
  void note(int block, int slot, const engine::RowScores& scores) {
    std::vector<Choice>& choices = list(block, slot);
    choices.clear();
    for (const engine::TokenLogit& b : scores.best)
      choices.push_back({network_->token(b.token), static_cast<double>(b.logit) - scores.log_sum});
  }
  void add_choices(int parent, int block, int slot) {
    for (const Choice& choice : list(block, slot))
      tree_.add(parent, block, choice.token, choice.log_prob);
  }

  // A block for each of `nodes`, at whose level one ends, in order.
  void expand(std::span<const int> nodes, bool extend) {
    const int first_block = static_cast<int>(blocks_.size());
    network_->begin(extend);
    for (size_t i = 0; i < nodes.size(); ++i) {
      int32_t tokens[kMostSlots] = {};
      int at = nodes[i];
      for (int s = k_ - 1; s >= 0; --s) {
        tokens[s] = tree_.node(at).token;
        at = tree_.node(at).parent;
      }
      const int parent_block = blocks_[static_cast<size_t>(tree_.node(nodes[i]).from)];
      blocks_.push_back(
          add_block({tokens, static_cast<size_t>(k_)}, parent_block, static_cast<int>(i)));
    }
    int next = 0;  // rows are looked at in the order they were added
    const auto look = [&](int, const engine::RowScores& scores) {
      note(first_block + next / k_, next % k_, scores);
      ++next;
    };
    network_->run(Look(look));
  }

  const int levels_;
  ConfidenceTree tree_;
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

std::unique_ptr<DecodingMethod> build_falcon(const FalconOptions& given,
                                             const MethodBuildContext& context) {
  const OpenedAdapter opened = open_adapter("falcon", given.adapter, context);
  AdapterReader& reader = *opened.reader;
  const int k = reader.integer("k", 1, kMostSlots);
  if (given.k != 0 && given.k != k)
    throw base::usage_error(
        fmt::format("falcon: k={}, but these weights were trained for k={}", given.k, k),
        "leave k out, or give the adapter that was trained for it");
  DraftNetwork::Options options;
  options.session = context.session;
  options.storage = given.adapter.format;
  options.layers = reader.integer("layers", 1, 2);
  options.scale = reader.number("scale", 1);
  if (!(options.scale > 0)) reader.fail("config.scale", "must be positive");
  options.input = input_of(reader, given.lstm);
  auto network = std::make_unique<DraftNetwork>(reader, *context.target, options);
  if (given.draft.tree == kDynamic) {
    const int blocks = given.dynamic.k * ((given.dynamic.levels - 1) / k);
    if (blocks * k >= engine::kMaxRows)
      throw base::usage_error(
          fmt::format(
              "falcon: choices={} and levels={} need {} blocks of {} rows, a forward has {}",
              given.dynamic.k, given.dynamic.levels, blocks, k, engine::kMaxRows),
          "lower choices or levels");
    return make_speculative_method(std::make_unique<DynamicFalconDrafter>(
        std::move(network), k, given.right_aligned, given.dynamic, context.row_cost));
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
  return make_speculative_method(
      std::make_unique<FalconDrafter>(std::move(network), k, given.right_aligned, std::move(tree),
                                      given.draft.rule, context.target->config().vocab_size));
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
          .add("k", &Shape::k, {0, kMostSlots}, "features a forward; 0 = as trained")
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
  info.build = parameters.bound(build_falcon);
  info.files = parameters.bound([](const Shape& options, const MethodBuildContext& context) {
    return adapter_file("falcon", options.adapter, context);
  });
  return info;
}

}  // namespace evalrun::methods
