// The GPT-2 byte alphabet: every byte written as one printable character, so that a byte-level
// vocabulary is readable text. Printable Latin-1 bytes stand for themselves, the other 68 for
// U+0100 and up in byte order (a space is U+0120 "Ġ").
#pragma once
#include <string>
#include <string_view>

namespace evalrun::engine {

std::string bytes_to_alphabet(std::string_view bytes);

// The bytes a token's text stands for. A text with any character outside the alphabet (an added
// token) stands for itself, as in Hugging Face's ByteLevel decoder.
std::string alphabet_to_bytes(std::string_view token);

}  // namespace evalrun::engine
