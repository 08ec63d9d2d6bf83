// The best of a row in two kernels: every warp finds those of 1,024 logits, one block a row those
// of what the warps found. A draw adds a kernel for the masses of groups of 4,096 tokens and one
// that finds the group, then the token; top-k and top-p one in front, which finds the border: the
// least token (in the order of sampling_arith.h) that stays. Rows with a task have the mass of
// every token written down as well, and a block of their own in the last kernel.
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
constexpr int kKeys = 32;              // of a lane
constexpr int kGroup = kKeys * kWarp;  // of a warp
constexpr int kEach = 16;              // tokens of a thread in a block's mass
constexpr int kMassGroup = kEach * kThreads;
constexpr int kBorderThreads = 1024;
constexpr int kDigits = 256;
constexpr int kTaskThreads = 1024;
constexpr int kTaskWarps = kTaskThreads / kWarp;
constexpr int kTaskGroup = 512;  // tokens, whose masses are added up first

EVALRUN_DEVICE constexpr int groups_of(int n) { return (n + kGroup - 1) / kGroup; }
EVALRUN_DEVICE constexpr int mass_groups_of(int n) { return (n + kMassGroup - 1) / kMassGroup; }

// Parts of the workspace, in words from its beginning.
struct Parts {
  size_t found, refound, masses, borders, dists, end;
};
EVALRUN_DEVICE inline Parts parts_of(const AnswerShape& s) {
  const auto rows = static_cast<size_t>(s.rows);
  const int found = groups_of(s.n_logits) * s.n_best;
  Parts p;
  p.found = 0;
  p.refound = p.found + rows * static_cast<size_t>(found);
  p.masses = p.refound + rows * static_cast<size_t>(groups_of(found) * s.n_best);
  p.borders = p.masses + rows * static_cast<size_t>(mass_groups_of(s.n_logits));
  p.dists = p.borders + rows;
  p.end = p.dists + static_cast<size_t>(s.rejection_tests) * static_cast<size_t>(s.n_logits);
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
  wait_for_previous();
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
  wait_for_previous();
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

// The mass of one token; 0 beyond the border.
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

// Where the masses of a row with a task are: a draw's are kept, a test's used up.
__device__ __forceinline__ uint64_t* distribution_of(const AnswerShape& s, const AnswerTask& task,
                                                     const DistributionMemory& kept,
                                                     uint64_t* dists) {
  if (task.kind == AnswerTask::kDraws)
    return kept.mass + static_cast<size_t>(task.dist) * static_cast<size_t>(kept.vocab);
  return dists + static_cast<size_t>(task.place) * static_cast<size_t>(s.n_logits);
}

// Masses of groups of 4,096 tokens, and of every one of them where the row has a task. Rows without
// a uniform have none; without uniforms all rows have.
__global__ void __launch_bounds__(kThreads)
    group_masses(AnswerShape s, const float* logits, const uint64_t* result, AnswerInputs in,
                 const uint64_t* borders, double scale, uint64_t* masses, uint64_t* dists) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  if (in.uniforms != nullptr && in.uniforms[row] < 0) return;
  uint64_t* dist = nullptr;
  const int32_t* ids = nullptr;
  if (in.tasks != nullptr && in.tasks[row].kind != AnswerTask::kNone) {
    dist = distribution_of(s, in.tasks[row], in.dists, dists);
    if (in.tasks[row].kind == AnswerTask::kDraws) ids = in.dists.ids;
  }
  auto* sums = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [warps]
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  const uint64_t border = borders == nullptr ? 0 : borders[row];
  const float* from = row_of(logits, s.n_logits);
  const int begin = static_cast<int>(blockIdx.x) * kMassGroup;
  uint64_t mass = 0;
#pragma unroll 4
  for (int i = 0; i < kEach; ++i) {
    const int token = begin + i * kThreads + thread;
    if (token >= s.n_logits) continue;
    const uint64_t own = mass_at(from, token, best, scale, border);
    mass += own;
    if (dist != nullptr) dist[ids == nullptr ? token : ids[token]] = own;
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
  wait_for_previous();
  auto* shared = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [threads]
  const uint64_t total = total_mass(s, masses, shared);
  if (threadIdx.x == 0)
    result[static_cast<size_t>(blockIdx.y) * static_cast<size_t>(s.stride()) +
           static_cast<size_t>(s.n_best)] = total;
}

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
  auto* shared = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [threads]
  uint64_t place = place_of_draw(uniform, total_mass(s, masses, shared));
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
  // Whose turn it is: the tokens of earlier warps and lanes come before this thread's.
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

// The token that arrives first (engine/gumbel.cpp): a thread for each token of a noise block, one
// block after the other. Of equal speeds the lower id wins, as a thread meets its ids in order.
static_assert(kThreads == kNoiseBlock);
__global__ void __launch_bounds__(kThreads)
    draw_by_noise(AnswerShape s, const float* logits, const double* uniforms,
                  const uint64_t* borders, uint64_t* result) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  uint64_t* out = result + static_cast<size_t>(row) * static_cast<size_t>(s.stride());
  uint64_t* drawn = out + s.n_best + 1;
  const double uniform = uniforms[row];
  if (uniform < 0) {
    if (thread == 0) *drawn = ~uint64_t{0};
    return;
  }
  auto* speeds = reinterpret_cast<double*>(evalrun_shared_memory());  // [threads]
  auto* tokens = reinterpret_cast<int32_t*>(speeds + kThreads);       // [threads]
  const float best = logit_of(out[0]);
  const uint64_t border = borders == nullptr ? 0 : borders[row];
  const float* from = row_of(logits, s.n_logits);
  const TokenNoise noise(uniform);
  double fastest = 0;
  int32_t own = -1;
  for (int token = thread; token < s.n_logits; token += kThreads) {
    const float logit = from[token];
    if (border > 0 && order_of(logit, token) < border) continue;
    const double weight = weight_of(logit, best, s.inverse_temperature);
    const TokenNoise::First first = noise.first(token / kNoiseBlock);
    if (weight / first.arrival <= fastest) continue;
    const double speed = weight / noise.arrival(token, first);
    if (speed > fastest) fastest = speed, own = token;
  }
  speeds[thread] = fastest, tokens[thread] = own;
  __syncthreads();
  if (thread > 0) return;
  for (int t = 1; t < kThreads; ++t)
    if (tokens[t] >= 0 && (speeds[t] > fastest || (speeds[t] == fastest && tokens[t] < own)))
      fastest = speeds[t], own = tokens[t];
  *drawn = static_cast<uint64_t>(static_cast<int64_t>(own));
}

