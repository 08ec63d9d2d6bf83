// The best of a row in two kernels: every warp finds those of 256 logits, one block a row merges
// what the warps found. A draw adds a kernel for the masses of groups of 1,024 tokens and one that
// finds the group, then the token. Draws by noise are a race in groups of as many tokens, then one
// between their winners. Top-k and top-p put two kernels in front: one adds up the tokens by the
// first bits of their place in the order (of sampling_arith.h), one finds the border, the least
// place that stays. Rows with a task have the mass of every token written down as well, and a block
// of their own in the last kernel.
#include <algorithm>

#include "engine/cuda/kernels/answers.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/runtime/check.h"
#include "engine/noise_arith.h"
#include "engine/sampling_arith.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// Keys of a lane where the best of groups are found. Few, so that a row is many warps; more where
// the groups were more than the lists that one block merges.
constexpr int kFewKeys = 8, kManyKeys = 32;
constexpr int kMostLists = 1024;
constexpr int kEach = 4;  // tokens of a thread in a block's mass
constexpr int kMassGroup = kEach * kThreads;
constexpr int kGroupsEach = 4;  // masses of groups that a thread adds up
constexpr int kNoiseEach = 4;   // noise blocks of a block
constexpr int kBinBits = 12;    // of an order: sign, exponent, three bits of the mantissa
constexpr int kBins = 1 << kBinBits;
constexpr int kBinShift = 64 - kBinBits;
constexpr int kBinEach = 3;  // tokens of a thread
constexpr int kBinGroup = kBinEach * kThreads;
constexpr int kBorderThreads = 1024;
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kTaskThreads = 1024;
constexpr int kTaskWarps = kTaskThreads / kWarp;
constexpr int kTaskGroup = 512;  // tokens, whose masses are added up first
static_assert(size_t{kMostLists} * kManyKeys * kWarp >= kMaxSampledVocab);
static_assert(size_t{kThreads} * kGroupsEach * kMassGroup >= kMaxSampledVocab);

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

// 64-bit additions to shared memory are a loop of exchanges; those of 32 bits are not. So a sum is
// kept in parts, each the sum of kBits bits of what was added, the last one of all that is left.
template <int kParts, int kBits>
__device__ __forceinline__ void add_in_parts(uint32_t* parts, int stride, int at, uint64_t value) {
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    const uint64_t rest = value >> (kBits * p);
    const auto part =
        static_cast<uint32_t>(p + 1 < kParts ? rest & ((uint64_t{1} << kBits) - 1) : rest);
    if (part > 0) atomicAdd(&parts[p * stride + at], part);
  }
}
template <int kParts, int kBits>
__device__ __forceinline__ uint64_t sum_of_parts(const uint32_t* parts, int stride, int at) {
  uint64_t sum = 0;
#pragma unroll
  for (int p = 0; p < kParts; ++p)
    sum += static_cast<uint64_t>(parts[p * stride + at]) << (kBits * p);
  return sum;
}
// A mass is at most 2^44: no part of these sums passes 32 bits.
constexpr int kBinParts = 2, kBinPartBits = 22;
static_assert(kBinParts * kBinPartBits == 44);
static_assert((uint64_t{kBinGroup} << kBinPartBits) < (uint64_t{1} << 32));
constexpr int kDigitParts = 4, kDigitPartBits = 11;
static_assert(kDigitParts * kDigitPartBits == 44);
static_assert((uint64_t{kMaxSampledVocab} << kDigitPartBits) < (uint64_t{1} << 32));

// ---- The best ----

// Of a whole warp.
__device__ __forceinline__ uint64_t largest_of_warp(uint64_t own) {
#if defined(__CUDA_ARCH__)
  const auto high = static_cast<uint32_t>(own >> 32);
  const uint32_t top = __reduce_max_sync(kAllLanes, high);
  const uint32_t low = high == top ? static_cast<uint32_t>(own) : 0u;
  return static_cast<uint64_t>(top) << 32 | __reduce_max_sync(kAllLanes, low);
#else
  for (int with = kWarp / 2; with > 0; with /= 2)
    own = larger(own, __shfl_xor_sync(kAllLanes, own, with));
  return own;
#endif
}

