// Tokens found among logits where these are: the best few of a row, the mass of all, one draw. What
// crosses the bus is some words a row. Integers throughout (engine/sampling_arith.h), so that the
// host finds the same tokens and sums however the work is divided.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace evalrun::engine::cuda {

struct AnswerShape {
  int rows = 0, n_logits = 0;
  int n_best = 1;      // 1..kMostBest, not more than n_logits
  bool sums = false;   // the mass of all tokens at temperature 1
  bool draws = false;  // by the law below
  double inverse_temperature = 1;
  int top_k = 0;  // 0: off
  double top_p = 1;
  bool operator==(const AnswerShape&) const = default;
  // Words of a row of the result: the best as order_of() has them, the mass, the drawn token.
  constexpr int stride() const { return n_best + 2; }
};

// Words of `workspace`.
size_t answer_workspace(const AnswerShape& shape);

// result[rows][stride] of logits [rows][n_logits]. Draws are for rows with chances[row] >= 0, the
// others get -1; `chances` may be null without draws. A row with a logit that is no number has
// kNoNumber in front and nothing else that means anything.
void answer_rows(const AnswerShape& shape, const float* logits, const double* chances,
                 uint64_t* workspace, uint64_t* result, cudaStream_t stream);

}  // namespace evalrun::engine::cuda
