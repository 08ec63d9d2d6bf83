// A level below the draft model: what it may draft next, found in the text. One forward of the
// draft model checks several such tokens, as the target's checks a draft (prompt lookup,
// apoorvumang/prompt-lookup-decoding, 2023; a draft that is drafted for itself: Spector and Re
// 2023, staged speculative decoding, arXiv 2308.04623). A guess goes on only where it is the very
// token that the draft model drafts there, drawn by the same number where it draws. So the drafts
// are those without this level, token by token, with the same distributions; the draft model has
// fewer forwards, of more rows.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "methods/lookup/ngram_index.h"

namespace evalrun::methods {

class DraftLookup {
 public:
  // Forgets everything; for texts of up to `max_length` tokens.
  void start(int max_length) { index_.start(max_length); }
  // Before the guesses of a draft. `sequence` extends that of the call before, and stays until the
  // next one.
  void begin(std::span<const int32_t> sequence) {
    sequence_ = sequence;
    index_.find(sequence);
  }
  // At most `most` tokens that may come after the text and the tokens `drafted` behind it: what
  // followed the last three or two of them at their latest occurrence in the text.
  std::span<const int32_t> guess(std::span<const int32_t> drafted, int most) {
    const int from = most > 0 ? index_.find_with(sequence_, drafted) : -1;
    if (from < 0) return {};
    const auto rest = sequence_.subspan(static_cast<size_t>(from));
    return rest.first(std::min(rest.size(), static_cast<size_t>(most)));
  }

 private:
  static constexpr int kShortest = 2, kLongest = 3;
  NgramIndex index_{kShortest, kLongest, NgramIndex::Match::kRecent};
  std::span<const int32_t> sequence_;
};

}  // namespace evalrun::methods
