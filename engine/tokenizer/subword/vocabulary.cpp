#include "engine/tokenizer/subword/vocabulary.h"

#include <charconv>

#include "engine/base/error.h"

namespace evalrun::engine {

Vocabulary::Vocabulary(std::vector<std::string> tokens, const std::string& file,
                       const std::string& field)
    : tokens_(std::move(tokens)) {
  ids_.reserve(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const auto [it, added] = ids_.emplace(tokens_[id], static_cast<int32_t>(id));
    if (!added)
      throw base::data_error(
          file, field,
          fmt::format("token '{}' has two ids, {} and {}", tokens_[id], it->second, id),
          "every token text must stand once; the file is broken or was merged by hand");
  }
}

std::vector<std::optional<int32_t>> byte_fallback_ids(const Vocabulary& vocabulary) {
  std::vector<std::optional<int32_t>> ids(256);
  for (size_t b = 0; b < ids.size(); ++b) ids[b] = vocabulary.find(fmt::format("<0x{:02X}>", b));
  return ids;
}

std::optional<uint8_t> fallback_byte_of(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const char* end = text.data() + 5;
  const auto [stop, error] = std::from_chars(text.data() + 3, end, byte, 16);
  return error == std::errc() && stop == end ? std::optional<uint8_t>(byte) : std::nullopt;
}

}  // namespace evalrun::engine