// The n_best largest of a warp's keys (0: none), in order, written by its first lane.
template <int kKeys>
__device__ __forceinline__ void best_of_warp(uint64_t (&key)[kKeys], int n_best, uint64_t* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint64_t own = 0;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) own = larger(own, key[i]);
  for (int r = 0; r < n_best; ++r) {
    const uint64_t best = largest_of_warp(own);
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

// The first kernel of all: it also clears the bins, where the shape needs them.
template <int kKeys>
__global__ void __launch_bounds__(kThreads)
    best_of_groups(AnswerShape s, const float* logits, uint64_t* found, uint64_t* bins) {
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const auto row = static_cast<size_t>(blockIdx.y);
  if (bins != nullptr)
    for (int i = static_cast<int>(blockIdx.x) * kThreads + thread; i < kBins;
         i += static_cast<int>(gridDim.x) * kThreads)
      bins[row * kBins + static_cast<size_t>(i)] = 0;
  const int group = static_cast<int>(blockIdx.x) * kWarps + warp, groups = groups_of(s.n_logits);
  if (group >= groups) return;
  const float* from = row_of(logits, s.n_logits);
  const int begin = group * kKeys * kWarp + lane;
  float value[kKeys];  // all on their way before the first is looked at
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int token = begin + i * kWarp;
    value[i] = token < s.n_logits ? from[token] : 0.0f;
  }
  uint64_t key[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int token = begin + i * kWarp;
    key[i] = token < s.n_logits ? order_of(value[i], token) : 0;
  }
  const size_t at = row * static_cast<size_t>(groups) + static_cast<size_t>(group);
  best_of_warp(key, s.n_best, found + at * static_cast<size_t>(s.n_best));
}

// Merges the lists of a warp's lanes, each `length` long (0: none) and in order.
__device__ __forceinline__ void merge_lists(const uint64_t* list, int length, int n_best,
                                            uint64_t* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  // One key ahead, so that nobody waits for the next.
  uint64_t head = length > 0 ? list[0] : 0, next = length > 1 ? list[1] : 0;
  for (int r = 0, at = 2; r < n_best; ++r) {
    const uint64_t best = largest_of_warp(head);
    if (lane == 0) to[r] = best;
    if (head == best) {
      head = next;
      next = at < length ? list[at] : 0;
      ++at;
    }
  }
}

// A list a lane; then one warp merges what the warps made of theirs.
__global__ void __launch_bounds__(kMostLists)
    best_of_found(AnswerShape s, const uint64_t* found, uint64_t* result) {
  wait_for_previous();
  auto* merged = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [warps][n_best]
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp;
  const auto row = static_cast<size_t>(blockIdx.y);
  const int lists = groups_of(s.n_logits);
  const size_t at = row * static_cast<size_t>(lists) + static_cast<size_t>(thread);
  uint64_t* out = result + row * static_cast<size_t>(s.stride());
  merge_lists(found + at * static_cast<size_t>(s.n_best), thread < lists ? s.n_best : 0, s.n_best,
              warps == 1 ? out : merged + warp * s.n_best);
  if (warps == 1) return;
  __syncthreads();
  if (warp > 0) return;
  merge_lists(merged + lane * s.n_best, lane < warps ? s.n_best : 0, s.n_best, out);
}

// ---- Masses and draws ----

// The mass of one token; 0 beyond the border.
__device__ __forceinline__ uint64_t mass_at(float logit, int token, float best, double scale,
                                            uint64_t border) {
  if (border > 0 && order_of(logit, token) < border) return 0;
  return mass_of(weight_of(logit, best, scale));
}

// Where the masses of a row with a task are: a draw's are kept, a test's used up.
__device__ __forceinline__ uint64_t* distribution_of(const AnswerShape& s, const AnswerTask& task,
                                                     const DistributionMemory& kept,
                                                     uint64_t* dists) {
  if (task.kind == AnswerTask::kDraws)
    return kept.mass + static_cast<size_t>(task.dist) * static_cast<size_t>(kept.vocab);
  return dists + static_cast<size_t>(task.place) * static_cast<size_t>(s.n_logits);
}

// Masses of groups of 1,024 tokens, and of every one of them where the row has a task. Rows without
// a uniform have none; without uniforms all rows have.
__global__ void __launch_bounds__(kThreads)
    group_masses(AnswerShape s, const float* logits, const uint64_t* result, AnswerInputs in,
                 const uint64_t* borders, double scale, uint64_t* masses, uint64_t* dists) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  if (in.uniforms != nullptr && in.uniforms[row] < 0) return;
  const float* from = row_of(logits, s.n_logits);
  const int begin = static_cast<int>(blockIdx.x) * kMassGroup + thread;
  float value[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int token = begin + i * kThreads;
    value[i] = token < s.n_logits ? from[token] : 0.0f;
  }
  uint64_t* dist = nullptr;
  const int32_t* ids = nullptr;
  if (in.tasks != nullptr && in.tasks[row].kind != AnswerTask::kNone) {
    dist = distribution_of(s, in.tasks[row], in.dists, dists);
    if (in.tasks[row].kind == AnswerTask::kDraws) ids = in.dists.ids;
  }
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  const uint64_t border = borders == nullptr ? 0 : borders[row];
  uint64_t mass = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int token = begin + i * kThreads;
    if (token < s.n_logits) {
      const uint64_t own = mass_at(value[i], token, best, scale, border);
      mass += own;
      if (dist != nullptr) dist[ids == nullptr ? token : ids[token]] = own;
    }
  }
  const BlockSum sum =
      sum_of_block(mass, reinterpret_cast<uint64_t*>(evalrun_shared_memory()));  // [warps]
  if (thread == 0)
    masses[static_cast<size_t>(row) * static_cast<size_t>(mass_groups_of(s.n_logits)) +
           blockIdx.x] = sum.total;
}