constexpr uint32_t kMostListed = 1024;
// The least order that stays under top-k (logits equal to the k-th stay), then under top-p: digit
// by digit from the highest, the one in which the sum from above reaches what is needed. As soon as
// few tokens are left, which two passes over a row leave as a rule, they are listed and looked at
// alone.
struct BorderSearch {
  uint64_t prefix;  // digits found so far
  uint64_t reached;
  uint32_t left;  // tokens that share them
};
__device__ __forceinline__ uint64_t border_of(const AnswerShape& s, const float* row, float best,
                                              uint64_t least, bool by_mass, uint64_t* sums,
                                              uint32_t* counts, BorderSearch* search,
                                              int32_t* list) {
  const int thread = static_cast<int>(threadIdx.x);
  const int last = by_mass ? 0 : 32;  // top-k looks at logits alone
  int shift = 56, n = s.n_logits;
  bool listed = false;
  for (;; shift -= 8) {
    if (thread < kDigits) sums[thread] = 0, counts[thread] = 0;
    if (thread == 0) counts[kDigits] = 0;
    __syncthreads();
    const uint64_t prefix = shift == 56 ? 0 : search->prefix;
    const uint32_t left = shift == 56 ? ~0u : search->left;
    const bool listing = !listed && left <= kMostListed;
    for (int i = thread; i < n; i += kBorderThreads) {
      const int token = listed ? list[i] : i;
      const uint64_t order = order_of(row[token], token);
      if (order < least || (shift < 56 && order >> (shift + 8) != prefix)) continue;
      if (listing) list[atomicAdd(&counts[kDigits], 1u)] = token;
      const auto digit = static_cast<int>(order >> shift & 0xffu);
      if (by_mass) {  // 64 bits in shared memory are a loop of exchanges: only where there is mass
        const uint64_t mass = mass_of(weight_of(row[token], best, s.inverse_temperature));
        if (mass > 0)
          atomicAdd(reinterpret_cast<unsigned long long*>(&sums[digit]),
                    static_cast<unsigned long long>(mass));
      }
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
      const auto reached_by = [&](int d) { return by_mass ? sums[d] : uint64_t{counts[d]}; };
      int digit = kDigits - 1;
      while (digit > 0 && found.reached + reached_by(digit) < need)
        found.reached += reached_by(digit--);
      found.prefix = found.prefix << 8 | static_cast<uint64_t>(digit);
      found.left = counts[digit];
      *search = found;
    }
    __syncthreads();
    if (shift == last || search->left <= 1) break;
    if (listing) listed = true, n = static_cast<int>(left);
  }
  // Read by all before the next search writes it: two of its barriers lie between.
  return search->prefix << shift;
}

