// The text of an answer as its tokens come: special tokens skipped, cut before the first stop text.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace evalrun::runners {

// Holds back what may still become a stop text or a character. All that push() and finish() return,
// joined, is the same however the tokens are cut into pieces.
class AnswerText {
 public:
  // The tokenizer must outlive the object. Stop texts are not empty.
  AnswerText(const engine::Tokenizer& tokenizer, std::vector<std::string> stop)
      : decoder_(tokenizer), stop_(std::move(stop)) {}
  std::string push(std::span<const int32_t> ids);
  std::string finish();

 private:
  std::string take(bool all);

  engine::StreamDecoder decoder_;
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace evalrun::runners