__device__ __forceinline__ const uint64_t* masses_of_row(const AnswerShape& s,
                                                         const uint64_t* masses) {
  return masses + static_cast<size_t>(blockIdx.y) * static_cast<size_t>(mass_groups_of(s.n_logits));
}

__global__ void __launch_bounds__(kWarp)
    sum_masses(AnswerShape s, const uint64_t* masses, uint64_t* result) {
  wait_for_previous();
  const uint64_t total = sum_of_groups(mass_groups_of(s.n_logits), masses_of_row(s, masses));
  if (threadIdx.x == 0)
    result[static_cast<size_t>(blockIdx.y) * static_cast<size_t>(s.stride()) +
           static_cast<size_t>(s.n_best)] = total;
}

// Shared memory of a draw.
struct DrawMemory {
  uint64_t sums[kWarps];
  uint64_t place;  // within the group
  int32_t group;
};

// The first token at which the masses, added by id, exceed the place of the draw.
__global__ void __launch_bounds__(kThreads)
    draw_token(AnswerShape s, const float* logits, AnswerInputs in, const uint64_t* borders,
               const uint64_t* masses, uint64_t* result) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  if (in.tasks != nullptr && in.tasks[row].kind != AnswerTask::kNone) return;
  uint64_t* out = result + static_cast<size_t>(row) * static_cast<size_t>(s.stride());
  uint64_t* drawn = out + s.n_best + 1;
  if (thread == 0) *drawn = ~uint64_t{0};
  const double uniform = in.uniforms[row];
  if (uniform < 0) return;
  auto& m = *reinterpret_cast<DrawMemory*>(evalrun_shared_memory());

  // The group.
  const int groups = mass_groups_of(s.n_logits);
  const uint64_t* of_groups = masses_of_row(s, masses);
  uint64_t own[kGroupsEach], sum = 0;
#pragma unroll
  for (int i = 0; i < kGroupsEach; ++i) {
    const int group = thread * kGroupsEach + i;
    own[i] = group < groups ? of_groups[group] : 0;
    sum += own[i];
  }
  const BlockSum all = sum_of_block(sum, m.sums);
  if (all.total == 0) return;  // nothing to draw from
  uint64_t place = place_of_draw(uniform, all.total), before = all.before;
#pragma unroll
  for (int i = 0; i < kGroupsEach; ++i) {
    if (place >= before && place < before + own[i])
      m.group = thread * kGroupsEach + i, m.place = place - before;
    before += own[i];
  }
  __syncthreads();
  place = m.place;

  // The token: four in turn are a thread's.
  const float best = logit_of(out[0]);
  const uint64_t border = borders == nullptr ? 0 : borders[row];
  const float* from = row_of(logits, s.n_logits);
  const int begin = m.group * kMassGroup + thread * kEach;
  float value[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) value[i] = begin + i < s.n_logits ? from[begin + i] : 0.0f;
  uint64_t mass[kEach];
  sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    mass[i] = begin + i < s.n_logits
                  ? mass_at(value[i], begin + i, best, s.inverse_temperature, border)
                  : 0;
    sum += mass[i];
  }
  before = sum_of_block(sum, m.sums).before;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (place >= before && place < before + mass[i]) *drawn = static_cast<uint64_t>(begin + i);
    before += mass[i];
  }
}

// A token and how fast it is (engine/gumbel.cpp). Nobody: -1, speed 0.
struct Racer {
  double speed = 0;
  int32_t token = -1;
};
// Of equal speeds the lower id wins. A whole warp.
__device__ __forceinline__ Racer fastest_of_warp(Racer own) {
  for (int with = kWarp / 2; with > 0; with /= 2) {
    const double speed = __shfl_xor_sync(kAllLanes, own.speed, with);
    const int32_t token = __shfl_xor_sync(kAllLanes, own.token, with);
    if (speed > own.speed || (speed == own.speed && token < own.token))
      own.speed = speed, own.token = token;
  }
  return own;
}

// The token of a group that arrives first: a thread for each token of a noise block, one block
// after the other. A thread meets its ids in order.
static_assert(kThreads == kNoiseBlock && kNoiseEach * kNoiseBlock == kMassGroup);
__global__ void __launch_bounds__(kThreads)
    draw_by_noise(AnswerShape s, const float* logits, const uint64_t* result,
                  const double* uniforms, const uint64_t* borders, uint64_t* winners) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x),
            warp = thread / kWarp, lane = thread % kWarp;
  const double uniform = uniforms[row];
  if (uniform < 0) return;
  auto* speeds = reinterpret_cast<double*>(evalrun_shared_memory());  // [warps]
  auto* tokens = reinterpret_cast<int32_t*>(speeds + kWarps);         // [warps]
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  const uint64_t border = borders == nullptr ? 0 : borders[row];
  const float* from = row_of(logits, s.n_logits);
  const TokenNoise noise(uniform);
  const int begin = static_cast<int>(blockIdx.x) * kMassGroup + thread;
  Racer own;
  float next = begin < s.n_logits ? from[begin] : 0.0f;
