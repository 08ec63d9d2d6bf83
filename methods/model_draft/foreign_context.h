// A text of the target in a draft model's own tokens, as far as the draft model has computed it.
// Before a draft the cache keeps what the new text begins with, and the rest is computed again:
// later text can change the last tokens of a text.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/session.h"
#include "methods/model_draft/foreign_vocabulary.h"

namespace evalrun::methods {

class ForeignContext {
 public:
  explicit ForeignContext(const ForeignVocabulary& vocabulary) : text_(vocabulary.to_draft()) {}

  // Another text. Computes its tokens, if there is room.
  void start(engine::Session& session, int sequence, std::span<const int32_t> text);
  // The draft model's tokens of a text that begins with the last one, which the session has not
  // computed: one at least, as a draft goes on from it. Empty where they do not fit, or do not
  // stand for the whole text. Valid until the next call.
  std::span<const int32_t> follow(std::span<const int32_t> text);
  // Position of the last token of the text.
  int last() const { return last_; }
  // What the session committed, or forgot.
  void computed(std::span<const int32_t> tokens) {
    held_.insert(held_.end(), tokens.begin(), tokens.end());
  }
  void rewound(int length) { held_.resize(static_cast<size_t>(length)); }

 private:
  Retokenizer text_;
  engine::Session* session_ = nullptr;
  int sequence_ = 0;
  int last_ = 0;
  std::vector<int32_t> held_;  // tokens in the cache
};

}  // namespace evalrun::methods
