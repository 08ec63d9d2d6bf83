// The one implementation of Tokenizer: added-token search, normalizer, pre-tokenizer and subword
// model in a row, put together by the readers of GGUF and tokenizer.json.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/subword/added_tokens.h"
#include "engine/tokenizer/subword/vocabulary.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::engine {

// From the text of a token to the bytes it stands for.
struct DecodePlan {
  bool byte_alphabet = false;                                // GPT-2 byte alphabet
  std::vector<std::pair<std::string, std::string>> replace;  // "▁" by " "
  bool byte_fallback = false;                                // "<0x0A>" is a byte
  DecodeRules rules;
};

struct TokenizerParts {
  std::shared_ptr<const Vocabulary> vocabulary;  // added tokens included
  std::unique_ptr<const SubwordModel> model;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  DecodePlan decode;
  std::vector<int32_t> before, after;  // what add_special puts around a text
  std::optional<int32_t> bos_id;
  std::vector<int32_t> stop_ids;  // named by the file; the family's are added
  std::vector<std::pair<std::string, std::string>> hashed_merges;  // empty for SentencePiece
  int n_hashed_tokens = 0;  // tokens that count for the hash: all but trailing unused ones
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts);

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string token_bytes(int32_t id, bool skip_special) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  int vocab_size() const override { return parts_.vocabulary->size(); }
  bool is_special(int32_t id) const override;
  std::optional<int32_t> bos_id() const override { return parts_.bos_id; }
  std::optional<int32_t> id_of(std::string_view token_text) const override;
  const std::vector<int32_t>& stop_ids() const override { return parts_.stop_ids; }
  const std::string& vocabulary_hash() const override { return hash_; }
  DecodeRules decode_rules() const override { return parts_.decode.rules; }
  bool is_byte_token(int32_t id) const override;

 private:
  struct Entry {
    std::string bytes;
    bool special = false;
    bool byte = false;  // a byte-fallback token
  };
  const Entry* entry(int32_t id) const;
  void encode_section(std::string_view text, bool at_start, bool parse_special,
                      std::vector<int32_t>& ids) const;

  TokenizerParts parts_;
  AddedTokenMatcher raw_matcher_, normalized_matcher_;
  std::vector<Entry> entries_;
  std::string hash_;
};

}  // namespace evalrun::engine
