// Which tokens of a draft model with another tokenizer are tokens of the target.
//
// Two tokens are the same where they stand for the same bytes (Timor et al. 2025, "Accelerating LLM
// Inference with Lossless Speculative Decoding Algorithms for Heterogeneous Vocabularies", arXiv
// 2502.05202, section 4: token-level intersection). Bytes and not the file's spelling are compared:
// a leading space is "▁" in one file and "Ġ" in another, and a byte alone is "<0xE2>" or a
// character of the byte alphabet.
//
// Special tokens stand for no text. They are the same where they mean the same: both have one text
// and both or neither end a generation; both begin a text; both are among the known ends of a turn,
// or of a text; or each is the only stop token of its tokenizer. So the end of an answer can be
// drafted.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace evalrun::methods {

struct VocabularyMap {
  // Of each id of one model the other's token, or -1. One to one.
  std::vector<int32_t> to_target, to_draft;
  // Target ids that have a draft token, ascending, and these tokens: draws go by the target's ids,
  // as audits expect.
  std::vector<int32_t> target_ids, draft_ids;
  int text_tokens = 0;  // of them: those that stand for text, not special ones

  // Of the smaller vocabulary, 0 to 1.
  double share() const;
};

// Ids from `target_size` and `draft_size` on are left out: a model may have fewer logits than its
// tokenizer has tokens, and pads them where it has more.
VocabularyMap map_vocabularies(const engine::Tokenizer& target, int target_size,
                               const engine::Tokenizer& draft, int draft_size);

// "41203 of 151936 and 49152 tokens (83.8 %)"
std::string to_text(const VocabularyMap& map);

// Below this share of the smaller vocabulary drafts say little of what the draft model meant. The
// arm has the setting then, and `run` warns (methods name what is odd; runners tell it).
inline constexpr double kFewCommonTokens = 0.10;
inline constexpr const char* kFewTokensSetting = "few_common_tokens";

}  // namespace evalrun::methods
