// The best of a row in two kernels: every warp finds those of 1,024 logits, one block a row those
// of what the warps found. A draw adds a kernel for the masses of groups of 4,096 tokens and one
// that finds the group, then the token; top-k and top-p one in front, which finds the border: the
// least token (in the order of sampling_arith.h) that stays.
#include "engine/cuda/answers.h"
#include "engine/cuda/check.h"
#include "engine/cuda/device_code.h"
#include "engine/sampling_arith.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kKeys = 32;              // of a lane
constexpr int kGroup = kKeys * kWarp;  // of a warp
constexpr int kEach = 16;              // tokens of a thread in a block's mass
constexpr int kMassGroup = kEach * kThreads;
constexpr int kBorderThreads = 1024;
constexpr int kDigits = 256;

EVALRUN_DEVICE constexpr int groups_of(int n) { return (n + kGroup - 1) / kGroup; }
EVALRUN_DEVICE constexpr int mass_groups_of(int n) { return (n + kMassGroup - 1) / kMassGroup; }

// Parts of the workspace, in words from its beginning.
struct Parts {
  size_t found, refound, masses, borders, end;
};
EVALRUN_DEVICE inline Parts parts_of(const AnswerShape& s) {
  const auto rows = static_cast<size_t>(s.rows);
  const int found = groups_of(s.n_logits) * s.n_best;
  Parts p;
  p.found = 0;
  p.refound = p.found + rows * static_cast<size_t>(found);
  p.masses = p.refound + rows * static_cast<size_t>(groups_of(found) * s.n_best);
  p.borders = p.masses + rows * static_cast<size_t>(mass_groups_of(s.n_logits));
  p.end = p.borders + rows;
  return p;
}

__device__ __forceinline__ uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
__device__ __forceinline__ const float* row_of(const float* logits, int n_logits) {
  return logits + static_cast<size_t>(blockIdx.y) * static_cast<size_t>(n_logits);
}

// The n_best largest of a warp's keys (0: none), in order, written by its first lane.
__device__ __forceinline__ void best_of_warp(uint64_t (&key)[kKeys], int n_best, uint64_t* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint64_t own = 0;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) own = larger(own, key[i]);
  for (int r = 0; r < n_best; ++r) {
    uint64_t best = own;
    for (int with = kWarp / 2; with > 0; with /= 2)
      best = larger(best, __shfl_xor_sync(kAllLanes, best, with));
    if (lane == 0) to[r] = best;
    if (r + 1 == n_best) break;
    if (own == best) {  // keys differ, so this is one lane
      own = 0;
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        if (key[i] == best) key[i] = 0;
        own = larger(own, key[i]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    best_of_groups(AnswerShape s, const float* logits, uint64_t* found) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = static_cast<int>(blockIdx.x) * kWarps + warp, groups = groups_of(s.n_logits);
  if (group >= groups) return;
  const float* row = row_of(logits, s.n_logits);
  uint64_t key[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int token = group * kGroup + i * kWarp + lane;
    key[i] = token < s.n_logits ? order_of(row[token], token) : 0;
  }
  const size_t at =
      static_cast<size_t>(blockIdx.y) * static_cast<size_t>(groups) + static_cast<size_t>(group);
  best_of_warp(key, s.n_best, found + at * static_cast<size_t>(s.n_best));
}

// In rounds while there are more than a warp takes; the two lists take turns.
__global__ void __launch_bounds__(kThreads)
    best_of_found(AnswerShape s, uint64_t* found, uint64_t* refound, uint64_t* result) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto row = static_cast<size_t>(blockIdx.y);
  int n = groups_of(s.n_logits) * s.n_best;
  uint64_t* from = found + row * static_cast<size_t>(n);
  uint64_t* to = refound + row * static_cast<size_t>(groups_of(n) * s.n_best);
  while (true) {
    const int groups = groups_of(n);
    if (groups == 1) to = result + row * static_cast<size_t>(s.stride());
    for (int group = warp; group < groups; group += kWarps) {
      uint64_t key[kKeys];
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const int at = group * kGroup + i * kWarp + lane;
        key[i] = at < n ? from[at] : 0;
      }
      best_of_warp(key, s.n_best, to + group * s.n_best);
    }
    if (groups == 1) return;
    n = groups * s.n_best;
    uint64_t* const next = from;
    from = to, to = next;
    __syncthreads();
  }
}

// Of one token: its mass, 0 behind the border.
__device__ __forceinline__ uint64_t mass_at(const float* row, int token, float best, double scale,
                                            uint64_t border) {
  const float logit = row[token];
  if (border > 0 && order_of(logit, token) < border) return 0;
  return mass_of(weight_of(logit, best, scale));
}
__device__ __forceinline__ uint64_t sum_of_warp(uint64_t value) {
  for (int with = kWarp / 2; with > 0; with /= 2) value += __shfl_xor_sync(kAllLanes, value, with);
  return value;
}

