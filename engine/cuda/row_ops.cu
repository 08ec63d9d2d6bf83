#include <limits>

#include "engine/cuda/check.h"
#include "engine/cuda/row_ops.h"
#include "engine/cuda/weight_value.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ void store_input(void* to, size_t at, float value, bool bf16) {
  if (bf16)
    static_cast<uint16_t*>(to)[at] = float_to_bf16(value);
  else
    static_cast<float*>(to)[at] = value;
}
__device__ __forceinline__ size_t row_at(int row, int stride, int column) {
  return static_cast<size_t>(row) * static_cast<size_t>(stride) + static_cast<size_t>(column);
}

__global__ void embed(const StepRow* rows, MatrixRef table, const float* embeddings, int width,
                      int d, float* x, float* e) {
  const int i = static_cast<int>(blockIdx.x);
  const StepRow& r = rows[i];
  const int front = width - d;  // of paired input
  for (int j = static_cast<int>(threadIdx.x); j < d; j += kThreads) {
    if (r.embedding < 0) {
      x[row_at(i, d, j)] = weight_at(table, r.token, j);
      continue;
    }
    x[row_at(i, d, j)] = embeddings[row_at(r.embedding, width, front + j)];
    if (front > 0) e[row_at(i, d, j)] = embeddings[row_at(r.embedding, width, j)];
  }
}

// Sum over `lanes` partial sums in shared memory: halves are added until one is left.
__device__ __forceinline__ float tree_sum(float* lane, int lanes) {
  for (int s = lanes / 2; s > 0; s /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < s)
      lane[threadIdx.x] = lane[threadIdx.x] + lane[threadIdx.x + static_cast<unsigned>(s)];
  }
  __syncthreads();
  return lane[0];
}

__global__ void norm(NormJob job) {
  auto* lane = reinterpret_cast<float*>(evalrun_shared_memory());  // [lanes]
  const int i = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const float* x = job.x + row_at(job.index != nullptr ? job.index[i] : i, job.d, 0);
  const int lanes = job.to.bf16 ? kThreads : cpu::kLanes;
  float scale = 1.0f;
  if (job.weights != nullptr) {
    if (thread < lanes) {
      float sum = 0;
      for (int j = thread; j < job.d; j += lanes) sum = fmaf(x[j], x[j], sum);
      lane[thread] = sum;
    }
    scale = cpu::rms_scale(tree_sum(lane, lanes), job.d, job.eps);
  }
  const int end = job.at + job.d;
  for (int j = thread; j < job.d; j += kThreads) {
    const float y = job.weights != nullptr ? x[j] * scale * job.weights[j] : x[j];
    if (job.to.data != nullptr)
      store_input(job.to.data, row_at(i, job.to.stride, job.at + j), y, job.to.bf16);
    if (job.hidden != nullptr) job.hidden[row_at(i, job.d, j)] = y;
  }
  if (job.to.data != nullptr && job.to.bf16 && job.to.stride - end < kBlock)
    for (int j = end + thread; j < job.to.stride; j += kThreads)
      store_input(job.to.data, row_at(i, job.to.stride, j), 0.0f, true);
}

__global__ void round_to(const float* x, int ldx, int width, float factor, InputRows to) {
  const int i = static_cast<int>(blockIdx.x);
  for (int j = static_cast<int>(threadIdx.x); j < to.stride; j += kThreads)
    store_input(to.data, row_at(i, to.stride, j), j < width ? x[row_at(i, ldx, j)] * factor : 0.0f,
                to.bf16);
}

__global__ void convert(InputRows from, int width, InputRows to) {
  const int i = static_cast<int>(blockIdx.x);
  for (int j = static_cast<int>(threadIdx.x); j < to.stride; j += kThreads) {
    const size_t at = row_at(i, from.stride, j);
    float v = 0;
    if (j < width)
      v = from.bf16 ? bf16_to_float(static_cast<const uint16_t*>(from.data)[at])
                    : static_cast<const float*>(from.data)[at];
    store_input(to.data, row_at(i, to.stride, j), v, to.bf16);
  }
}

