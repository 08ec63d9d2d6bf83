// SentencePiece-style BPE by token score, as GGUF files of `tokenizer.ggml.model` = "llama" need
// it: adjacent symbols whose joined text is a token merge, highest score first, leftmost on a tie
// (llama.cpp's SPM tokenizer). What never becomes a token is written as byte tokens.
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/tokenizer/subword/vocabulary.h"

namespace evalrun::engine {

class SpmModel final : public SubwordModel {
 public:
  // scores[id]; unk_id replaces a byte that has no token.
  SpmModel(std::shared_ptr<const Vocabulary> vocabulary, std::vector<float> scores,
           std::optional<int32_t> unk_id);

  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  void emit(std::string_view symbol, std::vector<int32_t>& ids) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<float> scores_;
  std::optional<int32_t> unk_id_;
  std::vector<std::optional<int32_t>> byte_ids_;
};

}  // namespace evalrun::engine
