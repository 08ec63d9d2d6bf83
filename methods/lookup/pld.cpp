// Prompt lookup decoding (apoorvumang/prompt-lookup-decoding, 2023): what followed the last n
// tokens when they stood in the prompt or the output before is the draft; longest n first.
//
// Differs: the published variants take the earliest occurrence, and so does match=first, the
// default; match=recent takes the latest, match=frequent the continuation most common among the
// latest occurrences. candidates > 1 drafts several of them as one tree, shared prefixes once. A
// draft may be shorter than k where the sequence ends (as in transformers; the original drafts
// nothing then). It ends before a stop token (methods/lookup/stop_ids.h). Without a match nothing
// is drafted (Spec-Bench drafts a dummy token, which costs a row per miss).
#include <algorithm>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/lookup/ngram_index.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

enum class Occurrence { kFirst, kRecent, kFrequent };

struct PromptLookupShape {
  bool adaptive = false;
  int candidates = 1, k = 10;
  Occurrence match = Occurrence::kFirst;
  int min_ngram = 1, ngram = 3;
};

constexpr int kOccurrences = 32;  // looked at, newest first

class PromptLookupDrafter final : public Drafter {
 public:
  explicit PromptLookupDrafter(const PromptLookupShape& shape)
      : shape_(shape), index_(shape.min_ngram, shape.ngram, match_of(shape)) {
    ends_.reserve(kOccurrences);
    alive_.reserve(kOccurrences);
    path_.reserve(static_cast<size_t>(shape_.k));
  }

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<PromptLookupDrafter>(shape_);
  }

  void start(const GenerationContext& context) override {
    stop_ids_ = context.stop_ids;
    index_.start(static_cast<int>(context.prompt.size()) + context.max_new);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    const int from = index_.find(sequence);
    if (from < 0) return;
    if (shape_.match == Occurrence::kFirst) {
      tree.add_path(continuation(sequence, from, max_depth), true);
      return;
    }
    ends_.clear();
    for (int at = from; at >= 0 && static_cast<int>(ends_.size()) < kOccurrences;
         at = index_.earlier(at))
      ends_.push_back(at);
    for (int i = 0; i < shape_.candidates && !ends_.empty(); ++i)
      tree.add_path(take_candidate(sequence, max_depth), true);
  }

  LargestStep largest_step() const override { return {.rows = 1 + shape_.candidates * shape_.k}; }
  void add_kept(KeptMemory& kept) const override {
    kept.grown.per_token +=
        NgramIndex::bytes_per_token(shape_.min_ngram, shape_.ngram, match_of(shape_));
  }
  // The longer the n-gram that was found, the likelier it goes on as before.
  int draft_class(int) const override { return std::min(index_.matched(), kDraftClasses - 1); }
  double expected(int matched, int depth) const override {
    return depth > 1 ? 0.7 : matched < 2 ? 0.3 : 0.6;
  }

 private:
  static NgramIndex::Match match_of(const PromptLookupShape& shape) {
    return shape.match == Occurrence::kFirst ? NgramIndex::Match::kFirst
                                             : NgramIndex::Match::kRecent;
  }
  std::span<const int32_t> continuation(std::span<const int32_t> sequence, int from,
                                        int max_depth) const {
    const auto begin = static_cast<size_t>(from);
    const size_t n = std::min(sequence.size() - begin, static_cast<size_t>(shape_.k));
    return usable_draft(sequence.subspan(begin, n), max_depth, stop_ids_);
  }

  // The next candidate, newest or most common first; occurrences that continue like it are done
  // with.
  std::span<const int32_t> take_candidate(std::span<const int32_t> sequence, int max_depth) {
    if (shape_.match == Occurrence::kRecent) {
      const auto newest = continuation(sequence, ends_.front(), max_depth);
      path_.assign(newest.begin(), newest.end());
    } else {
      most_common(sequence, max_depth);
    }
    std::erase_if(ends_, [&](int end) {
      const auto other = continuation(sequence, end, max_depth);
      return other.size() <= path_.size() && std::equal(other.begin(), other.end(), path_.begin());
    });
    return path_;
  }

  // Token by token what most of the occurrences say that agree so far; of equals the newest. An
  // occurrence too near the end of the text has no say where its continuation ends.
  void most_common(std::span<const int32_t> sequence, int max_depth) {
    path_.clear();
    alive_ = ends_;
    while (static_cast<int>(path_.size()) < std::min(shape_.k, max_depth)) {
      const size_t depth = path_.size();
      const auto token_of = [&](int end) {
        const size_t at = static_cast<size_t>(end) + depth;
        return at < sequence.size() && !is_stop(stop_ids_, sequence[at]) ? sequence[at] : -1;
      };
      int32_t best = -1;
      size_t most = 0;
      for (size_t i = 0; i < alive_.size(); ++i) {
        const int32_t token = token_of(alive_[i]);
        if (token < 0) continue;
        size_t count = 0;
        for (size_t j = i; j < alive_.size(); ++j) count += token_of(alive_[j]) == token;
        if (count > most) {
          most = count;
          best = token;
        }
      }
      if (best < 0) return;
      std::erase_if(alive_, [&](int end) { return token_of(end) != best; });
      path_.push_back(best);
    }
  }

  PromptLookupShape shape_;
  NgramIndex index_;
  std::span<const int32_t> stop_ids_;
  std::vector<int> ends_, alive_;  // positions after occurrences, newest first
  std::vector<int32_t> path_;
};

