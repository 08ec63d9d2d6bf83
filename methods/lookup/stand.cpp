// STAND (Song et al. 2025, "Accelerated Test-Time Scaling with Model-Free Speculative Sampling",
// arXiv 2506.04708, EMNLP 2025): stochastic n-gram drafting, made for sampling. A table keeps, for
// the n-grams of the answer, not the token that followed but the likeliest tokens that the target
// gave after it, with their probabilities; the mean of them where an n-gram came again. A draft is
// drawn from these: below each node of a tree the children are draws without replacement
// (Gumbel-top-k, which is the same) from what the longest known n-gram there says, at the
// temperature and with the cuts of the run. The tree's shape follows what was accepted.
//
// A draft that is drawn from nearly the target's distribution passes a rejection test far oftener
// than a fixed one equals the target's draw: sum of min(p, q) against p of one token.
//
// No program was released. This was written after the paper's abstract and summaries of it, not
// after its full text: k, levels, ngram and nodes are ours. What is known to differ:
// - The tree is grown anew in every step from what was accepted in this answer
//   (methods/lookup/grown_tree.h), not fixed beforehand by data. tree=auto verifies as many of its
//   nodes as pay here.
// - The table begins each answer empty, and knows nothing of the prompt: a prefill computes no
//   logits. Samples of one question share no table.
// - Rows of tokens that were not accepted are not learnt.
// - Numbers are keyed by what they decide (base::KeyedChance) instead of noise that is computed
//   beforehand; with --sampler gumbel drafts are drawn by the target's own noise.
// - Greedy decoding drafts the likeliest tokens.
// - A stop token is drafted where it is drawn, as a draw cannot be passed over, and nothing below
//   it.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/lookup/grown_tree.h"
#include "methods/lookup/logit_grams.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

struct StandShape {
  DraftRule draft = DraftRule::kAuto;
  int k = 10, levels = 8, ngram = 4, nodes = 80;
  bool sized = false;  // tree=auto
};

// The children of one node, as they were ranked or drawn.
struct DrawnChildren {
  std::vector<int32_t> ids;     // candidates, ascending
  std::vector<double> q;        // of each; empty where no rejection asks
  std::vector<int32_t> tokens;  // in the order of ranks or draws
};