__global__ void add_to_flagged(const StepRow* rows, const float* delta, int ldd, int width,
                               float* y, int ldy, int first, Joint joint) {
  const int i = static_cast<int>(blockIdx.x);
  if (!rows[i].low_rank) return;
  for (int j = static_cast<int>(threadIdx.x); j < width; j += kThreads) {
    float& to = y[row_at(i, ldy, first + (joint == Joint::kTurns ? j / 8 * kTile + j % 8 : j))];
    to = to + delta[row_at(i, ldd, j)];
  }
}

__global__ void add_biases(float* y, int ldy, const float* bias, int width, float* x, int ldx) {
  const int i = static_cast<int>(blockIdx.x);
  for (int j = static_cast<int>(threadIdx.x); j < width; j += kThreads) {
    float v = y[row_at(i, ldy, j)];
    if (bias != nullptr) v = v + bias[j];
    if (x != nullptr)
      x[row_at(i, ldx, j)] = x[row_at(i, ldx, j)] + v;
    else
      y[row_at(i, ldy, j)] = v;
  }
}

__global__ void activate_turns(const float* y, int ldy, int d_ffn, InputRows to) {
  const int i = static_cast<int>(blockIdx.x);
  for (int j = static_cast<int>(threadIdx.x); j < d_ffn; j += kThreads) {
    const size_t at = row_at(i, ldy, j / 8 * kTile + j % 8);
    store_input(to.data, row_at(i, to.stride, j), cpu::silu_mul(y[at], y[at + 8]), to.bf16);
  }
}

// A thread block is one head of one row: queries, then keys, then values.
__global__ void rotate(RotateJob job) {
  auto* x = reinterpret_cast<float*>(evalrun_shared_memory());  // [head_dim], then 16 lanes
  const int i = static_cast<int>(blockIdx.x), which = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int hd = job.head_dim;
  const bool is_q = which < job.heads, is_v = which >= job.heads + job.kv_heads;
  const int head = is_q ? which : (which - job.heads) % job.kv_heads;
  const StepRow& row = job.rows[i];
  const float* y = job.y + row_at(i, job.ldy,
                                  (is_q   ? job.q_at
                                   : is_v ? job.v_at
                                          : job.k_at) +
                                      head * hd);
  for (int d = thread; d < hd; d += threads) x[d] = y[d];
  __syncthreads();
  if (!is_v) {
    if (const float* weights = is_q ? job.q_norm : job.k_norm; weights != nullptr) {
      float* lane = x + hd;
      if (thread < cpu::kLanes) {
        float sum = 0;
        for (int d = thread; d < hd; d += cpu::kLanes) sum = fmaf(x[d], x[d], sum);
        lane[thread] = sum;
      }
      const float scale = cpu::rms_scale(tree_sum(lane, cpu::kLanes), hd, job.eps);
      for (int d = thread; d < hd; d += threads) x[d] = x[d] * scale * weights[d];
      __syncthreads();
    }
    const int half = hd / 2;
    for (int d = thread; d < half; d += threads) {
      const float c = job.cos[row_at(row.position, half, d)],
                  s = job.sin[row_at(row.position, half, d)];
      const float a = x[d], b = x[d + half];
      x[d] = a * c - b * s;
      x[d + half] = b * c + a * s;
    }
    __syncthreads();
  }
  const int stride = job.bf16 ? job.head_stride : hd;
  if (is_q) {
    for (int d = thread; d < stride; d += threads)
      store_input(job.q, row_at(i * job.heads + head, stride, d), d < hd ? x[d] : 0.0f, job.bf16);
    return;
  }
  const KeyValues& kv = job.direct ? job.cache : job.step;
  const int position = job.direct ? row.position : job.header->kept + i;
  const int of_head = (job.direct ? row.sequence * job.kv_heads : 0) + head;
  void* to = is_v ? kv.v : kv.k;
  const bool by_dimension = is_v && job.direct && job.bf16;
  for (int d = thread; d < hd; d += threads) {
    const size_t at = by_dimension
                          ? row_at(of_head * stride + d, kv.capacity, position)
                          : (static_cast<size_t>(of_head) * static_cast<size_t>(kv.capacity) +
                             static_cast<size_t>(position)) *
                                    static_cast<size_t>(stride) +
                                static_cast<size_t>(d);
    store_input(to, at, x[d], job.bf16);
  }
}

