// Text changes a tokenizer makes before anything else: NFC, a prefix, replacements.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/tokenizer/regex.h"

namespace evalrun::engine {

class Normalizer {
 public:
  struct Nfc {};
  struct Prepend {  // an empty text stays empty
    std::string text;
  };
  struct Replace {
    std::optional<Regex> regex;  // absent: `literal` is searched
    std::string literal;
    std::string content;
  };
  using Step = std::variant<Nfc, Prepend, Replace>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  std::string apply(std::string_view text) const;  // valid UTF-8 in and out

 private:
  std::vector<Step> steps_;
};

// Every occurrence, left to right. An empty `from` changes nothing.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace evalrun::engine
