#include "engine/tokenizer/tokenizer.h"

#include <algorithm>

#include "engine/base/utf8.h"

namespace evalrun::engine {

std::string StreamDecoder::push(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};  // skipped
  std::string bytes = tokenizer_.token_bytes(id);
  if (bytes.empty()) return {};
  if (first_ && rules_.strip_first_token) std::erase(bytes, ' ');
  first_ = false;
  if (!rules_.whole_byte_runs) {
    pending_ += bytes;
    return strip(take_complete());
  }
  if (tokenizer_.is_byte_token(id)) {
    pending_ += bytes;
    return {};
  }
  return strip(take_byte_run() + bytes);
}

std::string StreamDecoder::finish() {
  if (rules_.whole_byte_runs) return strip(take_byte_run());
  std::string text = base::utf8_repair(pending_);
  pending_.clear();
  return strip(std::move(text));
}

std::string StreamDecoder::take_complete() {
  const size_t complete = pending_.size() - base::utf8_incomplete_tail(pending_);
  std::string text = base::utf8_repair(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string StreamDecoder::take_byte_run() {
  std::string text;
  if (base::utf8_valid(pending_)) {
    text = pending_;
  } else {
    for (size_t i = 0; i < pending_.size(); ++i) text += base::kReplacementCharacter;
  }
  pending_.clear();
  return text;
}

std::string StreamDecoder::strip(std::string text) {
  if (text.empty() || spaces_to_strip_ == 0) return text;
  size_t spaces = 0;
  while (spaces < text.size() && text[spaces] == ' ' && spaces_to_strip_ > 0) {
    ++spaces;
    --spaces_to_strip_;
  }
  if (spaces < text.size()) spaces_to_strip_ = 0;
  return text.substr(spaces);
}

}  // namespace evalrun::engine
