// LogitSpec (Liu et al. 2025, "LogitSpec: Accelerating Retrieval-based Speculative Decoding via
// Next Next Token Speculation", arXiv 2507.01449; github.com/smart-lty/LogitSpec). The logits that
// gave the newest token say something about the token behind it, too: what the target nearly took
// there often comes next. So the best k tokens of these logits are guesses for the next place. Each
// begins a branch, which goes on with what followed the end of the text and the guess where they
// stood before; and as in prompt lookup (methods/lookup/pld.cpp) one goes on from the text itself.
//
// A prompt's look-up finds something only behind words that stood there before; guesses are there
// in every step, and each makes the n-gram that is looked up longer.
//
// Written after the released program: later occurrences replace earlier ones, a branch has at most
// four tokens of the likeliest guesses, three of the next ones, else one, until the tree is full.
//
// Differs from it:
// - Branches with a common beginning share its rows; rows that this saves go to further guesses.
// - A guess that is a stop token is left out, and a branch ends before one.
// - In an answer's first step there are no guesses: the logits of a prefill are not the method's.
// - The latest occurrence counts although less than a whole draft follows it; the program keeps an
//   earlier one then.
// - Under sampling a draft token is taken where the target's own draw is the same.
#include <algorithm>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/lookup/ngram_index.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

struct LogitSpecShape {
  bool adaptive = false;
  int k = engine::kMostBest, length = 6, min_ngram = 1, ngram = 3, nodes = 64;
};

// Of a branch, the guess included, by the guess's place among the best tokens (0 = the likeliest).
int branch_length(size_t place) { return place <= 8 ? 4 : place <= 32 ? 3 : 1; }

class LogitSpecDrafter final : public Drafter {
 public:
  explicit LogitSpecDrafter(const LogitSpecShape& shape)
      : shape_(shape), index_(shape.min_ngram, shape.ngram, NgramIndex::Match::kRecent) {
    guesses_.reserve(static_cast<size_t>(shape.k));
    class_of_.reserve(static_cast<size_t>(shape.nodes));
  }

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<LogitSpecDrafter>(shape_);
  }

  void start(const GenerationContext& context) override {
    stop_ids_ = context.stop_ids;
    index_.start(static_cast<int>(context.prompt.size()) + context.max_new);
    guesses_.clear();
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    class_of_.assign(1, 0);
    if (const int from = index_.find(sequence); from >= 0)
      add(usable_draft(behind(sequence, from), std::min(shape_.length, max_depth), stop_ids_), 0,
          std::min(index_.matched(), kLookup), tree);
    for (size_t place = 0; place < guesses_.size() && tree.size() < shape_.nodes; ++place) {
      const int32_t guess = guesses_[place];
      if (guess == sequence.back() || is_stop(stop_ids_, guess)) continue;
      const int node = add({&guess, 1}, 0, place <= 2 ? kLikely : kLessLikely, tree);
      const int from = index_.find_with(sequence, guess);
      if (from < 0 || node < 0) continue;
      const int more = std::min(branch_length(place), max_depth) - 1;
      add(usable_draft(behind(sequence, from), more, stop_ids_), node, kBehindGuess, tree);
    }
  }

  TargetWants wants() const override { return {.best = shape_.k}; }
  // The row behind which the next root stands.
  void learn(std::span<const int32_t>, const TokenTree&, std::span<const int> path,
             TargetAnswers& answers) override {
    guesses_.clear();
    for (const engine::TokenLogit& best : answers.best(path.empty() ? 0 : path.back()))
      guesses_.push_back(best.token);
  }

  LargestStep largest_step() const override { return {.rows = shape_.nodes}; }
  void add_kept(KeptMemory& kept) const override {
    kept.grown.per_token +=
        NgramIndex::bytes_per_token(shape_.min_ngram, shape_.ngram, NgramIndex::Match::kRecent);
  }
  int draft_class(int node) const override { return class_of_[static_cast<size_t>(node)]; }
  double expected(int node_class, int depth) const override {
    if (depth > 1) return node_class == kBehindGuess ? 0.4 : 0.7;
    return node_class >= kLikely ? 0.2 : node_class < 2 ? 0.3 : 0.6;
  }

 private:
  // Classes: 1 to kLookup by the tokens that matched.
  static constexpr int kLookup = 3, kLikely = 4, kLessLikely = 5, kBehindGuess = 6;

  static std::span<const int32_t> behind(std::span<const int32_t> sequence, int from) {
    return sequence.subspan(static_cast<size_t>(from));
  }
  // As many of `tokens` as the tree has room for, below `node`; what stands there already is
  // shared. Returns the last of them, -1 when the tree is full before it.
  int add(std::span<const int32_t> tokens, int node, int node_class, TokenTree& tree) {
    for (const int32_t token : tokens) {
      if (const int there = tree.child(node, token); there >= 0) {
        node = there;
        continue;
      }
      if (tree.size() >= shape_.nodes) return -1;
      node = tree.add(token, node);
      class_of_.push_back(node_class);
    }
    return node;
  }

  const LogitSpecShape shape_;
  NgramIndex index_;
  std::span<const int32_t> stop_ids_;
  std::vector<int32_t> guesses_;  // the likeliest first
  std::vector<int> class_of_;     // [node]
};

void check_logitspec(const LogitSpecShape& shape) {
  if (shape.min_ngram > shape.ngram)
    throw base::usage_error(fmt::format("logitspec: min_ngram={} is larger than ngram={}",
                                        shape.min_ngram, shape.ngram),
                            "n-grams of ngram down to min_ngram tokens are looked up");
}

}  // namespace

MethodInfo logitspec_method() {
  MethodInfo info;
  info.name = "logitspec";
  info.summary = "the best tokens of the last logits as guesses, each extended by prompt lookup";
  info.source = "LogitSpec, Liu et al. 2025, arXiv 2507.01449";
  info.needs = "nothing";
  info.notes =
      "Defaults are the released program's: a tree of 64 rows, n-grams of up to three tokens, "
      "drafts of up to six.";
  using Shape = LogitSpecShape;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("k", &Shape::k, {1, engine::kMostBest}, "best tokens of the last logits, as guesses")
          .add("length", &Shape::length, {1, 64}, "longest draft behind the text itself, in tokens")
          .add("min_ngram", &Shape::min_ngram, {1, 16}, "shortest n-gram looked up")
          .add("ngram", &Shape::ngram, {1, 16}, "longest n-gram looked up, a guess included")
          .add("nodes", &Shape::nodes, {2, engine::kMaxRows},
               "rows of a step, the newest token included (what a row costs: evalrun cost)");
  info.params = parameters.infos();
  info.check = parameters.bound(check_logitspec);
  draft_by(info, parameters, [](const Shape& shape, const MethodBuildContext&) {
    return std::make_unique<LogitSpecDrafter>(shape);
  });
  return info;
}

}  // namespace evalrun::methods