#pragma unroll 1
  for (int i = 0; i < kNoiseEach; ++i) {
    const int token = begin + i * kThreads, ahead = token + kThreads;
    const float logit = next;
    next = i + 1 < kNoiseEach && ahead < s.n_logits ? from[ahead] : 0.0f;
    if (token >= s.n_logits || (border > 0 && order_of(logit, token) < border)) continue;
    const double weight = weight_of(logit, best, s.inverse_temperature);
    const TokenNoise::First first = noise.first(token / kNoiseBlock);
    if (weight / first.arrival <= own.speed) continue;
    const double speed = weight / noise.arrival(token, first);
    if (speed > own.speed) own.speed = speed, own.token = token;
  }
  own = fastest_of_warp(own);
  if (lane == 0) speeds[warp] = own.speed, tokens[warp] = own.token;
  __syncthreads();
  if (warp > 0) return;
  own = {};
  if (lane < kWarps) own.speed = speeds[lane], own.token = tokens[lane];
  own = fastest_of_warp(own);
  if (lane > 0) return;
  uint64_t* to =
      winners +
      2 * (static_cast<size_t>(row) * static_cast<size_t>(mass_groups_of(s.n_logits)) + blockIdx.x);
  to[0] = std::bit_cast<uint64_t>(own.speed);
  to[1] = static_cast<uint64_t>(static_cast<int64_t>(own.token));
}

// Of the groups' winners. A warp a row.
__global__ void __launch_bounds__(kWarp)
    first_to_arrive(AnswerShape s, const double* uniforms, const uint64_t* winners,
                    uint64_t* result) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x),
            groups = mass_groups_of(s.n_logits);
  const uint64_t* from = winners + 2 * static_cast<size_t>(row) * static_cast<size_t>(groups);
  Racer own;
  if (uniforms[row] >= 0)
    for (int g = lane; g < groups; g += kWarp) {
      const auto speed = std::bit_cast<double>(from[2 * g]);
      if (speed > own.speed)  // ids ascend
        own.speed = speed, own.token = static_cast<int32_t>(from[2 * g + 1]);
    }
  own = fastest_of_warp(own);
  if (lane == 0)
    result[static_cast<size_t>(row) * static_cast<size_t>(s.stride()) +
           static_cast<size_t>(s.n_best + 1)] =
        static_cast<uint64_t>(static_cast<int64_t>(own.token));
}

// ---- Borders ----

// Whether tokens are counted first, for top-k. Otherwise their masses are added up.
EVALRUN_DEVICE constexpr bool cuts_by_count(const AnswerShape& s) {
  return s.top_k > 0 && s.top_k < s.n_logits;
}

// Counts or masses of a row's tokens by the first bits of their order, added up by block, then in
// `bins` [rows][bins], which are clear.
__global__ void __launch_bounds__(kThreads)
    fill_bins(AnswerShape s, const float* logits, const uint64_t* result, const double* uniforms,
              uint64_t* bins) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  if (uniforms[row] < 0) return;
  const float* from = row_of(logits, s.n_logits);
  const int begin = static_cast<int>(blockIdx.x) * kBinGroup + thread;
  float value[kBinEach];
#pragma unroll
  for (int i = 0; i < kBinEach; ++i) {
    const int token = begin + i * kThreads;
    value[i] = token < s.n_logits ? from[token] : 0.0f;
  }
  auto* parts = reinterpret_cast<uint32_t*>(evalrun_shared_memory());  // [parts][bins]
  auto* words = reinterpret_cast<uint4*>(parts);
  for (int i = thread; i < kBinParts * kBins / 4; i += kThreads) words[i] = make_uint4(0, 0, 0, 0);
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kBinEach; ++i) {
    const int token = begin + i * kThreads;
    if (token < s.n_logits) {
      const auto bin = static_cast<int>(order_of(value[i], token) >> kBinShift);
      const uint64_t own =
          cuts_by_count(s) ? 1 : mass_of(weight_of(value[i], best, s.inverse_temperature));
      add_in_parts<kBinParts, kBinPartBits>(parts, kBins, bin, own);
    }
  }
  __syncthreads();
  uint64_t* to = bins + static_cast<size_t>(row) * kBins;
  for (int bin = thread; bin < kBins; bin += kThreads) {
    const uint64_t sum = sum_of_parts<kBinParts, kBinPartBits>(parts, kBins, bin);
    if (sum > 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(&to[bin]),
                static_cast<unsigned long long>(sum));
  }
}

constexpr uint32_t kMostListed = kBorderThreads;  // a token a thread

