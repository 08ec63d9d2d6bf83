#include "results/repetition.h"

#include <algorithm>
#include <array>
#include <vector>

namespace evalrun::results {

Repetition repetition_of(std::span<const int32_t> tokens) {
  Repetition r;
  const size_t n = tokens.size();
  if (n >= kGram - 1 + kFewestGrams) {
    std::vector<std::array<int32_t, kGram>> grams(n - kGram + 1);
    for (size_t i = 0; i < grams.size(); ++i)
      std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(i), kGram, grams[i].begin());
    const auto all = static_cast<double>(grams.size());
    std::sort(grams.begin(), grams.end());
    const auto end = std::unique(grams.begin(), grams.end());
    r.distinct_share = static_cast<double>(end - grams.begin()) / all;
  }
  // Most periods fail at the first comparison, so this is about n / 3 of them.
  for (size_t period = 1; 3 * period <= n; ++period) {
    size_t first = n;  // of the tokens that equal the one a period before
    while (first > period && tokens[first - 1] == tokens[first - 1 - period]) --first;
    const size_t length = n - first + period;
    if (length >= 3 * period) r.cycle = std::max(r.cycle, static_cast<int32_t>(length));
  }
  return r;
}

}  // namespace evalrun::results