// Masses of groups of 4,096 tokens. chances: rows without a draw have none; null: all rows have.
__global__ void __launch_bounds__(kThreads)
    group_masses(AnswerShape s, const float* logits, const uint64_t* result, const double* chances,
                 const uint64_t* borders, double scale, uint64_t* masses) {
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  if (chances != nullptr && chances[row] < 0) return;
  auto* sums = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [warps]
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  const uint64_t border = borders == nullptr ? 0 : borders[row];
  const float* from = row_of(logits, s.n_logits);
  const int begin = static_cast<int>(blockIdx.x) * kMassGroup;
  uint64_t mass = 0;
#pragma unroll 4
  for (int i = 0; i < kEach; ++i) {
    const int token = begin + i * kThreads + thread;
    if (token < s.n_logits) mass += mass_at(from, token, best, scale, border);
  }
  mass = sum_of_warp(mass);
  if (thread % kWarp == 0) sums[thread / kWarp] = mass;
  __syncthreads();
  if (thread > 0) return;
  mass = 0;
  for (int w = 0; w < kWarps; ++w) mass += sums[w];
  masses[static_cast<size_t>(row) * static_cast<size_t>(mass_groups_of(s.n_logits)) + blockIdx.x] =
      mass;
}

// Sum of a row's masses, in every thread. Groups are at most as many as threads.
__device__ __forceinline__ uint64_t total_mass(const AnswerShape& s, const uint64_t* masses,
                                               uint64_t* shared) {
  const int row = static_cast<int>(blockIdx.y), groups = mass_groups_of(s.n_logits);
  if (static_cast<int>(threadIdx.x) < groups)
    shared[threadIdx.x] =
        masses[static_cast<size_t>(row) * static_cast<size_t>(groups) + threadIdx.x];
  __syncthreads();
  uint64_t total = 0;
  for (int g = 0; g < groups; ++g) total += shared[g];
  return total;
}

__global__ void __launch_bounds__(kThreads)
    sum_masses(AnswerShape s, const uint64_t* masses, uint64_t* result) {
  auto* shared = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [threads]
  const uint64_t total = total_mass(s, masses, shared);
  if (threadIdx.x == 0)
    result[static_cast<size_t>(blockIdx.y) * static_cast<size_t>(s.stride()) +
           static_cast<size_t>(s.n_best)] = total;
}

// The first token at which the masses, added by id, exceed the place of the draw.
__global__ void __launch_bounds__(kThreads)
    draw_token(AnswerShape s, const float* logits, const double* chances, const uint64_t* borders,
               const uint64_t* masses, uint64_t* result) {
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  uint64_t* out = result + static_cast<size_t>(row) * static_cast<size_t>(s.stride());
  uint64_t* drawn = out + s.n_best + 1;
  if (thread == 0) *drawn = ~uint64_t{0};
  const double chance = chances[row];
  if (chance < 0) return;
  auto* shared = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [threads]
  uint64_t place = place_of_draw(chance, total_mass(s, masses, shared));
  int group = 0;
  const int groups = mass_groups_of(s.n_logits);
  for (; group + 1 < groups && shared[group] <= place; ++group) place -= shared[group];
  __syncthreads();  // all have read the groups' masses

  const float best = logit_of(out[0]);
  const uint64_t border = borders == nullptr ? 0 : borders[row];
  const float* from = row_of(logits, s.n_logits);
  const int begin = group * kMassGroup + thread * kEach, end = min(begin + kEach, s.n_logits);
  uint64_t own = 0;
  for (int token = begin; token < end; ++token)
    own += mass_at(from, token, best, s.inverse_temperature, border);
  shared[thread] = own;
  __syncthreads();
  // Whose turn it is: in front of this thread's tokens stand those of warps and of lanes before it.
  uint64_t before = 0;
  for (int t = 0; t < thread; ++t) before += shared[t];
  if (place < before || place >= before + own) return;
  for (int token = begin; token < end; ++token) {
    before += mass_at(from, token, best, s.inverse_temperature, border);
    if (place < before) {
      *drawn = static_cast<uint64_t>(token);
      return;
    }
  }
}

