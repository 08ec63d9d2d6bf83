#include "methods/stop_text.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {

StopText::StopText(const engine::Tokenizer& tokenizer, StopTextRules rules)
    : tokenizer_(tokenizer), rules_(std::move(rules)) {
  for (const std::string& string : rules_.strings) {
    EVALRUN_CHECK(!string.empty(), "an empty stop string");
    longest_ = std::max(longest_, string.size());
  }
}

void StopText::begin() {
  tail_.clear();
  open_braces_ = 0;
}

bool StopText::completed_by(int32_t token) {
  const std::string text = tokenizer_.token_bytes(token, /*skip_special=*/true);
  // Both: each rule has to see every byte.
  const bool brace = rules_.closing_brace && closes_brace(text);
  const bool string = longest_ > 0 && completes_string(text);
  return brace || string;
}

bool StopText::closes_brace(std::string_view text) {
  for (const char c : text) {
    open_braces_ += (c == '{') - (c == '}');
    if (open_braces_ < 0) return true;
  }
  return false;
}

bool StopText::completes_string(std::string_view text) {
  // What is found lies in the new bytes at least in part: older matches ended the answer.
  tail_ += text;
  for (const std::string& string : rules_.strings)
    if (tail_.find(string) != std::string::npos) return true;
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  return false;
}

}  // namespace evalrun::methods
