// A tokenizer that only decodes: token i stands for texts[i].
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::tests {

class TextTokens final : public engine::Tokenizer {
 public:
  explicit TextTokens(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  std::vector<int32_t> encode(std::string_view, const engine::EncodeOptions&) const override {
    throw base::InternalError("these tokens cannot be encoded");
  }
  std::string token_bytes(int32_t id, bool) const override {
    return texts_.at(static_cast<size_t>(id));
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id, skip_special);
    return text;
  }
  int vocab_size() const override { return static_cast<int>(texts_.size()); }
  bool is_special(int32_t) const override { return false; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> id_of(std::string_view) const override { return std::nullopt; }
  const std::vector<int32_t>& stop_ids() const override { return no_stop_ids_; }
  const std::string& vocabulary_hash() const override { return hash_; }

 private:
  std::vector<std::string> texts_;
  std::vector<int32_t> no_stop_ids_;
  std::string hash_ = "texts";
};

}  // namespace evalrun::tests
