// SuffixDecoding (Oliaro et al. 2024, "SuffixDecoding: Extreme Speculative Decoding for Emerging AI
// Applications", arXiv 2411.04975, NeurIPS 2025; github.com/snowflakedb/ArcticInference). The last
// tokens are looked up in what was said in this conversation, and in earlier answers. A token that
// may follow is as likely as it followed there. Drafts take the likeliest nodes one by one, and the
// longer the match, the more of them: alpha for each matched token. Of all lengths of the match,
// and of the two texts, the draft counts whose probabilities add up to most.
//
// As published the second text has all earlier answers of a server: state=shared. state=warm has
// those of one slot, and the default, cold, has the conversation alone.
//
// Differs from paper and released program:
// - Suffix automata (methods/lookup/suffix_automaton.h) instead of suffix trees. They have the same
//   phrases and counts. A step costs at most about `depth` of them, however long the texts are.
// - Earlier answers are dropped by halves of `capacity` tokens instead of one by one, and each half
//   counts by itself. Tokens of an answer's last step are not kept: a drafter does not see them. An
//   answer is found in once its slot begins the next prompt; there it is while it grows.
// - A phrase that ends the text has not been followed by anything there: that occurrence is not
//   counted where the match itself is gone on from, so that what followed once is certain.
// - A match of one length stands for all that have the same occurrences: the one that leaves room
//   for the largest draft below `depth`.
// - Of more than 32 different tokens after a phrase the 32 seen last are looked at.
// - Drafts end before a stop token.
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/lookup/carried_state.h"
#include "methods/lookup/carried_text.h"
#include "methods/lookup/stop_ids.h"
#include "methods/lookup/suffix_automaton.h"

namespace evalrun::methods {
namespace {

struct SuffixShape {
  bool adaptive = false;
  double alpha = 1;
  int capacity = 65536, depth = 64;
  double min_prob = 0.1;
  int nodes = 64;
  bool tree = true;
  CarriedState state = CarriedState::kCold;

  int nodes_after(int matched) const {
    return std::min(nodes, static_cast<int>(std::floor(alpha * matched + 1e-6)));
  }
};

constexpr int kFollowers = 32;  // of a phrase, looked at

class SuffixDrafter final : public Drafter {
 public:
  SuffixDrafter(const SuffixShape& shape, const EarlierAnswers& earlier)
      : shape_(shape), earlier_(earlier), text_(shape.depth) {
    for (Draft* draft : {&best_, &tried_}) draft->nodes.reserve(static_cast<size_t>(shape.nodes));
    queue_.reserve(static_cast<size_t>((shape.nodes + 1) * kFollowers));
  }

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<SuffixDrafter>(shape_, earlier_.another());
  }

  void start(const GenerationContext& context) override {
    stop_ids_ = context.stop_ids;
    earlier_.start(context.prompt, context.max_new);
    text_.clear();
    text_.reserve(context.prompt.size() + static_cast<size_t>(std::max(context.max_new, 0)) + 1);
    match_ = {};
    best_.matched = 0;
    read_ = 0;
    read(context.prompt);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    read(sequence);
    earlier_.follow(sequence);
    best_.clear();
    try_matches(text_, match_, 1, max_depth);
    for (int i = 0; i < earlier_.parts(); ++i)
      try_matches(earlier_.part(i), earlier_.match(i), 0, max_depth);
    for (const Node& node : best_.nodes) tree.add(node.token, node.parent);
  }

  LargestStep largest_step() const override {
    return {.rows = 1 + shape_.nodes_after(shape_.depth - 1)};
  }
  void add_kept(KeptMemory& kept) const override {
    earlier_.add_kept(kept.grown);
    kept.grown.per_token += SuffixAutomaton::most_bytes(1);
  }
  // The longer the match, the likelier the text goes on as it did there.
  int draft_class(int) const override { return std::min(best_.matched, kDraftClasses - 1); }
  double expected(int matched, int depth) const override {
    return depth > 1 ? 0.7 : matched < 2 ? 0.2 : matched < 5 ? 0.4 : 0.6;
  }

 private:
  struct Node {
    int32_t token;
    int32_t parent;  // of the draft tree: 0 = the root
  };
  struct Draft {
    std::vector<Node> nodes;
    double score = 0;  // sum of the nodes' probabilities
    int matched = 0;   // tokens
    void clear() {
      nodes.clear();
      score = 0;
      matched = 0;
    }
  };
  struct Next {  // may become a node
    double prob;
    int order;
    int32_t token, state;
    int parent, level;
  };
  static bool is_behind(const Next& a, const Next& b) {
    return a.prob != b.prob ? a.prob < b.prob : a.order > b.order;
  }

  void read(std::span<const int32_t> sequence) {
    for (; read_ < sequence.size(); ++read_) {
      match_ = text_.follow(match_, sequence[read_], shape_.depth - 1);
      text_.add(sequence[read_]);
    }
  }