class StandDrafter final : public Drafter {
 public:
  StandDrafter(const StandShape& shape, int vocab, std::optional<RowPrice> price)
      : shape_(shape),
        vocab_(vocab),
        price_(std::move(price)),
        grown_({shape.levels, shape.k, shape.nodes}, price_),
        grams_(shape.ngram, shape.k) {
    const auto n = static_cast<size_t>(shape.nodes) + 1, k = static_cast<size_t>(shape.k);
    lists_.resize(n);
    for (DrawnChildren& list : lists_)
      list.ids.reserve(k), list.q.reserve(k), list.tokens.reserve(k);
    for (std::vector<int>* v : {&node_, &list_of_plan_, &list_of_node_, &rank_of_node_})
      v->reserve(n);
    sorted_.reserve(k), said_.reserve(k), best_.reserve(k), logits_.reserve(k), left_.reserve(k);
    context_.reserve(static_cast<size_t>(shape.ngram));
  }

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<StandDrafter>(shape_, vocab_, price_);
  }

  void start(const GenerationContext& context) override {
    rule_ = rule_in(shape_.draft, context.sampling);
    sampling_ = context.sampling;
    chance_ = context.chance;
    stop_ids_ = context.stop_ids;
    prompt_ = context.prompt.size();
    grams_.start(context.max_new);
    grown_.start();
    if (rejects()) dense_.assign(static_cast<size_t>(vocab_), 0.0);
    shown_ = -1;
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    hide();
    const RankTree& plan = grown_.grow();
    const auto n = static_cast<size_t>(plan.size()) + 1;
    node_.assign(n, -1), list_of_plan_.assign(n, -1);
    node_[0] = 0;
    list_of_node_.assign(1, -1), rank_of_node_.assign(1, 0);
    lists_used_ = 0;
    for (size_t i = 0; i + 1 < n; ++i) {
      const auto above = static_cast<size_t>(plan.parent[i]);
      if (node_[above] < 0 || plan.level[i] > max_depth) continue;
      int& list = list_of_plan_[above];
      if (list < 0) list = make_list(sequence, tree, node_[above]);
      const DrawnChildren& children = lists_[static_cast<size_t>(list)];
      const auto rank = static_cast<size_t>(plan.rank[i]);
      if (rank >= children.tokens.size()) continue;
      const int32_t token = children.tokens[rank];
      if (!rejects() && is_stop(stop_ids_, token)) continue;
      node_[i + 1] = tree.add(token, node_[above]);
      list_of_node_.push_back(list), rank_of_node_.push_back(plan.rank[i]);
    }
  }

  TargetWants wants() const override { return {.best = shape_.k, .log_sums = true}; }
  void learn(std::span<const int32_t> sequence, const TokenTree& tree, std::span<const int> path,
             TargetAnswers& answers) override {
    grown_.note(tree, path);
    learn_row(sequence, tree, 0, answers);
    for (const int node : path) learn_row(sequence, tree, node, answers);
  }

  LargestStep largest_step() const override { return {.rows = 1 + shape_.nodes}; }
  void add_kept(KeptMemory& kept) const override {
    kept.grown.per_slot += 1.0 * sizeof(double) * vocab_ +
                           (shape_.nodes + 1.0) * (shape_.k * 16 + sizeof(DrawnChildren));
    kept.grown.per_token += LogitGrams::bytes_per_add(shape_.ngram, shape_.k);
  }
  // One array for all nodes: the children of one are asked about together.
  std::span<const double> q_of(int node) const override {
    if (!rejects()) return {};
    const int list = list_of_node_[static_cast<size_t>(node)];
    if (list != shown_) show(list);
    return dense_;
  }
  DraftDraw draw_of(int node) const override {
    const auto at = static_cast<size_t>(node);
    return {list_of_node_[at], rank_of_node_[at]};
  }

 private:
  bool rejects() const { return rule_ == DraftRule::kRejection; }

  // The last tokens before and at a node.
  std::span<const int32_t> context_of(std::span<const int32_t> sequence, const TokenTree& tree,
                                      int node) {
    const auto most = static_cast<size_t>(shape_.ngram);
    context_.clear();
    for (; node > 0 && context_.size() < most; node = tree.parent[static_cast<size_t>(node)])
      context_.push_back(tree.token[static_cast<size_t>(node)]);
    for (size_t i = sequence.size(); i > 0 && context_.size() < most; --i)
      context_.push_back(sequence[i - 1]);
    std::reverse(context_.begin(), context_.end());
    return context_;
  }

  int make_list(std::span<const int32_t> sequence, const TokenTree& tree, int node) {
    const int list = lists_used_++;
    DrawnChildren& children = lists_[static_cast<size_t>(list)];
    children.ids.clear(), children.q.clear(), children.tokens.clear();
    if (node > 0 && is_stop(stop_ids_, tree.token[static_cast<size_t>(node)])) return list;
    const auto said = grams_.find(context_of(sequence, tree, node));
    if (said.empty()) return list;
    if (rule_ == DraftRule::kArgmax) {
      for (const LogitGrams::Candidate& c : said) children.tokens.push_back(c.token);
      return list;
    }
    sorted_.assign(said.begin(), said.end());
    std::sort(sorted_.begin(), sorted_.end(),
              [](const auto& a, const auto& b) { return a.token < b.token; });
    logits_.clear();
    for (const LogitGrams::Candidate& c : sorted_) {
      children.ids.push_back(c.token);
      logits_.push_back(std::log(c.probability));
    }
    const int level = tree.level[static_cast<size_t>(node)];
    const int64_t position = static_cast<int64_t>(sequence.size() - prompt_);
    if (rule_ == DraftRule::kGumbel)
      draw_children_by_noise(chance_.target(position + level), children);
    else
      draw_children(position, list, children);
    return list;
  }

  void draw_children_by_noise(double uniform, DrawnChildren& children) {
    engine::draw_by_noise(logits_, sampling_, uniform, shape_.k, children.ids, outputs_, scratch_);
    for (const int32_t output : outputs_)
      children.tokens.push_back(children.ids[static_cast<size_t>(output)]);
  }

  void draw_children(int64_t position, int list, DrawnChildren& children) {
    engine::warp(logits_, sampling_, left_, scratch_);
    if (rejects()) children.q.assign(left_.begin(), left_.end());
    for (size_t i = 0; i < children.ids.size() && engine::sum(left_) > 0; ++i) {
      const auto output = static_cast<size_t>(
          engine::draw(left_, chance_.draft(position, list, static_cast<int>(i))));
      left_[output] = 0;
      children.tokens.push_back(children.ids[output]);
    }
  }

  void learn_row(std::span<const int32_t> sequence, const TokenTree& tree, int node,
                 TargetAnswers& answers) {
    best_.clear();
    for (const engine::TokenLogit& best : answers.best(node)) best_.push_back(best);
    const double log_sum = answers.log_sum(node);
    said_.clear();
    for (const engine::TokenLogit& best : best_)
      said_.push_back({best.token, static_cast<float>(std::exp(best.logit - log_sum))});
    grams_.add(context_of(sequence, tree, node), said_);
  }

  // The distribution of a list over the whole vocabulary; what stood there before is taken out.
  void show(int list) const {
    hide();
    const DrawnChildren& children = lists_[static_cast<size_t>(list)];
    for (size_t i = 0; i < children.ids.size(); ++i)
      dense_[static_cast<size_t>(children.ids[i])] = children.q[i];
    shown_ = list;
  }
  void hide() const {
    if (shown_ < 0) return;
    for (const int32_t id : lists_[static_cast<size_t>(shown_)].ids)
      dense_[static_cast<size_t>(id)] = 0;
    shown_ = -1;
  }

  const StandShape shape_;
  const int vocab_;
  const std::optional<RowPrice> price_;
  GrownTree grown_;
  LogitGrams grams_;
  DraftRule rule_ = DraftRule::kArgmax;  // in this run, never kAuto
  engine::SamplingParams sampling_;
  base::KeyedChance chance_;
  std::span<const int32_t> stop_ids_;
  size_t prompt_ = 0;
  // Of one draft.
  std::vector<DrawnChildren> lists_;
  int lists_used_ = 0;
  std::vector<int> node_, list_of_plan_;          // [plan node], the root's first
  std::vector<int> list_of_node_, rank_of_node_;  // [node]
  std::vector<LogitGrams::Candidate> sorted_, said_;
  std::vector<engine::TokenLogit> best_;
  std::vector<float> logits_;
  std::vector<double> left_;  // of a distribution while tokens are drawn from it
  std::vector<int32_t> context_, outputs_;
  engine::WarpScratch scratch_;
  mutable std::vector<double> dense_;  // [vocab], of list shown_
  mutable int shown_ = -1;
};

}  // namespace