void check_pld(const PromptLookupShape& shape) {
  if (shape.min_ngram > shape.ngram)
    throw base::usage_error(
        fmt::format("pld: min_ngram={} is larger than ngram={}", shape.min_ngram, shape.ngram),
        "n-grams of ngram down to min_ngram tokens are looked up");
  if (shape.candidates > 1 && shape.match == Occurrence::kFirst)
    throw base::usage_error("pld: the first occurrence is one candidate",
                            "take match=recent or match=frequent with candidates");
  if (shape.candidates * shape.k >= engine::kMaxRows)
    throw base::usage_error(fmt::format("pld: {} candidates of {} tokens; a step has {} rows",
                                        shape.candidates, shape.k, engine::kMaxRows),
                            "lower k or candidates");
}

}  // namespace

MethodInfo prompt_lookup_method() {
  MethodInfo info;
  info.name = "pld";
  info.summary = "prompt lookup: drafts what followed the last tokens earlier in the text";
  info.source = "github.com/apoorvumang/prompt-lookup-decoding (2023)";
  info.needs = "nothing";
  info.notes =
      "The original repository and Spec-Bench use ngram=3, k=10, the first occurrence; "
      "transformers "
      "ngram=2; vLLM calls it \"ngram\".";
  using Shape = PromptLookupShape;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("candidates", &Shape::candidates, {1, 32},
               "continuations drafted as one tree (match=recent or frequent)")
          .add("k", &Shape::k, {1, engine::kMaxRows - 1},
               "longest draft, in tokens (what a row costs: evalrun cost)")
          .choice("match", &Shape::match,
                  {{"first", Occurrence::kFirst},
                   {"recent", Occurrence::kRecent},
                   {"frequent", Occurrence::kFrequent}},
                  "which occurrence is taken")
          .add("min_ngram", &Shape::min_ngram, {1, 32}, "shortest n-gram looked up")
          .add("ngram", &Shape::ngram, {1, 32}, "longest n-gram looked up");
  info.params = parameters.infos();
  info.check = parameters.bound(check_pld);
  draft_by(info, parameters, [](const Shape& shape, const MethodBuildContext&) {
    return std::make_unique<PromptLookupDrafter>(shape);
  });
  return info;
}

}  // namespace evalrun::methods
