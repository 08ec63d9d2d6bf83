// Lookahead decoding (Fu et al. 2024, arXiv 2402.02057, section 3; github.com/hao-ai-lab/
// LookaheadDecoding): a window of W columns and N-1 rows holds a Jacobi trajectory. Each step the
// target continues the newest row greedily; the diagonals that close are N-grams of what the model
// tends to say, and go into a pool. Grams after the newest token are verified in the same forward.
//
// Window row r, column c stands at position root + r + c and sees row 0 up to column c, then its
// own column (the root is row 0, column 0): a forest, so that no mask is needed. The window moves
// by one column a step however many tokens were accepted, as released.
//
// Differs from the released program: the window starts after the first token instead of inside the
// prefill, which is the same calls for every method; grams are verified as soon as the pool has
// any, which is earlier only with pool_from_prompt; grams with a common prefix share its rows
// (trie=false verifies them separately, with the same tokens). Near the end of the context or of
// the answer, where the window does not fit, it stands still.
#include <algorithm>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/lookup/gram_pool.h"
#include "methods/lookup/random_tokens.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

struct LookaheadShape {
  bool adaptive = false;
  int window = 7, ngram = 5, guesses = 7;
  bool pool_from_prompt = false, full_match_bonus = false, trie = true;
  TokenSource init = TokenSource::kPrompt;
};

class LookaheadDrafter final : public Drafter {
 public:
  LookaheadDrafter(const LookaheadShape& shape, int vocab)
      : shape_(shape),
        vocab_(vocab),
        random_(shape.init, vocab),
        pool_(vocab, shape.ngram - 1, shape.guesses),
        gram_(static_cast<size_t>(shape.ngram) - 1) {
    rows_.resize(static_cast<size_t>(shape_.ngram) - 1);
    for (std::vector<int32_t>& row : rows_) row.reserve(static_cast<size_t>(columns()));
    next_.reserve(static_cast<size_t>(columns()));
  }

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<LookaheadDrafter>(shape_, vocab_);
  }

  void start(const GenerationContext& context) override {
    greedy_ = context.sampling.greedy();
    stop_ids_ = context.stop_ids;
    pool_.clear();
    harvested_ = 0;
    random_.start(context.prompt);
    // Row 0 without the root. Each of the N-2 warm-up steps closes a row and drops a column.
    for (std::vector<int32_t>& row : rows_) row.clear();
    for (int i = 0; i < columns() - 1; ++i) rows_[0].push_back(random_.next());
    filled_ = 1;
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    root_ = sequence.back();
    if (shape_.pool_from_prompt) harvest(sequence);
    for (int i = 0; i < pool_.count(root_); ++i)
      tree.add_path(usable_draft(pool_.gram(root_, i), max_depth, stop_ids_), shape_.trie);
  }

  double expected(int, int depth) const override { return depth == 1 ? 0.2 : 0.7; }

  void side_rows(int max_rows, SideRows& side) override {
    int needed = 0;
    for (int r = 0; r < filled_; ++r) needed += static_cast<int>(row(r).size());
    if (needed > max_rows) return;
    int above = -1;  // first row of the window row above; row 0 stores no root
    for (int r = 0; r < filled_; ++r) {
      const bool newest = r + 1 == filled_;
      const int first = side.size();
      for (size_t c = 0; c < row(r).size(); ++c) {
        // Row 0 is a chain below the root; below it column c hangs on column c of the row above.
        // Column 0 of row 0 is the root, so that column c of row 0 is its entry c - 1.
        int parent = -1;
        if (r == 0)
          parent = c == 0 ? -1 : side.size() - 1;
        else if (r == 1)
          parent = c == 0 ? -1 : above + static_cast<int>(c) - 1;
        else
          parent = above + static_cast<int>(c);
        side.add(row(r)[c], parent, newest);
      }
      above = first;
    }
    first_read_ = above;
  }

  void side_tops(int32_t root_top, std::span<const int32_t> tops) override {
    // What comes after the newest row, column by column.
    next_.clear();
    if (filled_ == 1) next_.push_back(root_top);
    for (size_t i = static_cast<size_t>(first_read_); i < tops.size(); ++i)
      next_.push_back(tops[i]);
    if (filled_ == static_cast<int>(rows_.size())) fill_pool();
    if (!greedy_)  // a window that has closed with a stop token would repeat it for ever
      for (int32_t& token : next_)
        if (is_stop(stop_ids_, token)) token = random_.next();
    if (filled_ < static_cast<int>(rows_.size())) {  // warm-up: another row, one column less
      for (int r = 0; r < filled_; ++r) drop_first(row(r));
      row(filled_).assign(next_.begin() + 1, next_.end());
      ++filled_;
      return;
    }
    for (int r = 0; r + 1 < filled_; ++r) row(r).swap(row(r + 1));
    row(filled_ - 1) = next_;
    drop_first(row(0));
  }

  // With f rows the window holds f (W + N - 1 - f) tokens, the root among them.
  LargestStep largest_step() const override {
    int window = 0;
    for (int f = 1; f < shape_.ngram; ++f) window = std::max(window, f * (columns() + 1 - f));
    return {.rows = window + shape_.guesses * (shape_.ngram - 1)};
  }
  void add_kept(KeptMemory& kept) const override {
    kept.grown.per_slot += GramPool::most_bytes(vocab_, shape_.ngram - 1, shape_.guesses);
  }
  int max_accepted() const override {
    return shape_.full_match_bonus ? engine::kMaxRows : shape_.ngram - 2;
  }

 private:
  // Of the first step: N-2 of them are dropped until W are left, the root's among them.
  int columns() const { return shape_.window + shape_.ngram - 2; }
  std::vector<int32_t>& row(int r) { return rows_[static_cast<size_t>(r)]; }
  static void drop_first(std::vector<int32_t>& row) {
    if (!row.empty()) row.erase(row.begin());
  }

  // Column by column: the token of row 0 is the key, the rows below and the new one the gram.
  void fill_pool() {
    for (size_t c = 0; c < next_.size(); ++c) {
      const int32_t key = c == 0 ? root_ : row(0)[c - 1];
      for (size_t r = 1; r < rows_.size(); ++r) gram_[r - 1] = rows_[r][c];
      gram_.back() = next_[c];
      pool_.insert(key, gram_);
    }
  }

  // Grams of the text itself, each once.
  void harvest(std::span<const int32_t> sequence) {
    const auto n = static_cast<size_t>(shape_.ngram);
    for (; harvested_ + n <= sequence.size(); ++harvested_)
      pool_.insert(sequence[harvested_], sequence.subspan(harvested_ + 1, n - 1));
  }

  LookaheadShape shape_;
  int vocab_;
  RandomTokens random_;
  GramPool pool_;
  bool greedy_ = true;
  std::span<const int32_t> stop_ids_;
  int32_t root_ = -1;
  size_t harvested_ = 0;                    // grams of the text before this place are in
  std::vector<std::vector<int32_t>> rows_;  // [N-1], row 0 without the root
  int filled_ = 1;                          // rows there are; N-1 after the warm-up
  int first_read_ = 0;                      // side row of the newest row's first entry
  std::vector<int32_t> next_, gram_;
};

