// How much an answer repeats itself. A greedy small model often falls into a loop, and a loop is
// what every drafter predicts best: speed figures over such answers say little about any other
// text.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

namespace evalrun::results {

inline constexpr int kGram = 4;
inline constexpr int kFewestGrams = 32;  // below, the share of distinct ones says nothing

struct Repetition {
  // Distinct 4-grams / all 4-grams; absent for fewer than kFewestGrams of them.
  std::optional<double> distinct_share;
  // Tokens at the end that are at least three times the same sequence, of any length: t[i] = t[i-p]
  // for all but the first p of them, p at most a third. The most over all p; 0 without any.
  int32_t cycle = 0;
};

Repetition repetition_of(std::span<const int32_t> tokens);

// Where an answer counts as degenerate; the views say the same (v_generation_all).
inline constexpr double kLeastDistinctShare = 0.3;
inline constexpr int32_t kLongestCycle = 32;  // one as long already is

}  // namespace evalrun::results
