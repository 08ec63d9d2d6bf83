// SAM-Decoding (Hu et al. 2024, "SAM Decoding: Speculative Decoding via Suffix Automaton", arXiv
// 2411.10666; github.com/hyx1999/SAM-Decoding). The longest end of the text that stood before, in
// the text itself or in a corpus, of any length: what followed its first occurrence is the draft. A
// suffix automaton follows the text at a constant cost a token, amortised. Texts other than the
// conversation count only with matches that are `bias` tokens longer.
//
// This is the program's SAM-only form. The paper's best rows draft with Token Recycling or EAGLE-2
// where the match has fewer than five tokens: min_match=5 leaves those steps to another drafter.
//
// Differs from the released program:
// - Where the text ends a draft is shorter; there it is filled up with zeros.
// - Corpora are those of `evalrun corpus build --kind suffixes`. The automaton is made when the
//   method is built, and its texts are kept apart.
// - Earlier answers (state=warm or shared) are not in it: they are looked up as a corpus is.
// - Drafts end before a stop token.
#include <algorithm>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/corpus/corpus_files.h"
#include "methods/lookup/carried_state.h"
#include "methods/lookup/carried_text.h"
#include "methods/lookup/stop_ids.h"
#include "methods/lookup/suffix_automaton.h"

namespace evalrun::methods {
namespace {

struct SamShape {
  bool adaptive = false;
  int bias = 5, capacity = 65536;
  std::string corpus = "none";
  int k = 15, min_match = 1;
  CarriedState state = CarriedState::kCold;
};

constexpr int kAnyLength = 1 << 30;  // of a match

class SamDrafter final : public Drafter {
 public:
  // `corpus` may be null.
  SamDrafter(const SamShape& shape, const EarlierAnswers& earlier,
             std::shared_ptr<const SuffixAutomaton> corpus)
      : shape_(shape), earlier_(earlier), corpus_(std::move(corpus)) {
    path_.reserve(static_cast<size_t>(shape.k));
  }

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<SamDrafter>(shape_, earlier_.another(), corpus_);
  }

  void start(const GenerationContext& context) override {
    stop_ids_ = context.stop_ids;
    earlier_.start(context.prompt, context.max_new);
    text_.clear();
    text_.reserve(context.prompt.size() + static_cast<size_t>(std::max(context.max_new, 0)) + 1);
    match_ = corpus_match_ = {};
    matched_ = 0;
    read_ = 0;
    read(context.prompt);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    read(sequence);
    earlier_.follow(sequence);
    const SuffixAutomaton* text = &text_;
    SuffixAutomaton::Match match = match_;
    int bias = 0;
    const auto prefer_longer = [&](const SuffixAutomaton& other, SuffixAutomaton::Match found) {
      if (found.length - shape_.bias <= match.length - bias) return;
      text = &other;
      match = found;
      bias = shape_.bias;
    };
    for (int i = 0; i < earlier_.parts(); ++i) prefer_longer(earlier_.part(i), earlier_.match(i));
    if (corpus_ != nullptr) prefer_longer(*corpus_, corpus_match_);
    matched_ = 0;
    if (match.length - bias < shape_.min_match) return;
    matched_ = match.length;
    take(*text, match, max_depth, tree);
  }

  LargestStep largest_step() const override { return {.rows = 1 + shape_.k}; }
  size_t extra_parameter_bytes() const override {
    return corpus_ == nullptr ? 0 : corpus_->bytes();
  }
  void add_kept(KeptMemory& kept) const override {
    kept.on_host += static_cast<double>(extra_parameter_bytes());
    earlier_.add_kept(kept.grown);
    kept.grown.per_token += SuffixAutomaton::most_bytes(1);
  }
  // The longer the match, the likelier the text goes on as it did there.
  int draft_class(int) const override { return std::min(matched_, kDraftClasses - 1); }
  double expected(int matched, int depth) const override {
    return depth > 1 ? 0.7 : matched < 2 ? 0.2 : matched < 5 ? 0.4 : 0.6;
  }

 private:
  void read(std::span<const int32_t> sequence) {
    for (; read_ < sequence.size(); ++read_) {
      const int32_t token = sequence[read_];
      match_ = text_.follow(match_, token, kAnyLength);
      text_.add(token);
      if (corpus_ != nullptr) corpus_match_ = corpus_->follow(corpus_match_, token, kAnyLength);
    }
  }