  // A draft for each set of occurrences, longest matches first. `ends`: of the occurrences, those
  // that nothing follows.
  void try_matches(const SuffixAutomaton& text, SuffixAutomaton::Match match, int ends,
                   int max_depth) {
    match = text.shortened(match, shape_.depth - 1);
    while (match.length > 0) {
      const SuffixAutomaton::Match shorter = text.next_shorter(match.state);
      const auto roomiest = static_cast<int>(std::ceil(shape_.depth / (1 + shape_.alpha)));
      const int length = std::clamp(roomiest, shorter.length + 1, match.length);
      const int nodes = shape_.nodes_after(length);
      // No node is more than certain, and shorter matches have no more nodes.
      if (nodes <= best_.score) return;
      tried_.clear();
      tried_.matched = match.length;
      expand(text, match.state, ends, nodes, std::min(max_depth, shape_.depth - length));
      if (tried_.score > best_.score) std::swap(tried_, best_);
      match = shorter;
    }
  }

  void expand(const SuffixAutomaton& text, int32_t state, int ends, int nodes, int levels) {
    if (levels < 1) return;
    queue_.clear();
    order_ = 0;
    push_followers(text, {1, 0, -1, state, 0, 0}, ends);
    while (!queue_.empty() && static_cast<int>(tried_.nodes.size()) < nodes) {
      std::pop_heap(queue_.begin(), queue_.end(), is_behind);
      Next next = queue_.back();
      queue_.pop_back();
      tried_.nodes.push_back({next.token, next.parent});
      tried_.score += next.prob;
      next.parent = static_cast<int>(tried_.nodes.size());  // its number in the draft tree
      if (next.level < levels) push_followers(text, next, 0);
    }
  }

  // What may follow `above`, whose number in the draft tree is above.parent.
  void push_followers(const SuffixAutomaton& text, const Next& above, int ends) {
    const int total = text.count(above.state) - ends;
    if (total <= 0) return;
    const size_t before = queue_.size();
    text.visit_longer(above.state, kFollowers, [&](int32_t token, int32_t state) {
      const double prob = above.prob * text.count(state) / total;
      if (prob < shape_.min_prob || is_stop(stop_ids_, token)) return;
      const Next next{prob, order_++, token, state, above.parent, above.level + 1};
      if (!shape_.tree && queue_.size() > before) {  // a path: the likeliest alone
        if (is_behind(queue_.back(), next)) queue_.back() = next;
        return;
      }
      queue_.push_back(next);
      if (shape_.tree) std::push_heap(queue_.begin(), queue_.end(), is_behind);
    });
  }

  const SuffixShape shape_;
  EarlierAnswers earlier_;
  SuffixAutomaton text_;          // of this conversation
  SuffixAutomaton::Match match_;  // of its end with what came before
  size_t read_ = 0;               // tokens of it that are in
  std::span<const int32_t> stop_ids_;
  // Of one draft.
  Draft best_, tried_;
  std::vector<Next> queue_;  // a heap; for a path one
  int order_ = 0;
};

}  // namespace

MethodInfo suffix_method() {
  MethodInfo info;
  info.name = "suffix";
  info.summary =
      "suffix automata of the conversation and of earlier answers draft what is likeliest";
  info.source = "SuffixDecoding, Oliaro et al. 2024, arXiv 2411.04975";
  info.needs = "nothing";
  info.notes = fmt::format(
      "As published one cache of earlier answers serves all requests: state=shared. The default "
      "has "
      "this conversation alone. The released program drafts with alpha=1, min_prob=0.1 and "
      "depth=64. Memory: at most {} bytes a token, of the conversation, and of `capacity` tokens "
      "of "
      "earlier answers in each slot (once for all with state=shared).",
      SuffixAutomaton::kBytesPerToken);
  using Shape = SuffixShape;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("alpha", &Shape::alpha, {0.1, 64},
               "draft tokens for each token of the match (max_spec_factor)")
          .add("capacity", &Shape::capacity, {256, 1 << 26},
               "most tokens of earlier answers kept, the newest half of them always (state=warm or "
               "shared)")
          .add("depth", &Shape::depth, {2, 256}, "longest match and draft together, in tokens")
          .add("min_prob", &Shape::min_prob, {0.001, 1},
               "least estimated probability of a drafted path (min_token_prob)")
          .add("nodes", &Shape::nodes, {1, engine::kMaxRows - 1},
               "largest draft, in tokens (what a row costs: evalrun cost)")
          .choice("shape", &Shape::tree, {{"tree", true}, {"path", false}},
                  "the likeliest nodes, or one path of the likeliest follower each time")
          .add(state_parameter<Shape>("answers"));
  info.params = parameters.infos();
  draft_by(info, parameters, [](const Shape& shape, const MethodBuildContext&) {
    const EarlierAnswers earlier(shape.state, shape.depth, shape.capacity, shape.depth - 1);
    return std::make_unique<SuffixDrafter>(shape, earlier);
  });
  return info;
}

}  // namespace evalrun::methods
