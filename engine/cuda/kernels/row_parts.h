// What happens to rows between products, as far as several kernels do it: their own ones
// (row_ops.cu), and the persistent kernel beside its products.
#pragma once
#include "engine/cuda/kernels/device_code.h"

namespace evalrun::engine::cuda {

constexpr int kNormThreads = 256;  // lanes of a norm's sum of squares

__device__ __forceinline__ void store_input(void* to, size_t at, float value, bool bf16) {
  if (bf16)
    static_cast<uint16_t*>(to)[at] = float_to_bf16(value);
  else
    static_cast<float*>(to)[at] = value;
}
__device__ __forceinline__ size_t row_at(int row, int stride, int column) {
  return static_cast<size_t>(row) * static_cast<size_t>(stride) + static_cast<size_t>(column);
}

// Numbers of a row at u * kNormThreads + thread, zeros after its end.
template <int N>
__device__ __forceinline__ void load_columns(const float* from, int d, int thread,
                                             float (&value)[N]) {
#pragma unroll
  for (int u = 0; u < N; ++u) {
    const int j = u * kNormThreads + thread;
    value[u] = j < d ? from[j] : 0.0f;
  }
}
// This lane's part of the sum of squares. A zero changes nothing.
template <int N>
__device__ __forceinline__ float sum_of_squares(const float (&value)[N]) {
  float sum = 0;
#pragma unroll
  for (int u = 0; u < N; ++u) sum = fmaf(value[u], value[u], sum);
  return sum;
}
// Sum of kNormThreads lanes in the registers of a warp, every one of which finds it: halves are
// added until one is left.
__device__ __forceinline__ float tree_sum_of_warp(const float* lane) {
  static_assert(kNormThreads == 8 * kWarp);
  const int own = static_cast<int>(threadIdx.x) % kWarp;
  float sum[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) sum[k] = lane[own + k * kWarp];
#pragma unroll
  for (int s = 4; s > 0; s /= 2)
#pragma unroll
    for (int k = 0; k < s; ++k) sum[k] = sum[k] + sum[k + s];
#pragma unroll
  for (unsigned s = kWarp / 2; s > 0; s /= 2)
    sum[0] = sum[0] + __shfl_down_sync(kAllLanes, sum[0], s);
  return __shfl_sync(kAllLanes, sum[0], 0);
}
__device__ __forceinline__ float normed(float value, float scale, float weight) {
  return value * scale * weight;
}

// Where a head of row i goes: to the queries, to the cache, or to the rows of the request. Values
// lie by dimension in the cache, everything else side by side.
struct RotatedHead {
  void* to;
  size_t first, step;  // of dimension 0, to the next
  bool bf16;
  __device__ __forceinline__ void store_one(int d, float value) const {
    store_input(in_global(to), first + static_cast<size_t>(d) * step, value, bf16);
  }
  // Dimensions d and d + half from the product's a and b; values stay what they are.
  __device__ __forceinline__ void store(int d, int half, float a, float b) const {
    store_one(d, a);
    store_one(d + half, b);
  }
  __device__ __forceinline__ void store_rotated(int d, int half, float a, float b, float c,
                                                float s) const {
    store(d, half, a * c - b * s, b * c + a * s);
  }
};
__device__ __forceinline__ RotatedHead query_head(void* q, int heads, int stride, bool bf16, int i,
                                                  int head) {
  return {q, row_at(i * heads + head, stride, 0), 1, bf16};
}
// Position `position` of a line of keys or values.
__device__ __forceinline__ RotatedHead key_head(void* to, int capacity, int stride, bool bf16,
                                                int line, int position) {
  return {
      to,
      (static_cast<size_t>(line) * static_cast<size_t>(capacity) + static_cast<size_t>(position)) *
          static_cast<size_t>(stride),
      1, bf16};
}
__device__ __forceinline__ RotatedHead value_by_dimension(void* to, int capacity, int stride,
                                                          int line, int position) {
  return {to, row_at(line * stride, capacity, position), static_cast<size_t>(capacity), true};
}

}  // namespace evalrun::engine::cuda
