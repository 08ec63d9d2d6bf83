// Two runs generation by generation: whether they are the same in all that does not depend on the
// clock.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "results/store.h"

namespace evalrun::results {

// What is compared of each generation. Steps: what each drafted, how deep, what it accepted and
// emitted. Counters: of each turn, its tokens, steps, rows, forwards and why it stopped.
enum class Compared { kTokens, kStatus, kSeed, kSteps, kCounters, kScores };
inline constexpr int kComparedKinds = 6;
const char* to_string(Compared what);

struct TokenDifference {
  std::string arm, prompt;
  int64_t repeat = 0, sample = 0;
  Compared what = Compared::kTokens;
  std::string a = {}, b = {};  // of tokens, where they part: "turn 0, token 17: 345"
};

struct TokenComparison {
  int64_t compared = 0;                    // generations of both runs
  int64_t only_a = 0, only_b = 0;          // that one of them lacks
  std::string first_only_a, first_only_b;  // "arm, prompt, repeat, sample"
  int64_t differing[kComparedKinds] = {};  // by Compared
  std::vector<TokenDifference> first;      // at most kNamed of them
  bool equal() const;

  static constexpr size_t kNamed = 10;
};

// Arms are the same by their labels, prompts by their keys, generations by repeat and sample too.
// Memory does not grow with the runs. The stores may be of one file. Throws data_error.
TokenComparison compare_tokens(ResultStore& a, int64_t run_a, const ResultStore& b, int64_t run_b);

}  // namespace evalrun::results
