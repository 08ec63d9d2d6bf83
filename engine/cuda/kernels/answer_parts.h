// What the kernels of answers share, and the functions that launch them: the best of a row
// (best_answers.cu), where top-k and top-p cut it (answer_borders.cu), masses and draws
// (answer_draws.cu), rows with a task (answer_tasks.cu). answer_rows.cu calls them.
#pragma once
#include "engine/cuda/kernels/answers.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/runtime/check.h"
#include "engine/sampling_arith.h"

namespace evalrun::engine::cuda {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// Keys of a lane where the best of groups are found. Few, so that a row is many warps; more where
// the groups were more than the lists that one block merges.
constexpr int kFewKeys = 8, kManyKeys = 32;
constexpr int kMostLists = 1024;
constexpr int kEach = 4;  // tokens of a thread in a block's mass
constexpr int kMassGroup = kEach * kThreads;
constexpr int kBinBits = 12;  // of an order: sign, exponent, three bits of the mantissa
constexpr int kBins = 1 << kBinBits;
static_assert(size_t{kMostLists} * kManyKeys * kWarp >= kMaxSampledVocab);

EVALRUN_DEVICE constexpr bool has_many(int n) { return n > kMostLists * kFewKeys * kWarp; }
EVALRUN_DEVICE constexpr int groups_of(int n) {
  const int group = (has_many(n) ? kManyKeys : kFewKeys) * kWarp;
  return (n + group - 1) / group;
}
EVALRUN_DEVICE constexpr int mass_groups_of(int n) { return (n + kMassGroup - 1) / kMassGroup; }

// Parts of the workspace, in words from its beginning. Bins are there for all draws, and where
// memory is planned, which says tasks: nobody knows yet how draws will be made.
struct Parts {
  size_t found, masses, borders, bins, dists, end;
};
EVALRUN_DEVICE inline Parts parts_of(const AnswerShape& s) {
  const auto rows = static_cast<size_t>(s.rows);
  Parts p;
  p.found = 0;
  p.masses = p.found + rows * static_cast<size_t>(groups_of(s.n_logits) * s.n_best);
  // With noise two words a group: the winner's speed, then its token.
  p.borders = p.masses + 2 * rows * static_cast<size_t>(mass_groups_of(s.n_logits));
  p.bins = p.borders + rows;
  p.dists = p.bins + (s.draws || s.tasks ? rows * static_cast<size_t>(kBins) : 0);
  p.end = p.dists + static_cast<size_t>(s.rejection_tests) * static_cast<size_t>(s.n_logits);
  return p;
}

__device__ __forceinline__ uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
__device__ __forceinline__ const float* row_of(const float* logits, int n_logits) {
  return logits + static_cast<size_t>(blockIdx.y) * static_cast<size_t>(n_logits);
}

// N logits of a row for a thread, every `step`-th from token `begin` on; zeros from n on. All are
// on their way before the first is looked at.
template <int N>
__device__ __forceinline__ void load_logits(const float* row, int begin, int step, int n,
                                            float (&value)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int token = begin + i * step;
    value[i] = token < n ? row[token] : 0.0f;
  }
}

// Whether tokens are counted first, for top-k. Otherwise their masses are added up.
EVALRUN_DEVICE constexpr bool cuts_by_count(const AnswerShape& s) {
  return s.top_k > 0 && s.top_k < s.n_logits;
}

// ---- Sums of a warp and of a block ----

__device__ __forceinline__ uint64_t sum_of_warp(uint64_t value) {
  for (int with = kWarp / 2; with > 0; with /= 2) value += __shfl_xor_sync(kAllLanes, value, with);
  return value;
}
// Of the lanes up to this one, its own among them.
__device__ __forceinline__ uint64_t sum_upto_lane(uint64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int by = 1; by < kWarp; by *= 2) {
    const uint64_t before = __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(by));
    if (lane >= by) value += before;
  }
  return value;
}
struct BlockSum {
  uint64_t before, total;  // of the threads before this one, of all
};
// A whole block of up to 32 full warps; `sums` has a word for each. A barrier must stand between
// two calls with the same words.
__device__ __forceinline__ BlockSum sum_of_block(uint64_t value, uint64_t* sums) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp;
  const uint64_t upto = sum_upto_lane(value);
  if (lane == kWarp - 1) sums[warp] = upto;
  __syncthreads();
  const uint64_t of_warp = lane < warps ? sums[lane] : 0;
  const uint64_t upto_warp = sum_upto_lane(of_warp);
  const uint64_t before = __shfl_sync(kAllLanes, upto_warp - of_warp, warp);
  return {before + upto - value, __shfl_sync(kAllLanes, upto_warp, kWarp - 1)};
}
// A whole warp.
__device__ __forceinline__ uint64_t sum_of_groups(int n, const uint64_t* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint64_t own = 0;
  for (int g = lane; g < n; g += kWarp) own += sums[g];
  return sum_of_warp(own);
}

// ---- Masses ----

__device__ __forceinline__ const uint64_t* masses_of_row(const AnswerShape& s,
                                                         const uint64_t* masses) {
  return masses + static_cast<size_t>(blockIdx.y) * static_cast<size_t>(mass_groups_of(s.n_logits));
}

// Where the masses of a row with a task are: a draw's are kept, a test's used up.
__device__ __forceinline__ uint64_t* distribution_of(const AnswerShape& s, const AnswerTask& task,
                                                     const DistributionMemory& kept,
                                                     uint64_t* dists) {
  if (task.kind == AnswerTask::kDraws)
    return kept.mass + static_cast<size_t>(task.dist) * static_cast<size_t>(kept.vocab);
  return dists + static_cast<size_t>(task.place) * static_cast<size_t>(s.n_logits);
}

// ---- Parts of answer_rows() ----

inline dim3 answer_grid(const AnswerShape& s, int blocks) {
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(s.rows));
}

// The best of every row to `result`. Clears the bins on the way, unless they are null.
void find_best_of_rows(const AnswerShape& s, const float* logits, uint64_t* found, uint64_t* bins,
                       uint64_t* result, cudaStream_t stream);
// Where top-k and top-p cut rows with a uniform. `bins` [rows][bins] are clear.
void find_borders_of_rows(const AnswerShape& s, const float* logits, const uint64_t* result,
                          const double* uniforms, uint64_t* bins, uint64_t* borders,
                          cudaStream_t stream);
// The mass of all tokens of every row at temperature 1 to `result`.
void sum_masses_of_rows(const AnswerShape& s, const float* logits, uint64_t* masses,
                        uint64_t* result, cudaStream_t stream);
// The draw of rows with a uniform. Of rows with a task only the masses, which do_tasks_of_rows()
// goes on with. `borders` may be null: nothing is cut.
void draw_tokens_of_rows(const AnswerShape& s, const float* logits, const AnswerInputs& in,
                         const uint64_t* borders, uint64_t* masses, uint64_t* dists,
                         uint64_t* result, cudaStream_t stream);
// The same by noise. `winners`: two words a group.
void draw_by_noise_of_rows(const AnswerShape& s, const float* logits, const double* uniforms,
                           const uint64_t* borders, uint64_t* winners, uint64_t* result,
                           cudaStream_t stream);
void do_tasks_of_rows(const AnswerShape& s, const AnswerInputs& in, const uint64_t* masses,
                      uint64_t* dists, uint64_t* result, cudaStream_t stream);

}  // namespace evalrun::engine::cuda
