// First tokens of Jacobi windows and draft branches: drawn from the prompt, as released programs
// do, or from the vocabulary. From a seed of their own, the same in every generation, so that the
// draws of sampling are those of plain decoding.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/options.h"
#include "engine/base/rng.h"

namespace evalrun::methods {

enum class TokenSource { kPrompt, kVocabulary };

inline std::vector<base::Named<TokenSource>> token_sources() {
  return {{"prompt", TokenSource::kPrompt}, {"vocabulary", TokenSource::kVocabulary}};
}

class RandomTokens {
 public:
  RandomTokens(TokenSource source, int vocab) : source_(source), vocab_(vocab) {}
  // `prompt` must outlive the generation.
  void start(std::span<const int32_t> prompt) {
    EVALRUN_CHECK(!prompt.empty());
    prompt_ = prompt;
    rng_ = base::Rng(kSeed);
  }
  int32_t next() {
    return source_ == TokenSource::kVocabulary ? static_cast<int32_t>(below(vocab_))
                                               : prompt_[below(static_cast<int>(prompt_.size()))];
  }
  size_t below(int n) { return static_cast<size_t>(rng_.below(static_cast<uint64_t>(n))); }

 private:
  static constexpr uint64_t kSeed = 10;  // Self-Draft's
  TokenSource source_;
  int vocab_;
  std::span<const int32_t> prompt_;
  base::Rng rng_{kSeed};
};

}  // namespace evalrun::methods
