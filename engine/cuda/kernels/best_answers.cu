// The best of a row in two kernels: every warp finds those of 256 logits, one block a row merges
// what the warps found.
#include "engine/cuda/kernels/answer_parts.h"

namespace evalrun::engine::cuda {
namespace {

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
  const int begin = group * kKeys * kWarp + lane;
  float value[kKeys];
  load_logits(row_of(logits, s.n_logits), begin, kWarp, s.n_logits, value);
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

}  // namespace

void find_best_of_rows(const AnswerShape& s, const float* logits, uint64_t* found, uint64_t* bins,
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

}  // namespace evalrun::engine::cuda