// The least order that stays under top-k (logits equal to the k-th stay), then under top-p: digit
// by digit from the highest, the one in which the sum from above reaches what is needed. The first
// digit is a bin, but for top-p behind top-k. As soon as few tokens are left, after the first digit
// as a rule, they are listed and looked at alone.
struct BorderSearch {
  uint64_t least = 0;    // tokens below it are out
  uint64_t need = 0;     // 0: top-p's share, not known yet
  uint64_t reached = 0;  // by the tokens above those that share the digits
  uint64_t prefix = 0;   // digits found so far
  int shift = 64;        // of them
  uint32_t left = 0;     // tokens that share them, or, where nobody counted, what could be listed
  bool by_mass = false;

  __device__ __forceinline__ bool holds(uint64_t order) const {
    return order >= least && (shift == 64 || order >> shift == prefix);
  }
  __device__ __forceinline__ uint64_t border() const { return larger(prefix << shift, least); }
};
// Shared memory of a search.
struct BorderMemory {
  uint64_t sums[kBorderThreads / kWarp];
  uint64_t list[kMostListed];  // orders
  uint64_t prefix, reached;    // found
  uint32_t left;
  uint32_t listed;
  uint32_t parts[kDigitParts * kDigits];
  uint32_t counts[kDigits];
};

// Threads have sums of digits from above: whether this one's is the digit. The lowest digit is,
// where no sum reaches what is needed.
__device__ __forceinline__ bool reaches(const BorderSearch& search, uint64_t before, uint64_t own,
                                        int digit) {
  return before < search.need && (before + own >= search.need || digit == 0);
}
// What one thread has found, once it is written.
__device__ __forceinline__ void take_digit(BorderSearch& search, int width, const BorderMemory& m) {
  __syncthreads();
  search.prefix = m.prefix, search.reached = m.reached, search.left = m.left;
  search.shift -= width;
}

// The first digit, four bins a thread. A whole block, as are all that follow.
__device__ __forceinline__ void find_bin(const AnswerShape& s, const uint64_t* bins,
                                         BorderSearch& search, BorderMemory& m) {
  constexpr int kOwn = kBins / kBorderThreads;
  static_assert(kOwn * kBorderThreads == kBins);
  const int top = kBins - 1 - static_cast<int>(threadIdx.x) * kOwn;
  uint64_t own[kOwn], sum = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    own[i] = bins[top - i];
    sum += own[i];
  }
  const BlockSum all = sum_of_block(sum, m.sums);
  if (search.by_mass) search.need = nucleus_mass(s.top_p, all.total);
  uint64_t before = all.before;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (reaches(search, before, own[i], top - i)) {
      m.prefix = static_cast<uint64_t>(top - i), m.reached = before;
      m.left = search.by_mass ? kMostListed : static_cast<uint32_t>(own[i]);
    }
    before += own[i];
  }
  take_digit(search, kBinBits, m);
}

// The next digit, of those that tokens were counted by. A digit a thread.
__device__ __forceinline__ void find_digit(const AnswerShape& s, int width, BorderSearch& search,
                                           BorderMemory& m) {
  const int digit = (1 << width) - 1 - static_cast<int>(threadIdx.x);
  const uint32_t count = digit >= 0 ? m.counts[digit] : 0;
  uint64_t own = count;
  if (search.by_mass)
    own = digit >= 0 ? sum_of_parts<kDigitParts, kDigitPartBits>(m.parts, kDigits, digit) : 0;
  const BlockSum all = sum_of_block(own, m.sums);
  if (search.need == 0) search.need = nucleus_mass(s.top_p, all.total);
  const uint64_t before = search.reached + all.before;
  if (digit >= 0 && reaches(search, before, own, digit)) {
    m.prefix = search.prefix << width | static_cast<uint64_t>(digit), m.reached = before;
    m.left = count;
  }
  take_digit(search, width, m);
}

__device__ __forceinline__ void clear_digits(BorderMemory& m) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kDigitParts * kDigits; i += kBorderThreads) m.parts[i] = 0;
  if (thread < kDigits) m.counts[thread] = 0;
  __syncthreads();
}
__device__ __forceinline__ void count_digit(const BorderSearch& search, int width, uint64_t order,
                                            uint64_t mass, BorderMemory& m) {
  const auto digit =
      static_cast<int>(order >> (search.shift - width) & ((uint64_t{1} << width) - 1));
  if (search.by_mass) add_in_parts<kDigitParts, kDigitPartBits>(m.parts, kDigits, digit, mass);
  atomicAdd(&m.counts[digit], 1u);
}

// take(logit, token) of a row, kAhead logits of a thread on their way before the first is used.
template <int kAhead, typename Take>
__device__ __forceinline__ void for_row(const float* row, int n, Take take) {
  for (int begin = static_cast<int>(threadIdx.x); begin < n; begin += kAhead * kBorderThreads) {
    float value[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int token = begin + i * kBorderThreads;
      value[i] = token < n ? row[token] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int token = begin + i * kBorderThreads;
      if (token < n) take(value[i], token);
    }
  }
}

