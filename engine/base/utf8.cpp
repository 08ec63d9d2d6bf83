#include "engine/base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace evalrun::base {

Utf8Step utf8_step(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, lead, true, false};
  // Bounds of the second byte exclude overlong forms, surrogates and codes above U+10FFFF.
  size_t n = 0;
  uint8_t low = 0x80, high = 0xBF;
  char32_t code = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    n = 2, code = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    n = 3, code = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    n = 4, code = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, 0, false, false};
  }
  for (size_t i = 1; i < n; ++i) {
    if (i == text.size()) return {i, 0, false, true};
    if (byte(i) < low || byte(i) > high) return {i, 0, false, false};
    code = (code << 6) | (byte(i) & 0x3F);
    low = 0x80, high = 0xBF;
  }
  return {n, code, true, false};
}

bool utf8_valid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (!step.valid) return false;
    at += step.length;
  }
  return true;
}

std::string utf8_repair(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    out += step.valid ? text.substr(at, step.length) : kReplacementCharacter;
    at += step.length;
  }
  return out;
}

void utf8_append(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

size_t utf8_incomplete_tail(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const uint8_t byte = static_cast<uint8_t>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // a continuation byte: its lead is further back
    return utf8_step(text.substr(text.size() - back)).incomplete ? back : 0;
  }
  return 0;
}

}  // namespace evalrun::base
