// Compiled pre-tokenizer patterns. PCRE2 and not re2, because these patterns need look-ahead
// (`\s+(?!\S)`) and possessive repeats, which re2 leaves out by design.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evalrun::engine {

class Regex {
 public:
  // Character classes follow Unicode (UTF and UCP modes). Throws std::invalid_argument with the
  // reason and the offset when the pattern does not compile.
  explicit Regex(std::string_view pattern);

  // [begin, end) of all matches from left to right, empty ones included. `text` is valid UTF-8.
  std::vector<std::pair<size_t, size_t>> find_all(std::string_view text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;  // immutable, safe to share between threads
};

}  // namespace evalrun::engine