// Lists the tokens that are left; how many they are, which may be more than the list has room for.
__device__ __forceinline__ uint32_t list_tokens(const float* row, int n, const BorderSearch& search,
                                                BorderMemory& m) {
  if (threadIdx.x == 0) m.listed = 0;
  __syncthreads();
  for_row<8>(row, n, [&](float logit, int token) {
    const uint64_t order = order_of(logit, token);
    if (!search.holds(order)) return;
    const uint32_t at = atomicAdd(&m.listed, 1u);
    if (at < kMostListed) m.list[at] = order;
  });
  __syncthreads();
  return m.listed;
}

// All digits that are left to find.
__device__ __forceinline__ void find_digits(const AnswerShape& s, const float* row, float best,
                                            BorderSearch& search, BorderMemory& m) {
  const uint32_t thread = threadIdx.x;
  const int last = search.by_mass ? 0 : 32;  // top-k looks at logits alone
  const auto mass_here = [&](float logit) {
    return search.by_mass ? mass_of(weight_of(logit, best, s.inverse_temperature)) : 0;
  };
  bool listed = false, mine = false;  // mine: this thread has a token of the list
  uint64_t order = 0, mass = 0;
  while (search.left > 1 && search.shift > last) {
    if (!listed && search.left <= kMostListed) {
      const uint32_t n = list_tokens(row, s.n_logits, search, m);
      listed = n <= kMostListed, mine = listed && thread < n;
      if (mine) order = m.list[thread], mass = mass_here(logit_of(order));
    }
    const int width = min(kDigitBits, search.shift - last);
    clear_digits(m);
    if (listed) {
      if (mine && search.holds(order)) count_digit(search, width, order, mass, m);
    } else {
      for_row<2>(row, s.n_logits, [&](float logit, int token) {
        const uint64_t of_token = order_of(logit, token);
        if (search.holds(of_token)) count_digit(search, width, of_token, mass_here(logit), m);
      });
    }
    __syncthreads();
    find_digit(s, width, search, m);
  }
}

// `bins` are what fill_bins() has made.
__global__ void __launch_bounds__(kBorderThreads)
    find_borders(AnswerShape s, const float* logits, const uint64_t* result, const double* uniforms,
                 const uint64_t* bins, uint64_t* borders) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y);
  if (uniforms[row] < 0) return;
  auto& m = *reinterpret_cast<BorderMemory*>(evalrun_shared_memory());
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  const float* from = row_of(logits, s.n_logits);
  BorderSearch search;
  search.by_mass = !cuts_by_count(s);
  if (!search.by_mass) search.need = static_cast<uint64_t>(s.top_k);
  find_bin(s, bins + static_cast<size_t>(row) * kBins, search, m);
  while (true) {
    find_digits(s, from, best, search, m);
    const uint64_t stay = search.reached + search.left;
    if (search.by_mass || s.top_p >= 1 || stay <= 1) break;
    // Top-p of what top-k has left, from the first digit: the bins are counts.
    BorderSearch among;
    among.least = search.border(), among.left = static_cast<uint32_t>(stay);
    among.by_mass = true;
    search = among;
  }
  if (threadIdx.x == 0) borders[row] = search.border();
}

// ---- Tasks ----

// Sums of groups of 512 masses by mass(token). A whole block; there is a barrier at the end.
template <typename Mass>
__device__ __forceinline__ void add_groups(int n, uint64_t* sums, Mass mass) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int begin = warp * kTaskGroup; begin < n; begin += kTaskWarps * kTaskGroup) {
    const int end = min(begin + kTaskGroup, n);
    uint64_t own = 0;
    for (int token = begin + lane; token < end; token += kWarp) own += mass(token);
    own = sum_of_warp(own);
    if (lane == 0) sums[begin / kTaskGroup] = own;
  }
  __syncthreads();
}
// The first place in [begin, end) at which the masses, added in order, exceed `place`, which then
// counts from it. A whole warp; -1 where they do not reach so far.
template <typename Mass>
__device__ __forceinline__ int find_place(int begin, int end, uint64_t& place, Mass mass) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (; begin < end; begin += kWarp) {
    const uint64_t own = begin + lane < end ? mass(begin + lane) : 0;
    const uint64_t upto = sum_upto_lane(own);
    const unsigned behind = __ballot_sync(kAllLanes, place < upto);
    if (behind != 0) {
      const int first = __ffs(static_cast<int>(behind)) - 1;
      place -= __shfl_sync(kAllLanes, upto - own, first);
      return begin + first;
    }
    place -= __shfl_sync(kAllLanes, upto, kWarp - 1);
  }
  return -1;
}
// The token, by its group. A whole warp.
template <typename Mass>
__device__ __forceinline__ int find_token(int n, const uint64_t* sums, uint64_t place, Mass mass) {
  const int groups = (n + kTaskGroup - 1) / kTaskGroup;
  const int group = find_place(0, groups, place, [&](int g) { return sums[g]; });
  if (group < 0) return -1;
  const int begin = group * kTaskGroup;
  return find_place(begin, min(begin + kTaskGroup, n), place, mass);
}
__device__ __forceinline__ bool holds(const int32_t* tokens, int n, int token) {
  for (int i = 0; i < n; ++i)
    if (tokens[i] == token) return true;
  return false;
}