  void take(const SuffixAutomaton& text, SuffixAutomaton::Match match, int max_depth,
            TokenTree& tree) {
    const int32_t state = text.shortened(match, match.length).state;
    path_.clear();
    for (size_t place = text.first_end(state); static_cast<int>(path_.size()) < shape_.k; ++place) {
      const int32_t token = text.token_at(place);
      if (token < 0) break;
      path_.push_back(token);
    }
    tree.add_path(usable_draft(path_, max_depth, stop_ids_), true);
  }

  const SamShape shape_;
  EarlierAnswers earlier_;
  const std::shared_ptr<const SuffixAutomaton> corpus_;
  SuffixAutomaton text_;                         // of this conversation
  SuffixAutomaton::Match match_, corpus_match_;  // of its end
  size_t read_ = 0;                              // tokens of it that are in
  int matched_ = 0;                              // that the last draft was found by
  std::span<const int32_t> stop_ids_;
  std::vector<int32_t> path_;
};

std::shared_ptr<const SuffixCorpus> sam_corpus(const SamShape& shape,
                                               const MethodBuildContext& context) {
  return shape.corpus == "none" ? nullptr
                                : open_suffix_corpus("sam", shape.corpus, *context.target);
}

std::shared_ptr<const SuffixAutomaton> sam_of(const SuffixCorpus* corpus) {
  if (corpus == nullptr) return nullptr;
  const uint64_t length = corpus->size() + corpus->info().source.documents;
  if (length > SuffixAutomaton::kMostTokens)
    throw base::usage_error(fmt::format("sam: a corpus of {} tokens; an automaton holds {}", length,
                                        SuffixAutomaton::kMostTokens),
                            "build a smaller one, or take rest, which reads it from the disk");
  auto sam = std::make_shared<SuffixAutomaton>();
  sam->reserve(length);
  for (uint64_t place = 0; place < length; ++place) {
    if (const int32_t token = corpus->token_behind(place, 0); token >= 0)
      sam->add(token);
    else
      sam->end_text();
  }
  return sam;
}

}  // namespace

MethodInfo sam_method() {
  MethodInfo info;
  info.name = "sam";
  info.summary =
      "suffix automaton: drafts what followed the longest match, in the text or a corpus";
  info.source = "SAM-Decoding, Hu et al. 2024, arXiv 2411.10666";
  info.needs = "nothing (a corpus helps: evalrun corpus build --kind suffixes)";
  info.notes = fmt::format(
      "The program's SAM-only form with its defaults. Rows of the paper draft with Token Recycling "
      "or EAGLE-2 where fewer than 5 tokens match (min_match=5). Memory: at most {0} bytes a token "
      "of the conversation and of `capacity` tokens of earlier answers in each slot (once for all "
      "with state=shared), and of a corpus once.",
      SuffixAutomaton::kBytesPerToken);
  using Shape = SamShape;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("bias", &Shape::bias, {0, 256},
               "tokens by which a match in a corpus or an earlier answer must be longer")
          .add("capacity", &Shape::capacity, {256, 1 << 26},
               "most tokens of earlier answers kept, the newest half of them always (state=warm or "
               "shared)")
          .add("corpus", &Shape::corpus,
               "path or name of texts to look up as well (evalrun corpus build --kind suffixes); "
               "none")
          .add("k", &Shape::k, {1, engine::kMaxRows - 1},
               "longest draft, in tokens (what a row costs: evalrun cost)")
          .add("min_match", &Shape::min_match, {1, 256}, "shortest match drafted from, less bias")
          .add(state_parameter<Shape>("answers"));
  info.params = parameters.infos();
  info.files =
      parameters.bound([](const Shape& shape,
                          const MethodBuildContext& context) -> std::map<std::string, std::string> {
        const auto corpus = sam_corpus(shape, context);
        if (corpus == nullptr) return {};
        return {{"corpus", corpus->info().content_hash}};
      });
  draft_by(info, parameters, [](const Shape& shape, const MethodBuildContext& context) {
    const EarlierAnswers earlier(shape.state, 0, shape.capacity, kAnyLength);
    return std::make_unique<SamDrafter>(shape, earlier, sam_of(sam_corpus(shape, context).get()));
  });
  return info;
}

}  // namespace evalrun::methods