constexpr size_t kBorderShared = sizeof(uint64_t) * (kDigits + 1) + sizeof(BorderSearch) +
                                 sizeof(uint32_t) * (kDigits + 1 + kMostListed);

__global__ void __launch_bounds__(kBorderThreads)
    find_borders(AnswerShape s, const float* logits, const uint64_t* result, const double* uniforms,
                 uint64_t* borders) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y);
  if (uniforms[row] < 0) return;
  auto* sums = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [digits], what is needed
  auto* search = reinterpret_cast<BorderSearch*>(sums + kDigits + 1);
  auto* counts = reinterpret_cast<uint32_t*>(search + 1);         // [digits], listed
  auto* list = reinterpret_cast<int32_t*>(counts + kDigits + 1);  // [most listed]
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  const float* from = row_of(logits, s.n_logits);
  uint64_t border = 0;
  if (s.top_k > 0 && s.top_k < s.n_logits)
    border = border_of(s, from, best, 0, false, sums, counts, search, list);
  if (s.top_p < 1) border = border_of(s, from, best, border, true, sums, counts, search, list);
  if (threadIdx.x == 0) borders[row] = border;
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
    uint64_t upto = own;
    for (int by = 1; by < kWarp; by *= 2) {
      const uint64_t before = __shfl_up_sync(kAllLanes, upto, static_cast<unsigned>(by));
      if (lane >= by) upto += before;
    }
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
__device__ __forceinline__ uint64_t sum_of_groups(int n, const uint64_t* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint64_t own = 0;
  for (int g = lane; g < n; g += kWarp) own += sums[g];
  return sum_of_warp(own);
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
  const int mass_groups = mass_groups_of(s.n_logits);
  const uint64_t total = sum_of_groups(
      mass_groups, masses + static_cast<size_t>(row) * static_cast<size_t>(mass_groups));
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
  uint64_t *found = workspace + p.found, *masses = workspace + p.masses,
           *borders = workspace + p.borders, *dists = workspace + p.dists;
  launch("best_of_groups", best_of_groups, grid((groups_of(s.n_logits) + kWarps - 1) / kWarps),
         kThreads, 0, stream, s, logits, found);
  launch("best_of_found", best_of_found, grid(1), kThreads, 0, stream, s, found,
         workspace + p.refound, result);
  const int mass_groups = mass_groups_of(s.n_logits);
  const auto add_masses = [&](const AnswerInputs& of, const uint64_t* behind, double scale) {
    launch("group_masses", group_masses, grid(mass_groups), kThreads, kWarps * sizeof(uint64_t),
           stream, s, logits, result, of, behind, scale, masses, dists);
  };
  if (s.sums) {
    add_masses({}, nullptr, 1.0);
    launch("sum_masses", sum_masses, grid(1), kThreads, kThreads * sizeof(uint64_t), stream, s,
           masses, result);
  }
  if (!s.draws) return;
  AnswerInputs inputs = in;
  if (!s.tasks) inputs.tasks = nullptr;
  const bool cut = s.top_p < 1 || (s.top_k > 0 && s.top_k < s.n_logits);
  if (!cut) borders = nullptr;
  if (cut)
    launch("find_borders", find_borders, grid(1), kBorderThreads, kBorderShared, stream, s, logits,
           result, in.uniforms, borders);
  if (s.noise) {
    launch("draw_by_noise", draw_by_noise, grid(1), kThreads,
           kThreads * (sizeof(double) + sizeof(int32_t)), stream, s, logits, in.uniforms, borders,
           result);
    return;
  }
  add_masses(inputs, borders, s.inverse_temperature);
  launch("draw_token", draw_token, grid(1), kThreads, kThreads * sizeof(uint64_t), stream, s,
         logits, inputs, borders, masses, result);
  if (!s.tasks) return;
  const int groups = (std::max(s.n_logits, in.dists.vocab) + kTaskGroup - 1) / kTaskGroup;
  const size_t shared = static_cast<size_t>(groups) * sizeof(uint64_t) +
                        static_cast<size_t>(s.more_draws + 1) * sizeof(int32_t);
  launch("do_tasks", do_tasks, grid(1), kTaskThreads, shared, stream, s, inputs, masses, dists,
         result);
}

}  // namespace evalrun::engine::cuda
