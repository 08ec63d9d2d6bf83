#include "engine/tokenizer/subword/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "engine/base/utf8.h"

namespace evalrun::engine {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;

struct Alphabet {
  std::array<std::string, 256> text;
  std::array<int16_t, kAlphabetEnd> byte;  // -1: not in the alphabet

  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
      const char32_t code = printable ? static_cast<char32_t>(b) : next++;
      base::utf8_append(text[static_cast<size_t>(b)], code);
      byte[code] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (char b : bytes) out += alphabet().text[static_cast<uint8_t>(b)];
  return out;
}

std::string alphabet_to_bytes(std::string_view token) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const base::Utf8Step step = base::utf8_step(token.substr(at));
    const int byte = step.valid && step.code < kAlphabetEnd ? alphabet().byte[step.code] : -1;
    if (byte < 0) return std::string(token);
    out.push_back(static_cast<char>(byte));
    at += step.length;
  }
  return out;
}

}  // namespace evalrun::engine