// draw_without_replacement() of a kept distribution, whose masses are known.
__device__ __forceinline__ void keep_and_draw(const AnswerTask& task, uint64_t total,
                                              double uniform, const AnswerInputs& in,
                                              const uint64_t* dist, uint64_t* sums, int32_t* drawn,
                                              uint64_t* out) {
  const int n = in.dists.vocab, thread = static_cast<int>(threadIdx.x);
  if (thread == 0) in.dists.total[task.dist] = total;
  add_groups(n, sums, [&](int token) { return dist[token]; });
  if (thread >= kWarp) return;
  uint64_t left = total;
  for (int i = 0; i <= task.count; ++i) {
    if (i > 0) uniform = in.further_uniforms[task.first + i - 1];
    const auto mass = [&](int token) { return holds(drawn, i, token) ? 0 : dist[token]; };
    const int token = left == 0 ? -1 : find_token(n, sums, place_of_draw(uniform, left), mass);
    __syncwarp();  // all have read `drawn` and the sums
    if (token >= 0) left -= dist[token];
    if (thread == 0) {
      drawn[i] = token;
      if (token >= 0) sums[token / kTaskGroup] -= dist[token];
      out[i == 0 ? 0 : 1 + i] = static_cast<uint64_t>(static_cast<int64_t>(token));
      if (i == 0) out[1] = token < 0 ? 0 : dist[token];
    }
    __syncwarp();
  }
}

// try_children(), the target's distribution being `distribution`.
__device__ __forceinline__ void try_children(const AnswerTask& task, int n, uint64_t total,
                                             double uniform, const AnswerInputs& in, uint64_t* dist,
                                             uint64_t* sums, uint64_t* out) {
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t* children = in.children + task.first;
  const uint64_t* draft =
      in.dists.mass + static_cast<size_t>(task.dist) * static_cast<size_t>(in.dists.vocab);
  uint64_t draft_total = in.dists.total[task.dist];
  const int groups = (n + kTaskGroup - 1) / kTaskGroup;
  bool added = false;  // the sums are those of the distribution
  for (int c = 0; c < task.count; ++c) {
    const int child = children[c], before = task.kind == AnswerTask::kRejection ? c : 0;
    const auto mass = [&](int token) {
      return token < in.dists.vocab && !holds(children, before, token) ? draft[token] : 0;
    };
    if (mass(child) == 0) {
      if (thread == 0) out[0] = 0, out[1] = static_cast<uint64_t>(int64_t{kChildWithoutMass});
      return;
    }
    const double norm = 1.0 / static_cast<double>(total),
                 draft_norm = 1.0 / static_cast<double>(draft_total);
    if (passes(static_cast<double>(dist[child]) * norm,
               static_cast<double>(mass(child)) * draft_norm, uniform)) {
      if (thread == 0) out[0] = static_cast<uint64_t>(child), out[1] = static_cast<uint64_t>(c);
      return;
    }
    const auto residual = [&](int token) {  // of nothing nothing is left: most, before long
      const uint64_t own = dist[token];
      return own == 0 ? 0 : residual_mass(own, norm, mass(token), draft_norm);
    };
    add_groups(n, sums, residual);
    const uint64_t left = sum_of_groups(groups, sums);
    added = left > 0;
    if (left > 0) {
      for (int token = thread; token < n; token += kTaskThreads) dist[token] = residual(token);
      total = left;
    }
    __syncthreads();
    if (task.kind == AnswerTask::kRejection) draft_total -= draft[child];
  }
  if (!added) add_groups(n, sums, [&](int token) { return dist[token]; });
  if (thread >= kWarp) return;
  const int token =
      find_token(n, sums, place_of_draw(uniform, total), [&](int t) { return dist[t]; });
  if (thread == 0)
    out[0] = static_cast<uint64_t>(static_cast<int64_t>(token)), out[1] = ~uint64_t{0};
}

__global__ void __launch_bounds__(kTaskThreads)
    do_tasks(AnswerShape s, AnswerInputs in, const uint64_t* masses, uint64_t* dists,
             uint64_t* result) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y);
  const AnswerTask task = in.tasks[row];
  const double uniform = in.uniforms[row];
  if (task.kind == AnswerTask::kNone || uniform < 0) return;
  auto* sums = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [groups]
  const uint64_t total = sum_of_groups(mass_groups_of(s.n_logits), masses_of_row(s, masses));
  uint64_t* dist = distribution_of(s, task, in.dists, dists);
  // The drawn token, the child that passed or the token's mass, further tokens.
  uint64_t* out =
      result + static_cast<size_t>(row) * static_cast<size_t>(s.stride()) + s.n_best + 1;
  if (task.kind == AnswerTask::kDraws) {
    const int groups = (in.dists.vocab + kTaskGroup - 1) / kTaskGroup;
    keep_and_draw(task, total, uniform, in, dist, sums, reinterpret_cast<int32_t*>(sums + groups),
                  out);
  } else {
    try_children(task, s.n_logits, total, uniform, in, dist, sums, out);
  }
}

