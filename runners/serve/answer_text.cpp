#include "runners/serve/answer_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace evalrun::runners {
namespace {

// Bytes at the end of `text` with which one of the stop texts may begin.
size_t possible_beginning(std::string_view text, const std::vector<std::string>& stop) {
  size_t longest = 0;
  for (const std::string& one : stop)
    for (size_t n = std::min(one.size() - 1, text.size()); n > longest; --n)
      if (text.ends_with(std::string_view(one).substr(0, n))) {
        longest = n;
        break;
      }
  return longest;
}

}  // namespace

std::string AnswerText::push(std::span<const int32_t> ids) {
  for (const int32_t id : ids) held_ += decoder_.push(id);
  return take(false);
}

std::string AnswerText::finish() {
  held_ += decoder_.finish();
  return take(true);
}

std::string AnswerText::take(bool all) {
  if (stopped_) return {};
  size_t end = std::string::npos;
  for (const std::string& one : stop_) end = std::min(end, held_.find(one));
  stopped_ = end != std::string::npos;
  if (!stopped_) end = held_.size() - (all ? 0 : possible_beginning(held_, stop_));
  std::string text = held_.substr(0, end);
  held_.erase(0, end);
  return text;
}

}  // namespace evalrun::runners
