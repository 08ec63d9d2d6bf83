// Token texts and their ids, as the file writes them (byte alphabet or "▁" marks included), and the
// interface of the models that cut a word into them.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace evalrun::engine {

class Vocabulary {
 public:
  // tokens[id] = text. `file` and `field` are for messages: a text that stands twice is a
  // data_error.
  Vocabulary(std::vector<std::string> tokens, const std::string& file, const std::string& field);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int size() const { return static_cast<int>(tokens_.size()); }
  const std::string& text(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  const std::vector<std::string>& tokens() const { return tokens_; }
  std::optional<int32_t> find(std::string_view text) const {
    const auto it = ids_.find(text);
    return it == ids_.end() ? std::nullopt : std::optional<int32_t>(it->second);
  }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views into tokens_
};

// The id of the byte-fallback token of every byte ("<0x00>" ... "<0xFF>"), where there is one.
std::vector<std::optional<int32_t>> byte_fallback_ids(const Vocabulary& vocabulary);
// The byte such a token text stands for.
std::optional<uint8_t> fallback_byte_of(std::string_view token_text);

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  // Appends the ids of one pre-token (valid UTF-8). Time is O(n log n) in its length.
  virtual void encode_word(std::string_view word, std::vector<int32_t>& ids) const = 0;
};

}  // namespace evalrun::engine
