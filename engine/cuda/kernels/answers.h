// Tokens found among logits where these are: the best few of a row, the mass of all, one draw, and
// for drafts that are drawn, draws whose distribution is kept and rejection_tests of a node's
// children. What crosses the bus is some words a row. Integers throughout
// (engine/sampling_arith.h), so that the host finds the same tokens and sums however the work is
// divided.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace evalrun::engine::cuda {

struct AnswerShape {
  int rows = 0, n_logits = 0;
  int n_best = 1;      // 1..kMostBest, not more than n_logits
  bool sums = false;   // the mass of all tokens at temperature 1
  bool draws = false;  // by the distribution below
  double inverse_temperature = 1;
  int top_k = 0;  // 0: off
  double top_p = 1;
  bool noise = false;       // draws are by noise (engine/gumbel.cpp); without tasks then
  bool tasks = false;       // some rows have one
  int rejection_tests = 0;  // room for this many
  int more_draws = 0;       // after the first, the most of any task
  bool operator==(const AnswerShape&) const = default;
  // Words of a row of the result: the best as order_of() has them, the mass, the drawn token; with
  // tasks the child that passed or the drawn token's mass, then the further draws.
  constexpr int stride() const { return n_best + 2 + (tasks ? 1 + more_draws : 0); }
};

// What a row wants of its distribution beyond a draw (engine/rejection.h has the definitions).
struct AnswerTask {
  enum Kind : int32_t {
    kNone,
    kDraws,      // keep the distribution in slot `distribution`; `count` more draws, by
                 // further_uniforms[first ..]
    kRejection,  // of children[first .. first + count), drawn from slot `distribution`, none twice
    kRejectionRepeating,  // the same, each drawn from the whole distribution
  };
  int32_t kind = kNone, dist = 0, first = 0, count = 0;
  int32_t place = 0;   // of a test, among the shape's
  int32_t unused = 0;  // to a multiple of 8 bytes
};
constexpr int kChildWithoutMass = -2;  // in place of the child that passed: it was not drawn there

// Where kept distributions lie: the masses of every slot by target id.
struct DistributionMemory {
  uint64_t* mass = nullptr;      // [slots][vocab]
  uint64_t* total = nullptr;     // [slots]
  const int32_t* ids = nullptr;  // of a drafter's outputs; null: they are the target's
  int vocab = 0;
};

// Of device memory. Rows with a task have a uniform, the one it uses (first).
struct AnswerInputs {
  const double* uniforms = nullptr;   // [rows]; < 0: no draw. May be null without draws.
  const AnswerTask* tasks = nullptr;  // [rows], with tasks
  const int32_t* children = nullptr;
  const double* further_uniforms = nullptr;
  DistributionMemory dists = {};
};

// Words of `workspace`.
size_t answer_workspace(const AnswerShape& shape);

// result[rows][stride] of logits [rows][n_logits]. Draws are for rows with uniforms[row] >= 0, the
// others get -1. A row with a logit that is no number has kNoNumber in front and nothing else that
// means anything.
void answer_rows(const AnswerShape& shape, const float* logits, const AnswerInputs& inputs,
                 uint64_t* workspace, uint64_t* result, cudaStream_t stream);

}  // namespace evalrun::engine::cuda