void check_lookahead(const LookaheadShape& shape) {
  const int rows = (shape.window + shape.ngram + shape.guesses) * (shape.ngram - 1);
  if (shape.ngram == 2 && !shape.full_match_bonus)
    throw base::usage_error(
        "lookahead: with ngram=2 and full_match_bonus=false no draft can save a step",
        "a wholly matched gram gives ngram-1 tokens then: take full_match_bonus=true or ngram=3");
  if (rows > engine::kMaxRows)
    throw base::usage_error(
        fmt::format("lookahead: window={}, ngram={}, guesses={} need {} rows a step, at most {} "
                    "are possible",
                    shape.window, shape.ngram, shape.guesses, rows, engine::kMaxRows),
        "a step has about (window + guesses) * (ngram - 1) rows");
}

}  // namespace

MethodInfo lookahead_method() {
  MethodInfo info;
  info.name = "lookahead";
  info.summary =
      "a Jacobi window beside the text fills a pool of n-grams, verified in the same pass";
  info.source = "Fu et al. 2024, arXiv 2402.02057, section 3";
  info.needs = "nothing";
  info.notes =
      "\"Lookahead\" and \"LADE\" in papers are this method, with one doubt: for the \"Lookahead\" "
      "of "
      "its Table 1 Falcon cites Zhao et al. 2024 (`pia`) and describes Jacobi decoding (this one). "
      "The released program uses W=15, N=5, "
      "G=15 for 7B models (120 rows a step), W=10 for 13B, W=7 for 33B; Spec-Bench uses W=7, N=5, "
      "G=7, the default here; Self-Draft states \"the configuration of their paper\". "
      "full_match_bonus=false is as released: a wholly matched gram gives N-1 tokens.";
  using Shape = LookaheadShape;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("full_match_bonus", &Shape::full_match_bonus,
               "keep the target's own token after a wholly matched gram")
          .add("guesses", &Shape::guesses, {1, 128}, "grams kept and verified per key (G)")
          .choice("init", &Shape::init, token_sources(),
                  "where the window's first tokens are drawn")
          .add("ngram", &Shape::ngram, {2, 32}, "length of an n-gram, its key included (N)")
          .add("pool_from_prompt", &Shape::pool_from_prompt,
               "n-grams of the prompt and the answer go into the pool, too")
          .add("trie", &Shape::trie, "grams with a common prefix share its rows")
          .add("window", &Shape::window, {1, 256}, "columns of the window (W)");
  info.params = parameters.infos();
  info.check = parameters.bound(check_lookahead);
  draft_by(info, parameters, [](const Shape& shape, const MethodBuildContext& context) {
    return std::make_unique<LookaheadDrafter>(shape, context.target->config().vocab_size);
  });
  return info;
}

}  // namespace evalrun::methods
