// Draft models with other tokenizers than their target's, for models of any vocabulary.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/model.h"
#include "engine/tokenizer/tokenizer.h"
#include "methods/registration.h"

namespace evalrun::tests {

// Token i stands for texts[i]; a text is cut into the longest tokens from the left, and what no
// token begins with is lost. Special tokens stand in no text.
class LongestTokens final : public engine::Tokenizer {
 public:
  struct Kind {
    std::vector<int32_t> special = {}, stops = {}, bytes = {};  // ids; `bytes`: fallback tokens
    std::optional<int32_t> bos = {};
    bool puts_space = false;  // before a text, as SentencePiece does
  };
  explicit LongestTokens(std::vector<std::string> texts)
      : LongestTokens(std::move(texts), Kind()) {}
  LongestTokens(std::vector<std::string> texts, Kind kind)
      : texts_(std::move(texts)), kind_(std::move(kind)) {
    for (const std::string& text : texts_) hash_ += text + "|";
  }
  std::vector<int32_t> encode(std::string_view text,
                              const engine::EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special && kind_.bos) ids.push_back(*kind_.bos);
    const std::string whole = (kind_.puts_space && !text.empty() ? " " : "") + std::string(text);
    for (size_t at = 0; at < whole.size();) {
      const int32_t id = longest(std::string_view(whole).substr(at));
      if (id >= 0) ids.push_back(id);
      at += id >= 0 ? texts_[static_cast<size_t>(id)].size() : 1;
    }
    return ids;
  }
  std::string token_bytes(int32_t id, bool skip_special) const override {
    if (id < 0 || id >= vocab_size() || (skip_special && is_special(id))) return {};
    return texts_[static_cast<size_t>(id)];
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id, skip_special);
    return text;
  }
  int vocab_size() const override { return static_cast<int>(texts_.size()); }
  bool is_special(int32_t id) const override { return has(kind_.special, id); }
  std::optional<int32_t> bos_id() const override { return kind_.bos; }
  std::optional<int32_t> id_of(std::string_view text) const override {
    const auto at = std::find(texts_.begin(), texts_.end(), text);
    if (at == texts_.end()) return std::nullopt;
    return static_cast<int32_t>(at - texts_.begin());
  }
  const std::vector<int32_t>& stop_ids() const override { return kind_.stops; }
  const std::string& vocabulary_hash() const override { return hash_; }
  engine::DecodeRules decode_rules() const override {
    return {.strip_leading_spaces = kind_.puts_space ? 1 : 0};
  }
  bool is_byte_token(int32_t id) const override { return has(kind_.bytes, id); }

 private:
  static bool has(const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }
  int32_t longest(std::string_view text) const {
    int32_t best = -1;
    for (int32_t id = 0; id < vocab_size(); ++id) {
      const std::string& token = texts_[static_cast<size_t>(id)];
      if (token.empty() || is_special(id) || !text.starts_with(token)) continue;
      if (best < 0 || token.size() > texts_[static_cast<size_t>(best)].size()) best = id;
    }
    return best;
  }

  std::vector<std::string> texts_;
  Kind kind_;
  std::string hash_;
};

// The same weights with a tokenizer.
std::shared_ptr<const engine::Model> with_tokenizer(
    const engine::Model& model, std::shared_ptr<const engine::Tokenizer> tokenizer);
// Of `size` tokens: letters, pairs of letters, and words that begin with a space.
std::vector<std::string> toy_texts(int size);
// What a method is built by where its draft has another vocabulary: the target with toy_texts(),
// and its first layer with one token more, in another order, of which a fifth are longer.
methods::MethodBuildContext with_foreign_draft(const methods::MethodBuildContext& context);
// Whether a method's parameters ask for that.
bool wants_foreign_draft(const methods::MethodSpec& spec);

}  // namespace evalrun::tests