MethodInfo stand_method() {
  MethodInfo info;
  info.name = "stand";
  info.summary =
      "n-grams that keep the target's probabilities; drafts drawn from them, on a tree that grows";
  info.source = "STAND, Song et al. 2025, arXiv 2506.04708";
  info.needs = "nothing";
  info.notes =
      "Made for sampling: greedy rows of it say little. No program was released; the sizes (k, "
      "levels, "
      "ngram, nodes) are ours. Each answer has a table of its own, also where there are many "
      "samples "
      "of one question.";
  using Shape = StandShape;
  const auto parameters =
      Parameters<Shape>{}
          .choice("draft", &Shape::draft,
                  {{"drawn", DraftRule::kAuto},
                   {"best", DraftRule::kArgmax},
                   {"matched", DraftRule::kMatch}},
                  "children when sampling: drawn from the table's distribution without replacement "
                  "(multi-candidate rejection; with --sampler gumbel by the target's noise), its "
                  "best tokens, or drawn and kept where the target's own draw is one of them "
                  "(matched)")
          .add("k", &Shape::k, {1, engine::kMostBest}, "candidates kept for each n-gram")
          .add("levels", &Shape::levels, {1, 64}, "deepest draft, in tokens")
          .add("ngram", &Shape::ngram, {1, LogitGrams::kLongest}, "longest n-gram, in tokens")
          .add("nodes", &Shape::nodes, {1, engine::kMaxRows - 1}, "largest tree, without its root")
          .choice(
              "tree", &Shape::sized, {{"data", false}, {"auto", true}},
              "as many nodes as there may be, or as pay at this machine's T(n)/T(1); those that "
              "were accepted most in this answer")
          .with(&ParamInfo::steps_at, {"auto", StepReproducibility::kFollowMachine});
  info.params = parameters.infos();
  info.sampled = parameters.bound([](const Shape& shape, const engine::SamplingParams& sampling) {
    return sampled_answers(shape.draft, sampling);
  });
  info.alone = "its tree follows what was accepted of its own drafts";
  info.build = parameters.bound([](const Shape& shape, const MethodBuildContext& context) {
    return finish_method(
        std::make_unique<StandDrafter>(
            shape, context.target->config().vocab_size,
            shape.sized ? std::optional(RowPrice(context.row_cost)) : std::nullopt),
        false, context);
  });
  return info;
}

}  // namespace evalrun::methods
