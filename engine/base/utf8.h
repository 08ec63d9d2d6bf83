// UTF-8 steps shared by the tokenizers. Ill-formed bytes are replaced by the maximal-subpart rule
// of the Unicode standard (section 3.9): one U+FFFD for each longest prefix of a character that is
// cut short.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace evalrun::base {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Step {
  size_t length = 0;  // bytes of the character, or of the ill-formed part (at least 1)
  char32_t code = 0;  // meaningful when valid
  bool valid = false;
  bool incomplete = false;  // not valid yet: the text ends inside a possible character
};

// The first character of a non-empty text.
Utf8Step utf8_step(std::string_view text);

bool utf8_valid(std::string_view text);
std::string utf8_repair(std::string_view text);
void utf8_append(std::string& out, char32_t code);

// Bytes at the end of `text` that may still become a character when more bytes follow (0 to 3).
size_t utf8_incomplete_tail(std::string_view text);

}  // namespace evalrun::base
