// Attention with float32 weights: the CPU's bits.
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {
namespace {

// float32, the definition: a thread block is one row and head; a thread a key, then a dimension.
__global__ void __launch_bounds__(kChunk) attend_row_f32(AttentionArguments a) {
  wait_for_previous();
  auto* shared = reinterpret_cast<float*>(evalrun_shared_memory());
  float* score = shared;                                                      // [128]
  float* lane = score + kChunk;                                               // [16]
  const float** value = reinterpret_cast<const float**>(lane + cpu::kLanes);  // [128]
  const int i = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int hd = a.head_dim, group = a.heads / a.kv_heads, kv_head = head / group;
  const StepRow& row = a.rows[i];
  const float* q = static_cast<const float*>(a.q) +
                   (static_cast<size_t>(i) * a.heads + static_cast<size_t>(head)) * hd;
  const float scale = 1.0f / sqrtf(static_cast<float>(hd));
  const auto at = [&](const KeyValues& kv, const void* p, int of_head, int position) {
    return static_cast<const float*>(p) +
           (static_cast<size_t>(of_head) * static_cast<size_t>(kv.capacity) +
            static_cast<size_t>(position)) *
               static_cast<size_t>(hd);
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
        const float *k, *v;
        if (part == 0) {
          const int h = a.prefix_heads == a.heads ? head : kv_head;
          k = at(a.prefix, a.prefix.k, h, j), v = at(a.prefix, a.prefix.v, h, j);
        } else if (j < row.cached) {
          const int h = row.sequence * a.kv_heads + kv_head;
          k = at(a.cache, a.cache.k, h, j), v = at(a.cache, a.cache.v, h, j);
        } else {
          const int r = a.visible[row.visible + j - row.cached];
          k = at(a.step, a.step.k, kv_head, r), v = at(a.step, a.step.v, kv_head, r);
        }
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

void attend_f32(const AttentionArguments& a, cudaStream_t stream) {
  const size_t shared = (kChunk + cpu::kLanes) * sizeof(float) + kChunk * sizeof(float*);
  launch("attend_row_f32", attend_row_f32,
         dim3(static_cast<unsigned>(a.n_rows), static_cast<unsigned>(a.heads)), kChunk, shared,
         stream, a);
}

}  // namespace evalrun::engine::cuda
