// llama.cpp's ngram-mod (github.com/ggml-org/llama.cpp/pull/19164, `--spec-type ngram-mod`): a
// table from the hash of n_match tokens to the one that followed them last. The draft goes from
// entry to entry, each found by the n_match tokens before it, drafted ones included. Long grams and
// long drafts: text that repeats at length, or nothing.
//
// There the table lives on and serves all slots: state=shared. The default begins each conversation
// with an empty one.
//
// As there: grams of the answer go in once its text is more than `lot` tokens beyond the last of
// them; the table is emptied when it is a quarter full before a prompt, and when three drafts
// running were accepted by less than half.
//
// Differs:
// - It is emptied before the prompt goes in, where it would be a quarter full with it. There it is
//   emptied behind, and the prompt is lost.
// - How much was accepted is read from the text: a draft that was cut short before the text left it
//   counts neither way.
// - n_min is about what the table holds. Where fewer tokens are left to write the draft is cut, not
//   dropped. It ends before a stop token.
#include <algorithm>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/lookup/carried_state.h"
#include "methods/lookup/next_token_table.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

struct NgramModShape {
  bool adaptive = false;
  int entries = 4 * 1024 * 1024;
  int lot = 32, n_match = 24, n_max = 64, n_min = 48;
  CarriedState state = CarriedState::kCold;
};

constexpr size_t kFullest = 4;     // 1/4 of the entries
constexpr int kMostLowInARow = 3;  // drafts

class NgramModDrafter final : public Drafter {
 public:
  NgramModDrafter(const NgramModShape& shape, std::shared_ptr<NextTokenTable> table)
      : shape_(shape), n_(static_cast<size_t>(shape.n_match)), table_(std::move(table)) {
    window_.reserve(n_ + static_cast<size_t>(shape.n_max));
    draft_.reserve(static_cast<size_t>(shape.n_max));
  }

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<NgramModDrafter>(
        shape_, store_of_slot(shape_.state, table_,
                              [&] { return std::make_shared<NextTokenTable>(table_->entries()); }));
  }

  void start(const GenerationContext& context) override {
    stop_ids_ = context.stop_ids;
    const std::span<const int32_t> prompt = context.prompt;
    if (shape_.state == CarriedState::kCold ||
        kFullest * (table_->used() + prompt.size()) > table_->entries())
      table_->clear();
    table_->reserve(prompt.size() + static_cast<size_t>(std::max(context.max_new, 0)));
    learnt_ = 0;
    low_ = 0;
    draft_.clear();
    learn(prompt);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    judge(sequence);
    draft_.clear();
    const size_t before_root = sequence.size() - 1;
    if (before_root < n_) return;
    if (learnt_ + static_cast<size_t>(shape_.lot) < before_root) learn(sequence.first(before_root));
    window_.assign(sequence.end() - static_cast<std::ptrdiff_t>(n_), sequence.end());
    for (int i = 0; i < shape_.n_max; ++i) {
      const int32_t token = table_->find(std::span<const int32_t>(window_).last(n_));
      if (token < 0) break;
      window_.push_back(token);
    }
    if (window_.size() < n_ + static_cast<size_t>(shape_.n_min)) return;
    const auto path =
        usable_draft(std::span<const int32_t>(window_).subspan(n_), max_depth, stop_ids_);
    draft_.assign(path.begin(), path.end());
    drafted_at_ = sequence.size();
    tree.add_path(draft_, true);
  }

  LargestStep largest_step() const override { return {.rows = 1 + shape_.n_max}; }
  void add_kept(KeptMemory& kept) const override {
    const double bytes = NextTokenTable::most_bytes(table_->entries());
    (shape_.state == CarriedState::kShared ? kept.grown.shared : kept.grown.per_slot) += bytes;
  }
  // All matches are equally long.
  double expected(int, int depth) const override { return depth > 1 ? 0.8 : 0.5; }

 private:
  void learn(std::span<const int32_t> text) {
    if (text.size() < n_) return;
    for (; learnt_ + n_ < text.size(); ++learnt_)
      table_->add(text.subspan(learnt_, n_), text[learnt_ + n_]);
  }

  // The draft before against what the text became.
  void judge(std::span<const int32_t> sequence) {
    if (draft_.empty()) return;
    const auto came = sequence.subspan(drafted_at_);
    size_t n = 0;
    while (n < draft_.size() && n < came.size() && draft_[n] == came[n]) ++n;
    if (n == came.size() && n < draft_.size()) return;  // the text has not left it
    low_ = 2 * n < draft_.size() ? low_ + 1 : 0;
    if (low_ < kMostLowInARow) return;
    table_->clear();
    low_ = 0;
  }

  const NgramModShape shape_;
  const size_t n_;
  std::shared_ptr<NextTokenTable> table_;
  std::span<const int32_t> stop_ids_;
  size_t learnt_ = 0;  // grams of the text that begin before this place are in
  int low_ = 0;        // drafts running that were accepted by less than half
  std::vector<int32_t> window_;
  std::vector<int32_t> draft_;  // the last one, where there was any
  size_t drafted_at_ = 0;       // the place of its first token
};

void check_ngram_mod(const NgramModShape& shape) {
  if (shape.n_min > shape.n_max)
    throw base::usage_error(
        fmt::format("ngram_mod: n_min={} is larger than n_max={}", shape.n_min, shape.n_max),
        "drafts have n_min to n_max tokens");
}

}  // namespace

MethodInfo ngram_mod_method() {
  MethodInfo info;
  info.name = "ngram_mod";
  info.summary = "hashes of the last 24 tokens lead to the next: long drafts of text that repeats";
  info.source = "llama.cpp, --spec-type ngram-mod (pull request 19164)";
  info.needs = "nothing";
  info.notes =
      "Names and defaults are llama.cpp's (--spec-ngram-mod-n-match, -n-min, -n-max). Its server "
      "has "
      "one table for all slots, which lives on: state=shared. Memory: 4 bytes an entry in each "
      "slot "
      "(once for all with state=shared), and 4 for each that is used.";
  using Shape = NgramModShape;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("entries", &Shape::entries, {256, 1 << 28}, "of the table")
          .add("lot", &Shape::lot, {1, 4096},
               "the answer's grams go in when the last one that is in begins more than this many "
               "tokens before the end (llama.cpp: always 32)")
          .add("n_match", &Shape::n_match, {1, 256}, "tokens that are looked up (n)")
          .add("n_max", &Shape::n_max, {1, engine::kMaxRows - 1},
               "longest draft, in tokens (what a row costs: evalrun cost)")
          .add("n_min", &Shape::n_min, {0, engine::kMaxRows - 1},
               "nothing is drafted where the table has fewer tokens")
          .add(state_parameter<Shape>("prompts and answers"));
  info.params = parameters.infos();
  info.check = parameters.bound(check_ngram_mod);
  draft_by(info, parameters, [](const Shape& shape, const MethodBuildContext&) {
    return std::make_unique<NgramModDrafter>(
        shape, std::make_shared<NextTokenTable>(static_cast<size_t>(shape.entries)));
  });
  return info;
}

}  // namespace evalrun::methods
