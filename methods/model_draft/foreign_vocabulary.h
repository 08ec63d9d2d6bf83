// A draft model whose tokenizer is not the target's: what its drafts are in the target's tokens.
// Timor et al. 2025, arXiv 2502.05202:
//  - intersect (section 4, token-level intersection, TLI): the draft model's distribution is
//    restricted to tokens that both have, and what is drawn from it is verified as any draft is.
//    The restricted distribution is the q of the rejection rule, so the law stays the target's.
//  - text (section 3, string-level exact match, SLEM): the draft model drafts in all of its own
//    tokens, and their text is tokenized by the target's tokenizer. Its tokens have no q: they are
//    kept where plain decoding draws them.
// Differs from the paper: a text is tokenized again word by word, not through a window of tokens
// whose overlap is searched for; and what may still become another token is left out.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "methods/model_draft/retokenizer.h"
#include "methods/model_draft/vocabulary_map.h"

namespace evalrun::methods {

enum class VocabularyRule { kSame, kIntersect, kText };  // of the parameter vocab=

class ForeignVocabulary {
 public:
  // Throws usage_error, with figures, for models without tokenizers and for vocabularies that have
  // no text token in common.
  ForeignVocabulary(VocabularyRule rule, std::shared_ptr<const engine::Model> target,
                    std::shared_ptr<const engine::Model> draft);
  ForeignVocabulary(const ForeignVocabulary&) = delete;
  ForeignVocabulary& operator=(const ForeignVocabulary&) = delete;

  const VocabularyMap& map() const { return map_; }
  bool by_text() const { return rule_ == VocabularyRule::kText; }
  // The target's text in the draft model's tokens.
  Translation to_draft() const { return {target_tokenizer_, &draft_pieces_, map_.to_draft}; }
  // Whether the draft model says no more after this token of its own.
  bool ends_draft(int32_t draft_id) const { return draft_tokenizer_->is_special(draft_id); }

  // The target's tokens after `context`, at most `most`, that `drafted`, the draft model's tokens
  // after the same text, stand for. Without those that later text may still change: of the last
  // word, or the last one where there is one word only. A last token that ends_draft() ends the
  // text, and stands for its partner.
  void retokenize(std::span<const int32_t> context, std::span<const int32_t> drafted, size_t most,
                  std::vector<int32_t>& tokens) const;

 private:
  struct Tail;  // of the context
  Tail tail_of(std::span<const int32_t> context) const;
  bool tokenize_after(const Tail& tail, const std::string& text,
                      std::vector<int32_t>& tokens) const;
  void cut_open_word(const std::string& text, std::vector<int32_t>& tokens) const;

  const VocabularyRule rule_;
  const std::shared_ptr<const engine::Model> target_, draft_;
  const engine::Tokenizer* const target_tokenizer_;
  const engine::Tokenizer* const draft_tokenizer_;
  const VocabularyMap map_;
  const PieceTokenizer target_pieces_, draft_pieces_;
};

}  // namespace evalrun::methods