// The least order that stays under top-k (logits equal to the k-th stay), then under top-p: digit
// by digit from the highest, the one in which the sum from above reaches what is needed.
struct BorderSearch {
  uint64_t prefix;  // digits found so far
  uint64_t reached;
  uint32_t left;  // tokens that share them
};
__device__ __forceinline__ uint64_t border_of(const AnswerShape& s, const float* row, float best,
                                              uint64_t least, bool by_mass, uint64_t* sums,
                                              uint32_t* counts, BorderSearch* search) {
  const int thread = static_cast<int>(threadIdx.x);
  const int last = by_mass ? 0 : 32;  // top-k looks at logits alone
  int shift = 56;
  for (;; shift -= 8) {
    if (thread < kDigits) sums[thread] = 0, counts[thread] = 0;
    __syncthreads();
    const uint64_t prefix = shift == 56 ? 0 : search->prefix;
    for (int token = thread; token < s.n_logits; token += kBorderThreads) {
      const uint64_t order = order_of(row[token], token);
      if (order < least || (shift < 56 && order >> (shift + 8) != prefix)) continue;
      const uint64_t mass =
          by_mass ? mass_of(weight_of(row[token], best, s.inverse_temperature)) : 1;
      const auto digit = static_cast<int>(order >> shift & 0xffu);
      atomicAdd(reinterpret_cast<unsigned long long*>(&sums[digit]),
                static_cast<unsigned long long>(mass));
      atomicAdd(&counts[digit], 1u);
    }
    __syncthreads();
    if (thread == 0) {
      BorderSearch found = shift == 56 ? BorderSearch{0, 0, 0} : *search;
      uint64_t need = static_cast<uint64_t>(s.top_k);
      if (by_mass) {
        if (shift == 56) {
          uint64_t total = 0;
          for (int d = 0; d < kDigits; ++d) total += sums[d];
          sums[kDigits] = nucleus_mass(s.top_p, total);
        }
        need = sums[kDigits];
      }
      int digit = kDigits - 1;
      while (digit > 0 && found.reached + sums[digit] < need) found.reached += sums[digit--];
      found.prefix = found.prefix << 8 | static_cast<uint64_t>(digit);
      found.left = counts[digit];
      *search = found;
    }
    __syncthreads();
    if (shift == last || search->left <= 1) break;
  }
  const uint64_t border = search->prefix << shift;
  __syncthreads();  // all have read what was found
  return border;
}

constexpr size_t kBorderShared =
    sizeof(uint64_t) * (kDigits + 1) + sizeof(uint32_t) * kDigits + sizeof(BorderSearch);

__global__ void __launch_bounds__(kBorderThreads)
    find_borders(AnswerShape s, const float* logits, const uint64_t* result, const double* chances,
                 uint64_t* borders) {
  const int row = static_cast<int>(blockIdx.y);
  if (chances[row] < 0) return;
  auto* sums = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [digits], what is needed
  auto* search = reinterpret_cast<BorderSearch*>(sums + kDigits + 1);
  auto* counts = reinterpret_cast<uint32_t*>(search + 1);  // [digits]
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  const float* from = row_of(logits, s.n_logits);
  uint64_t border = 0;
  if (s.top_k > 0 && s.top_k < s.n_logits)
    border = border_of(s, from, best, 0, false, sums, counts, search);
  if (s.top_p < 1) border = border_of(s, from, best, border, true, sums, counts, search);
  if (threadIdx.x == 0) borders[row] = border;
}

}  // namespace

size_t answer_workspace(const AnswerShape& shape) { return parts_of(shape).end; }

void answer_rows(const AnswerShape& s, const float* logits, const double* chances,
                 uint64_t* workspace, uint64_t* result, cudaStream_t stream) {
  check_argument(s.n_best >= 1 && s.n_best <= s.n_logits, "the best of a row: 1 to the vocabulary");
  check_argument(static_cast<size_t>(s.n_logits) < kMaxSampledVocab, "fewer than 2^20 tokens");
  check_argument(!s.draws || chances != nullptr, "draws without chances");
  const Parts p = parts_of(s);
  const auto grid = [&](int blocks) {
    return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(s.rows));
  };
  uint64_t *found = workspace + p.found, *masses = workspace + p.masses,
           *borders = workspace + p.borders;
  launch("best_of_groups", best_of_groups, grid((groups_of(s.n_logits) + kWarps - 1) / kWarps),
         kThreads, 0, stream, s, logits, found);
  launch("best_of_found", best_of_found, grid(1), kThreads, 0, stream, s, found,
         workspace + p.refound, result);
  const int mass_groups = mass_groups_of(s.n_logits);
  const auto add_masses = [&](const double* of, const uint64_t* behind, double scale) {
    launch("group_masses", group_masses, grid(mass_groups), kThreads, kWarps * sizeof(uint64_t),
           stream, s, logits, result, of, behind, scale, masses);
  };
  if (s.sums) {
    add_masses(nullptr, nullptr, 1.0);
    launch("sum_masses", sum_masses, grid(1), kThreads, kThreads * sizeof(uint64_t), stream, s,
           masses, result);
  }
  if (!s.draws) return;
  const bool cut = s.top_p < 1 || (s.top_k > 0 && s.top_k < s.n_logits);
  if (!cut) borders = nullptr;
  if (cut)
    launch("find_borders", find_borders, grid(1), kBorderThreads, kBorderShared, stream, s, logits,
           result, chances, borders);
  add_masses(chances, borders, s.inverse_temperature);
  launch("draw_token", draw_token, grid(1), kThreads, kThreads * sizeof(uint64_t), stream, s,
         logits, chances, borders, masses, result);
}

}  // namespace evalrun::engine::cuda
