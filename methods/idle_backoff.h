// How seldom a look-up that costs a little is asked while nothing comes of it: after 1, 2, 4, ...
// tokens, at most Drafter::rarest_query(). It is asked in every step again as soon as something of
// its draft was verified, or its first choice came true. That follows from the text and the row
// costs alone, never from a clock. Used by adaptive (methods/adaptive.h) and joined drafts
// (methods/joined_draft.h); the published methods ask in every step.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "methods/token_tree.h"

namespace evalrun::methods {

class IdleBackoff {
 public:
  // `rarest`: tokens between two questions at most; 1 = asked in every step.
  void start(int rarest) {
    rarest_ = static_cast<size_t>(std::max(rarest, 1));
    wait_ = 1;
    asked_at_ = 0;
    guess_ = -1;
    used_ = open_ = false;
  }
  // Whether to ask now. `sequence`: the text, the root last.
  bool due(std::span<const int32_t> sequence) {
    if (rarest_ == 1) return true;
    if (open_ && asked_at_ < sequence.size()) {
      const bool worth = used_ || (guess_ >= 0 && sequence[asked_at_] == guess_);
      wait_ = worth ? 1 : std::min(2 * wait_, rarest_);
      open_ = false;
    }
    return sequence.size() >= asked_at_ + wait_;
  }
  // It was asked at `sequence` and gave `draft`, its likeliest first token before other siblings;
  // `used`: some of that is verified.
  void asked(std::span<const int32_t> sequence, const TokenTree& draft) {
    asked_at_ = sequence.size();
    guess_ = draft.drafted() > 0 ? draft.token[1] : -1;
    used_ = false;
    open_ = true;
  }
  void note_used(bool used) { used_ = used; }

 private:
  size_t rarest_ = 1, wait_ = 1, asked_at_ = 0;  // in tokens; of the text when it was asked
  int32_t guess_ = -1;                           // its first choice for the token at asked_at_
  bool used_ = false, open_ = false;             // open_: what came of it is not known yet
};

}  // namespace evalrun::methods