__global__ void commit(CommitJob job) {
  const int j = static_cast<int>(blockIdx.x);
  const auto head = static_cast<size_t>(blockIdx.y), layer = static_cast<size_t>(blockIdx.z),
             heads = static_cast<size_t>(job.kv_heads),
             stride = static_cast<size_t>(job.head_stride),
             capacity = static_cast<size_t>(job.cache.capacity),
             position = static_cast<size_t>(job.first + j);
  const size_t from_head = layer * heads + head;
  const size_t to_head =
      (layer * static_cast<size_t>(job.n_sequences) + static_cast<size_t>(job.sequence)) * heads +
      head;
  const size_t from_line =
      (from_head * static_cast<size_t>(job.step.capacity) + static_cast<size_t>(job.rows[j])) *
      stride;
  const size_t to_line = (to_head * capacity + position) * stride;
  for (int i = static_cast<int>(threadIdx.x); i < job.head_dim; i += static_cast<int>(blockDim.x)) {
    const auto d = static_cast<size_t>(i);
    if (job.bf16) {
      static_cast<uint16_t*>(job.cache.k)[to_line + d] =
          static_cast<const uint16_t*>(job.step.k)[from_line + d];
      static_cast<uint16_t*>(job.cache.v)[(to_head * stride + d) * capacity + position] =
          static_cast<const uint16_t*>(job.step.v)[from_line + d];
    } else {
      static_cast<float*>(job.cache.k)[to_line + d] =
          static_cast<const float*>(job.step.k)[from_line + d];
      static_cast<float*>(job.cache.v)[to_line + d] =
          static_cast<const float*>(job.step.v)[from_line + d];
    }
  }
}

dim3 per_row(int n) { return dim3(static_cast<unsigned>(n)); }

}  // namespace

void embed_rows(const StepRow* rows, int n, const MatrixRef& table, const float* embeddings,
                int width, int d, float* x, float* e, cudaStream_t stream) {
  launch("embed", embed, per_row(n), kThreads, 0, stream, rows, table, embeddings, width, d, x, e);
}
void norm_rows(const NormJob& job, int n, cudaStream_t stream) {
  launch("norm", norm, per_row(n), kThreads, kThreads * sizeof(float), stream, job);
}
void round_rows(const float* x, int ldx, int width, float factor, const InputRows& to, int n,
                cudaStream_t stream) {
  launch("round_to", round_to, per_row(n), kThreads, 0, stream, x, ldx, width, factor, to);
}
void convert_rows(const InputRows& from, int width, const InputRows& to, int n,
                  cudaStream_t stream) {
  launch("convert", convert, per_row(n), kThreads, 0, stream, from, width, to);
}
void add_flagged(const StepRow* rows, const float* delta, int ldd, int width, float* y, int ldy,
                 int first, Joint joint, int n, cudaStream_t stream) {
  launch("add_to_flagged", add_to_flagged, per_row(n), kThreads, 0, stream, rows, delta, ldd, width,
         y, ldy, first, joint);
}
void add_bias(float* y, int ldy, const float* bias, int width, float* x, int ldx, int n,
              cudaStream_t stream) {
  launch("add_biases", add_biases, per_row(n), kThreads, 0, stream, y, ldy, bias, width, x, ldx);
}
void activate(const float* y, int ldy, int d_ffn, const InputRows& to, int n, cudaStream_t stream) {
  launch("activate_turns", activate_turns, per_row(n), kThreads, 0, stream, y, ldy, d_ffn, to);
}
void rotate_rows(const RotateJob& job, int n, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(job.heads + 2 * job.kv_heads);
  launch("rotate", rotate, dim3(static_cast<unsigned>(n), heads), 64,
         static_cast<size_t>(job.head_dim + cpu::kLanes) * sizeof(float), stream, job);
}
void commit_rows(const CommitJob& job, int n, int layers, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(job.kv_heads),
                  static_cast<unsigned>(layers));
  launch("commit", commit, grid, 64, 0, stream, job);
}

}  // namespace evalrun::engine::cuda
