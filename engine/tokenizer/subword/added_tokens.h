// Finds added and special tokens in a text before it is split into words, as Hugging Face does:
// leftmost match first, the longest of those that begin there.
#pragma once
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evalrun::engine {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // swallows white space to its left
  bool rstrip = false;       // swallows white space to its right
  bool normalized = false;   // searched in normalized text, else in the text as given
  bool special = false;      // left alone when special tokens are not parsed; skip_special drops it
};

struct Section {
  std::string_view text;
  int32_t id = -1;  // a token, or -1: text to be split further
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // What is searched is `content`; tokens with an empty one are never found. Unique contents.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Sections in order, none empty. Without parse_special, special tokens stay part of the text.
  std::vector<Section> split(std::string_view text, bool parse_special) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;  // few per node: searched in line
    int32_t token = -1;                                  // index into tokens_
  };
  uint32_t child(uint32_t node, uint8_t byte) const;  // 0: none
  int32_t longest_at(std::string_view text, size_t begin) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{Node{}};
  std::bitset<256> first_bytes_;
};

}  // namespace evalrun::engine
