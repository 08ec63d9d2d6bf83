// Where text, not a token, ends an answer: "\ndef", "Question:", one '}' too many. Watched token by
// token by the decode loop, so that every method is cut at the same token.
#pragma once
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace evalrun::methods {

struct StopTextRules {
  std::vector<std::string> strings;  // not empty ones
  bool closing_brace = false;        // the first '}' that no '{' of the answer opened
  bool empty() const { return strings.empty() && !closing_brace; }
};

// Reads an answer once, as it grows: the work per token is the length of its text and of the
// longest string, whatever the length of the answer. Compares bytes, so a rule may span tokens and
// tokens may end inside characters. Special tokens have no text.
class StopText {
 public:
  // `tokenizer` must outlive this object.
  StopText(const engine::Tokenizer& tokenizer, StopTextRules rules);

  void begin();  // of an answer
  // Whether the answer, with this token after the earlier ones, completes a rule for the first
  // time. Asked once per token in order; not asked again once it was true.
  bool completed_by(int32_t token);

 private:
  bool closes_brace(std::string_view text);
  bool completes_string(std::string_view text);

  const engine::Tokenizer& tokenizer_;
  StopTextRules rules_;
  size_t longest_ = 0;
  std::string tail_;  // the last longest_ - 1 bytes seen
  int open_braces_ = 0;
};

}  // namespace evalrun::methods
