// Attention with float32 weights: the CPU's bits.
#include <type_traits>

#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {
namespace {

// Of a cache of bytes, T: a number times its scale, as the CPU has it.
template <typename T>
struct ByteLine {
  const T* codes;
  size_t step;  // from a dimension to the next
  float scale;
  __device__ __forceinline__ float operator[](int d) const {
    return number_of(codes[static_cast<size_t>(d) * step]) * scale;
  }
};
template <typename T>
using Line = std::conditional_t<sizeof(T) == 1, ByteLine<T>, const float*>;

// One head's keys or values, at a position.
template <typename T>
__device__ __forceinline__ Line<T> line_of(const KeyValues& kv, bool is_v, bool by_dimension,
                                           int head, int position, int head_dim) {
  const auto h = static_cast<size_t>(head), capacity = static_cast<size_t>(kv.capacity),
             p = static_cast<size_t>(position), stride = static_cast<size_t>(head_dim);
  const void* base = is_v ? kv.v : kv.k;
  if constexpr (sizeof(T) == 1) {
    const auto* codes = static_cast<const T*>(base);
    const float scale =
        *reinterpret_cast<const float*>(codes + byte_scale_at(h, capacity, p, head_dim));
    codes += h * capacity * byte_line(head_dim);
    if (is_v && by_dimension) return {codes + p, capacity, scale};
    return {codes + p * stride, 1, scale};
  } else {
    return static_cast<const float*>(base) + (h * capacity + p) * stride;
  }
}

// The definition: a thread block is one row and head; a thread a key, then a dimension.
template <typename T>
__global__ void __launch_bounds__(kChunk) attend_row_f32(AttentionArguments a) {
  wait_for_previous();
  auto* shared = reinterpret_cast<float*>(evalrun_shared_memory());
  float* score = shared;                                         // [128]
  float* lane = score + kChunk;                                  // [16]
  auto* value = reinterpret_cast<Line<T>*>(lane + cpu::kLanes);  // [128]
  const int i = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int hd = a.head_dim, group = a.heads / a.kv_heads, kv_head = head / group;
  const StepRow& row = a.rows[i];
  const float* q = static_cast<const float*>(a.q) +
                   (static_cast<size_t>(i) * a.heads + static_cast<size_t>(head)) * hd;
  const float scale = 1.0f / sqrtf(static_cast<float>(hd));
  const auto find = [&](const KeyValues& kv, int of_head, int position, bool is_row, Line<T>& k,
                        Line<T>& v) {
    k = line_of<T>(kv, false, !is_row, of_head, position, hd);
    v = line_of<T>(kv, true, !is_row, of_head, position, hd);
  };
  bool begun = false;
  float m = 0, l = 0;
  float x[2] = {};  // dimensions thread and thread + 128
  for (int part = row.prefix ? 0 : 1; part < 2; ++part) {
    const int first = part == 0 ? 0 : a.windowed ? row.first_windowed : row.first;
    const int length = part == 0 ? a.prefix_length : row.length;
    for (int begin = first; begin < length;) {
      const int end = min(length, (begin / kChunk + 1) * kChunk), n = end - begin;
      if (thread < n) {
        const int j = begin + thread;
        Line<T> k, v;
        if (part == 0)
          find(a.prefix, a.prefix_heads == a.heads ? head : kv_head, j, false, k, v);
        else if (j < row.cached)
          find(a.cache, row.sequence * a.kv_heads + kv_head, j, false, k, v);
        else
          find(a.step, kv_head, a.visible[row.visible + j - row.cached], true, k, v);
        float sum = 0;
        for (int d = 0; d < hd; ++d) sum = fmaf(q[d], k[d], sum);
        score[thread] = sum * scale;
        value[thread] = v;
      }
      __syncthreads();
      float top = score[0];
      for (int j = 1; j < n; ++j) top = top < score[j] ? score[j] : top;
      __syncthreads();
      if (thread < n) score[thread] = cpu::exp_fixed(score[thread] - top);
      __syncthreads();
      if (thread < cpu::kLanes) {
        float sum = 0;
        for (int j = 0; j < n; ++j)
          if ((begin + j) % cpu::kLanes == thread) sum = sum + score[j];
        lane[thread] = sum;
      }
      __syncthreads();
      float copy[cpu::kLanes];
      for (int j = 0; j < cpu::kLanes; ++j) copy[j] = lane[j];
      const float chunk_sum = cpu::sum_lanes(copy);
      const cpu::Merge g =
          begun ? cpu::merge_chunk(m, l, top, chunk_sum) : cpu::Merge{top, chunk_sum, 0.0f, 0.0f};
      for (int e = 0; e < 2; ++e) {
        const int d = thread + e * kChunk;
        if (d >= hd) break;
        float sum = 0;
        for (int j = 0; j < n; ++j) sum = fmaf(score[j], value[j][d], sum);
        x[e] = begun ? x[e] * g.keep + sum * g.add : sum;
      }
      m = g.m, l = g.l;
      begun = true;
      begin = end;
      __syncthreads();
    }
  }
  for (int e = 0; e < 2; ++e)
    if (const int d = thread + e * kChunk; d < hd)
      static_cast<float*>(a.out)[static_cast<size_t>(i) * static_cast<size_t>(a.out_stride) +
                                 static_cast<size_t>(head * hd + d)] = x[e] / l;
}

}  // namespace

void attend_f32(const AttentionArguments& a, KvType type, cudaStream_t stream) {
  const auto run = [&](auto number) {
    using T = decltype(number);
    launch("attend_row_f32", attend_row_f32<T>,
           dim3(static_cast<unsigned>(a.n_rows), static_cast<unsigned>(a.heads)), kChunk,
           (kChunk + cpu::kLanes) * sizeof(float) + kChunk * sizeof(Line<T>), stream, a);
  };
  type == KvType::kInt8 ? run(Int8Code()) : type == KvType::kFp8 ? run(cpu::Fp8()) : run(0.0f);
}

}  // namespace evalrun::engine::cuda
