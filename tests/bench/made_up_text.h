// Text for benches: ids fall off as 1/rank over the default model's vocabulary, and a third of it
// repeats phrases of 2 to 31 tokens said earlier, as real text does.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/base/rng.h"

namespace evalrun::tests {

inline constexpr int kMadeUpVocab = 49152;

// The same for the same `n` and `seed`.
inline std::vector<int32_t> made_up_text(size_t n, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<int32_t> text;
  text.reserve(n);
  while (text.size() < n) {
    if (text.size() > 100 && rng.below(30) == 0) {
      const size_t length = std::min<size_t>(2 + rng.below(30), n - text.size());
      const size_t from = rng.below(text.size() - length);
      for (size_t i = 0; i < length; ++i) text.push_back(text[from + i]);
    } else {
      text.push_back(static_cast<int32_t>(std::exp(rng.uniform() * std::log(kMadeUpVocab))) - 1);
    }
  }
  return text;
}

}  // namespace evalrun::tests
