// Text of answers that servers cut between the bytes of a character.
#pragma once
#include <string>
#include <string_view>

namespace evalrun::runners {

// JSON is UTF-8, yet some servers send half a character in a string of it, which no parser reads.
// hide_bytes() makes every ill-formed byte a character of a private plane; show_bytes(), on a
// string of the parsed JSON, takes that back.
std::string hide_bytes(std::string_view text);
std::string show_bytes(std::string_view text);

// Pieces in, whole characters out. What never becomes a character is U+FFFD.
class JoinedText {
 public:
  std::string add(std::string_view bytes);  // without a character that may still be completed
  std::string rest();                       // after the last piece

 private:
  std::string tail_;
};

}  // namespace evalrun::runners