// Clears the bins on the way, unless they are null.
void find_best(const AnswerShape& s, const float* logits, uint64_t* found, uint64_t* bins,
               uint64_t* result, cudaStream_t stream) {
  const int groups = groups_of(s.n_logits);
  const auto rows = static_cast<unsigned>(s.rows);
  const dim3 grid(static_cast<unsigned>((groups + kWarps - 1) / kWarps), rows);
  if (has_many(s.n_logits))
    launch("best_of_groups", best_of_groups<kManyKeys>, grid, kThreads, 0, stream, s, logits, found,
           bins);
  else
    launch("best_of_groups", best_of_groups<kFewKeys>, grid, kThreads, 0, stream, s, logits, found,
           bins);
  const int warps = (groups + kWarp - 1) / kWarp;
  launch("best_of_found", best_of_found, dim3(1, rows), warps * kWarp,
         static_cast<size_t>(warps * s.n_best) * sizeof(uint64_t), stream, s, found, result);
}

}  // namespace

size_t answer_workspace(const AnswerShape& shape) { return parts_of(shape).end; }

void answer_rows(const AnswerShape& s, const float* logits, const AnswerInputs& in,
                 uint64_t* workspace, uint64_t* result, cudaStream_t stream) {
  check_argument(s.n_best >= 1 && s.n_best <= s.n_logits, "the best of a row: 1 to the vocabulary");
  check_argument(static_cast<size_t>(s.n_logits) < kMaxSampledVocab, "fewer than 2^20 tokens");
  check_argument(!s.draws || in.uniforms != nullptr, "draws without uniforms");
  check_argument(!s.tasks || (s.draws && in.tasks != nullptr && in.dists.mass != nullptr),
                 "tasks without draws, or without distributions");
  check_argument(!s.tasks || !s.noise, "tasks draw by the inverse of a distribution");
  check_argument(static_cast<size_t>(in.dists.vocab) < kMaxSampledVocab,
                 "distributions over 2^20 tokens");
  const Parts p = parts_of(s);
  const auto grid = [&](int blocks) {
    return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(s.rows));
  };
  uint64_t *masses = workspace + p.masses, *borders = nullptr, *bins = nullptr,
           *dists = workspace + p.dists;
  const bool cut = s.draws && (s.top_p < 1 || cuts_by_count(s));
  if (cut) borders = workspace + p.borders, bins = workspace + p.bins;
  find_best(s, logits, workspace + p.found, bins, result, stream);
  const int mass_groups = mass_groups_of(s.n_logits);
  const auto add_masses = [&](const AnswerInputs& of, const uint64_t* behind, double scale) {
    launch("group_masses", group_masses, grid(mass_groups), kThreads, kWarps * sizeof(uint64_t),
           stream, s, logits, result, of, behind, scale, masses, dists);
  };
  if (s.sums) {
    add_masses({}, nullptr, 1.0);
    launch("sum_masses", sum_masses, grid(1), kWarp, 0, stream, s, masses, result);
  }
  if (!s.draws) return;
  AnswerInputs inputs = in;
  if (!s.tasks) inputs.tasks = nullptr;
  if (cut) {
    launch("fill_bins", fill_bins, grid((s.n_logits + kBinGroup - 1) / kBinGroup), kThreads,
           kBinParts * kBins * sizeof(uint32_t), stream, s, logits, result, in.uniforms, bins);
    launch("find_borders", find_borders, grid(1), kBorderThreads, sizeof(BorderMemory), stream, s,
           logits, result, in.uniforms, bins, borders);
  }
  if (s.noise) {
    launch("draw_by_noise", draw_by_noise, grid(mass_groups), kThreads,
           kWarps * (sizeof(double) + sizeof(int32_t)), stream, s, logits, result, in.uniforms,
           borders, masses);
    launch("first_to_arrive", first_to_arrive, grid(1), kWarp, 0, stream, s, in.uniforms, masses,
           result);
    return;
  }
  add_masses(inputs, borders, s.inverse_temperature);
  launch("draw_token", draw_token, grid(1), kThreads, sizeof(DrawMemory), stream, s, logits, inputs,
         borders, masses, result);
  if (!s.tasks) return;
  const int groups = (std::max(s.n_logits, in.dists.vocab) + kTaskGroup - 1) / kTaskGroup;
  const size_t shared = static_cast<size_t>(groups) * sizeof(uint64_t) +
                        static_cast<size_t>(s.more_draws + 1) * sizeof(int32_t);
  launch("do_tasks", do_tasks, grid(1), kTaskThreads, shared, stream, s, inputs, masses, dists,
         result);
}

}  // namespace evalrun::engine::cuda
