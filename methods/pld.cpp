// Prompt lookup decoding (apoorvumang/prompt-lookup-decoding, 2023): what followed the last n
// tokens when they stood in the prompt or the output before is the draft; longest n first.
//
// Differs: the published variants take the earliest occurrence, and so does match=first, the
// default; match=recent takes the latest. A draft may be shorter than k where the sequence ends (as
// in transformers; the original drafts nothing then). It ends in front of a stop token: the target
// supplies that token as the bonus of the same step, so that drafting it would cost a row and save
// none. Without a match nothing is drafted (Spec-Bench drafts a dummy token, which costs a row per
// miss).
#include <algorithm>

#include "engine/base/error.h"
#include "methods/builtin_methods.h"
#include "methods/ngram_index.h"

namespace evalrun::methods {
namespace {

class PromptLookupDrafter final : public Drafter {
 public:
  PromptLookupDrafter(int length, int min_n, int max_n, NgramIndex::Match match)
      : length_(length), index_(min_n, max_n, match) {}

  void start(const GenerationContext& context) override {
    stop_ids_ = context.stop_ids;
    index_.start(static_cast<int>(context.prompt.size()) + context.max_new);
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    const int from = index_.find(sequence);
    if (from < 0) return;
    const int to = std::min(from + std::min(length_, max_depth), static_cast<int>(sequence.size()));
    int node = 0;
    for (int i = from; i < to; ++i) {
      const int32_t token = sequence[static_cast<size_t>(i)];
      if (std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end()) return;
      node = tree.add(token, node);
    }
  }

 private:
  int length_;
  NgramIndex index_;
  std::span<const int32_t> stop_ids_;
};

}  // namespace

MethodInfo prompt_lookup_method() {
  using Type = ParamInfo::Type;
  MethodInfo info;
  info.name = "pld";
  info.summary = "prompt lookup: drafts what followed the last tokens earlier in the text";
  info.source = "github.com/apoorvumang/prompt-lookup-decoding (2023)";
  info.needs = "nothing";
  info.params = {
      {"k",
       "10",
       "longest draft, in tokens (what a row costs: evalrun cost)",
       Type::kInt,
       1,
       engine::kMaxRows - 1,
       {}},
      {"match", "first", "which occurrence is taken", Type::kText, 0, 0, {"first", "recent"}},
      {"min_ngram", "1", "shortest n-gram looked up", Type::kInt, 1, 32, {}},
      {"ngram", "3", "longest n-gram looked up", Type::kInt, 1, 32, {}},
  };
  info.check = [](const MethodParams& params) {
    if (params.integer("min_ngram") > params.integer("ngram"))
      throw base::usage_error(fmt::format("pld: min_ngram={} is larger than ngram={}",
                                          params.integer("min_ngram"), params.integer("ngram")),
                              "n-grams of ngram down to min_ngram tokens are looked up");
  };
  info.build = [](const MethodParams& params, const MethodBuildContext&) {
    const auto match =
        params.text("match") == "recent" ? NgramIndex::Match::kRecent : NgramIndex::Match::kFirst;
    return make_speculative_method(std::make_unique<PromptLookupDrafter>(
        params.integer("k"), params.integer("min_ngram"), params.integer("ngram"), match));
  };
  return info;
}

}  // namespace evalrun::methods
