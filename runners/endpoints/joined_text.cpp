#include "runners/endpoints/joined_text.h"

#include "engine/base/utf8.h"

namespace evalrun::runners {
namespace {

constexpr char32_t kHiddenByte = 0x10FE00;  // and the 255 after it: private use, plane 16

}  // namespace

std::string hide_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const base::Utf8Step step = base::utf8_step(text);
    if (step.valid)
      out += text.substr(0, step.length);
    else
      for (const char byte : text.substr(0, step.length))
        base::utf8_append(out, kHiddenByte + static_cast<unsigned char>(byte));
    text.remove_prefix(step.length);
  }
  return out;
}

std::string show_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const base::Utf8Step step = base::utf8_step(text);
    if (step.valid && step.code >= kHiddenByte && step.code <= kHiddenByte + 0xFF)
      out.push_back(static_cast<char>(step.code - kHiddenByte));
    else
      out += text.substr(0, step.length);
    text.remove_prefix(step.length);
  }
  return out;
}

std::string JoinedText::add(std::string_view bytes) {
  std::string all = tail_;
  all += bytes;
  const size_t whole = all.size() - base::utf8_incomplete_tail(all);
  tail_ = all.substr(whole);
  return base::utf8_repair(std::string_view(all).substr(0, whole));
}

std::string JoinedText::rest() {
  const std::string text = base::utf8_repair(tail_);
  tail_.clear();
  return text;
}

}  // namespace evalrun::runners
