#include <limits>
#include <type_traits>

#include "engine/cuda/kernels/row_ops.h"
#include "engine/cuda/kernels/row_parts.h"
#include "engine/cuda/kernels/weight_value.h"
#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kThreads = kNormThreads;

constexpr int kEmbedEach = 4;  // columns of a thread
__global__ void embed(const StepRow* rows, MatrixRef table, const float* embeddings, int width,
                      int d, float* x, float* e) {
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x);
  const int first =
      static_cast<int>(blockIdx.y) * kEmbedEach * kThreads + static_cast<int>(threadIdx.x);
  const int token = rows[i].token, embedding = rows[i].embedding;
  const int front = width - d;  // of paired input
  // All that is read comes before all that is written, so that nothing waits for one load alone.
  float value[kEmbedEach], other[kEmbedEach];
#pragma unroll
  for (int u = 0; u < kEmbedEach; ++u) {
    const int j = first + u * kThreads;
    value[u] = other[u] = 0;
    if (j >= d) continue;
    if (embedding < 0) {
      value[u] = weight_at(table, token, j);
    } else {
      value[u] = embeddings[row_at(embedding, width, front + j)];
      if (front > 0) other[u] = embeddings[row_at(embedding, width, j)];
    }
  }
#pragma unroll
  for (int u = 0; u < kEmbedEach; ++u) {
    const int j = first + u * kThreads;
    if (j >= d) break;
    x[row_at(i, d, j)] = value[u];
    if (embedding >= 0 && front > 0) e[row_at(i, d, j)] = other[u];
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

// norm of rows of at most N * 256 numbers for a product in bfloat16: all loads come first, those of
// the weights before the row is there.
template <int N>
__global__ void __launch_bounds__(kThreads) norm_in_registers(NormJob job) {
  auto* lane = reinterpret_cast<float*>(evalrun_shared_memory());  // [256]
  const int i = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  float weight[N], value[N];
  load_columns(job.weights, job.d, thread, weight);
  wait_for_previous();
  const float* x = job.x + row_at(job.index != nullptr ? job.index[i] : i, job.d, 0);
  load_columns(x, job.d, thread, value);
  lane[thread] = sum_of_squares(value);
  __syncthreads();
  const float scale = cpu::rms_scale(tree_sum_of_warp(lane), job.d, job.eps);
  auto* to = static_cast<uint16_t*>(job.to.data);
#pragma unroll
  for (int u = 0; u < N; ++u) {
    const int j = u * kThreads + thread;
    if (j >= job.d) break;
    const float y = normed(value[u], scale, weight[u]);
    if (to != nullptr) to[row_at(i, job.to.stride, job.at + j)] = float_to_bf16(y);
    if (job.hidden != nullptr) job.hidden[row_at(i, job.d, j)] = y;
  }
  const int end = job.at + job.d;
  if (to != nullptr && job.to.stride - end < kBlock)
    for (int j = end + thread; j < job.to.stride; j += kThreads)
      to[row_at(i, job.to.stride, j)] = 0;
}

__global__ void norm(NormJob job) {
  wait_for_previous();
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

// A thread has the columns of its place in each of kRoundEach stretches of kThreads; loads come
// first.
constexpr int kRoundEach = 4;
__device__ __forceinline__ int round_column(int u) {
  return (static_cast<int>(blockIdx.y) * kRoundEach + u) * kThreads + static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ void store_columns(const InputRows& to, int i,
                                              const float (&value)[kRoundEach]) {
#pragma unroll
  for (int u = 0; u < kRoundEach; ++u)
    if (const int j = round_column(u); j < to.stride)
      store_input(to.data, row_at(i, to.stride, j), value[u], to.bf16);
}

__global__ void round_to(const float* x, int ldx, int width, float factor, InputRows to) {
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x);
  float value[kRoundEach];
#pragma unroll
  for (int u = 0; u < kRoundEach; ++u) {
    const int j = round_column(u);
    value[u] = j < width ? x[row_at(i, ldx, j)] * factor : 0.0f;
  }
  store_columns(to, i, value);
}

__global__ void convert(InputRows from, int width, InputRows to) {
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x);
  float value[kRoundEach];
#pragma unroll
  for (int u = 0; u < kRoundEach; ++u) {
    const int j = round_column(u);
    const size_t at = row_at(i, from.stride, j);
    value[u] = 0;
    if (j < width)
      value[u] = from.bf16 ? bf16_to_float(static_cast<const uint16_t*>(from.data)[at])
                           : static_cast<const float*>(from.data)[at];
  }
  store_columns(to, i, value);
}

// Rows that share what is read of a B.
constexpr int kUpdateRows = 8;

// Output `o` of a part for rows first .. first + kUpdateRows, those that are flagged.
__device__ __forceinline__ void add_update(const UpdateJob& job, const LowRankPart& part, int o,
                                           int first, int n, float (&sum)[kUpdateRows]) {
  if (part.rank == 0) return;
  const bool bf16 = part.b.storage != WeightStorage::kF32;
  float delta[kUpdateRows];
#pragma unroll
  for (int r = 0; r < kUpdateRows; ++r) delta[r] = 0;
  for (int k = 0; k < part.rank; ++k) {
    const float w = weight_at(part.b, o, k);
#pragma unroll
    for (int r = 0; r < kUpdateRows; ++r) {
      if (first + r >= n) continue;
      float x = job.inner[row_at(first + r, job.ld_inner, part.inner_at + k)] * part.scale;
      if (bf16) x = bf16_to_float(float_to_bf16(x));
      delta[r] = fmaf(x, w, delta[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kUpdateRows; ++r)
    if (first + r < n && job.rows[first + r].low_rank) sum[r] = sum[r] + delta[r];
}

__device__ __forceinline__ void read_sums(const UpdateJob& job, int at, int first, int n,
                                          float (&sum)[kUpdateRows]) {
#pragma unroll
  for (int r = 0; r < kUpdateRows; ++r)
    sum[r] = first + r < n ? job.y[row_at(first + r, job.ldy, at)] : 0.0f;
}
__device__ __forceinline__ void add_bias(const UpdateJob& job, int at, float (&sum)[kUpdateRows]) {
  if (job.bias == nullptr) return;
#pragma unroll
  for (int r = 0; r < kUpdateRows; ++r) sum[r] = sum[r] + job.bias[at];
}

// A thread is one output of eight rows.
__global__ void update(UpdateJob job, int n) {
  wait_for_previous();
  const int j = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x),
            first = static_cast<int>(blockIdx.y) * kUpdateRows;
  float sum[kUpdateRows];
  if (job.joint == Joint::kTurns) {
    const int stride = job.activated.stride;
    if (j >= stride) return;
    const bool padding = j >= job.width;
    float up[kUpdateRows];
#pragma unroll
    for (int r = 0; r < kUpdateRows; ++r) sum[r] = up[r] = 0;
    if (!padding) {
      const int at = job.up_at > 0 ? j : j / 8 * kTile + j % 8;
      const int up_at = job.up_at > 0 ? job.up_at + j : at + 8;
      read_sums(job, at, first, n, sum);
      add_update(job, job.parts[0], j, first, n, sum);
      add_bias(job, at, sum);
      read_sums(job, up_at, first, n, up);
      add_update(job, job.parts[1], j, first, n, up);
      add_bias(job, up_at, up);
    }
#pragma unroll
    for (int r = 0; r < kUpdateRows; ++r)
      if (first + r < n)
        store_input(job.activated.data, row_at(first + r, stride, j),
                    padding ? 0.0f : cpu::silu_mul(sum[r], up[r]), job.activated.bf16);
    return;
  }
  if (j >= job.width) return;
  read_sums(job, j, first, n, sum);
#pragma unroll
  for (int p = 0; p < UpdateJob::kMostParts; ++p)
    if (p < job.n_parts && j >= job.parts[p].first && j < job.parts[p].first + job.parts[p].width)
      add_update(job, job.parts[p], j - job.parts[p].first, first, n, sum);
  add_bias(job, j, sum);
#pragma unroll
  for (int r = 0; r < kUpdateRows; ++r) {
    if (first + r >= n) continue;
    if (job.residual == nullptr) {
      job.y[row_at(first + r, job.ldy, j)] = sum[r];
    } else {
      float& x = job.residual[row_at(first + r, job.width, j)];
      x = x + sum[r];
    }
  }
}

constexpr int kStepCols = 4 * kThreads;

__global__ void row_step(RowStepJob job) {
  wait_for_previous();
  using Op = RowProgram::Op;
  const int i = static_cast<int>(blockIdx.x), first = static_cast<int>(blockIdx.y) * kStepCols;
  const int last = first + kStepCols < job.cols ? first + kStepCols : job.cols;
  for (int j = first + static_cast<int>(threadIdx.x); j < last; j += kThreads) {
    float& to = job.to[row_at(i, job.ld_to, j)];
    if (job.op == Op::kEmbed) {
      to = weight_at(job.table, job.tokens[i], j) * job.factor;
      continue;
    }
    const float* from = job.from + row_at(i, job.ld_from, 0);
    if (job.op == Op::kLstm) {
      const int g_at = job.ld_from - 2 * job.cols;  // after i, or i and f
      to = cpu::lstm_cell(from[j], from[g_at + j], from[g_at + job.cols + j]);
    } else if (job.op == Op::kAddSilu) {
      to = to + cpu::silu_mul(from[j], 1.0f);
    } else {
      const float x = from[j] * job.factor;
      to = job.op == Op::kAdd ? to + x : x;
    }
  }
}

// A thread block is one head of one row: queries, then keys, then values. A thread has dimensions d
// and d + half, which are rotated together.
constexpr int kRotateThreads = 64, kRotatePairs = 2;
static_assert(2 * kRotateThreads * kRotatePairs >= 256, "the largest head");

// The largest of all threads' words. Of magnitudes: as numbers, with what is none above them.
__device__ __forceinline__ uint32_t largest_word(uint32_t word, uint32_t* of_warps) {
  static_assert(kRotateThreads == 2 * kWarp);
#pragma unroll
  for (int s = kWarp / 2; s > 0; s /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, word, s);
    word = word > other ? word : other;
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = word;
  __syncthreads();
  return of_warps[0] > of_warps[1] ? of_warps[0] : of_warps[1];
}

// cpu::round_to_bytes() and cpu::round_to_fp8(), dimension by dimension.
template <typename T>
__device__ __forceinline__ T byte_code(float x, const cpu::ByteSteps& steps) {
  const float scaled = steps.inverse == 0.0f ? 0.0f : x * steps.inverse;
  if constexpr (std::is_same_v<T, cpu::Fp8>)
    return cpu::fp8_code(scaled);
  else
    return static_cast<T>(static_cast<int>(rintf(scaled)) + 128);
}

// A head of bytes in a layer's keys or values.
struct ByteHead {
  void* base;
  int head, capacity, position, stride;
  bool by_dimension;  // values of the cache
};
// To there, from dimensions d and d + half of every thread; zeros where it has none.
template <typename T>
__device__ __forceinline__ void store_bytes(const ByteHead& to, int half,
                                            const float (&front)[kRotatePairs],
                                            const float (&back)[kRotatePairs], uint32_t* of_warps) {
  uint32_t most = 0;
  const auto look_at = [&](float value) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
    most = most > magnitude ? most : magnitude;
  };
#pragma unroll
  for (int u = 0; u < kRotatePairs; ++u) look_at(front[u]), look_at(back[u]);
  most = largest_word(most, of_warps);
  const cpu::ByteSteps steps =
      cpu::byte_steps(bits_to_float(most), std::is_same_v<T, cpu::Fp8> ? cpu::kFp8Most : 127.0f);
  const auto head = static_cast<size_t>(to.head), capacity = static_cast<size_t>(to.capacity),
             position = static_cast<size_t>(to.position), stride = static_cast<size_t>(to.stride);
  auto* base = static_cast<unsigned char*>(to.base);
  T* codes = reinterpret_cast<T*>(base) + head * capacity * byte_line(to.stride) +
             (to.by_dimension ? position : position * stride);
  const auto put = [&](int d, float value) {
    codes[static_cast<size_t>(d) * (to.by_dimension ? capacity : 1)] = byte_code<T>(value, steps);
  };
#pragma unroll
  for (int u = 0; u < kRotatePairs; ++u)
    if (const int d = static_cast<int>(threadIdx.x) + u * kRotateThreads; d < half)
      put(d, front[u]), put(d + half, back[u]);
  if (threadIdx.x == 0)
    *reinterpret_cast<float*>(base + byte_scale_at(head, capacity, position, to.stride)) =
        steps.scale;
}

// T: of keys and values in bytes; float: others.
template <typename T>
__global__ void __launch_bounds__(kRotateThreads) rotate(RotateJob job) {
  wait_for_previous();
  // [head_dim], then 16 lanes, then a word of each warp.
  auto* x = reinterpret_cast<float*>(evalrun_shared_memory());
  const int i = static_cast<int>(blockIdx.x), which = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int hd = job.head_dim, half = hd / 2;
  const bool is_q = which < job.heads, is_v = which >= job.heads + job.kv_heads;
  const int head = is_q ? which : (which - job.heads) % job.kv_heads;
  const int row_position = job.rows[i].position, row_sequence = job.rows[i].sequence;
  const int kept = job.header->kept;
  const float* y = job.y + row_at(i, job.ldy,
                                  (is_q   ? job.q_at
                                   : is_v ? job.v_at
                                          : job.k_at) +
                                      head * hd);
  float a[kRotatePairs], b[kRotatePairs], c[kRotatePairs], s[kRotatePairs];
#pragma unroll
  for (int u = 0; u < kRotatePairs; ++u) {
    const int d = thread + u * kRotateThreads;
    a[u] = b[u] = c[u] = s[u] = 0;
    if (d >= half) continue;
    a[u] = y[d], b[u] = y[d + half];
    if (is_v) continue;
    c[u] = job.cos[row_at(row_position, half, d)];
    s[u] = job.sin[row_at(row_position, half, d)];
  }
  if (const float* weights = is_q ? job.q_norm : job.k_norm; weights != nullptr && !is_v) {
#pragma unroll
    for (int u = 0; u < kRotatePairs; ++u) {
      const int d = thread + u * kRotateThreads;
      if (d < half) x[d] = a[u], x[d + half] = b[u];
    }
    __syncthreads();
    float* lane = x + hd;
    if (thread < cpu::kLanes) {
      float sum = 0;
      for (int d = thread; d < hd; d += cpu::kLanes) sum = fmaf(x[d], x[d], sum);
      lane[thread] = sum;
    }
    const float scale = cpu::rms_scale(tree_sum(lane, cpu::kLanes), hd, job.eps);
#pragma unroll
    for (int u = 0; u < kRotatePairs; ++u) {
      const int d = thread + u * kRotateThreads;
      if (d < half) a[u] = a[u] * scale * weights[d], b[u] = b[u] * scale * weights[d + half];
    }
  }
  const KeyValues& kv = job.direct ? job.cache : job.step;
  const int stride = job.bf16 ? job.head_stride : hd;
  const int position = job.direct ? row_position : kept + i;
  const int of_head = (job.direct ? row_sequence * job.kv_heads : 0) + head;
  if constexpr (sizeof(T) == 1)
    if (!is_q) {
      if (!is_v) {
#pragma unroll
        for (int u = 0; u < kRotatePairs; ++u) {
          const float front = a[u];
          a[u] = front * c[u] - b[u] * s[u];
          b[u] = b[u] * c[u] + front * s[u];
        }
      }
      return store_bytes<T>(
          {is_v ? kv.v : kv.k, of_head, kv.capacity, position, stride, is_v && job.direct}, half, a,
          b, reinterpret_cast<uint32_t*>(x + hd + cpu::kLanes));
    }
  const RotatedHead to =
      is_q ? query_head(job.q, job.heads, stride, job.bf16, i, head)
      : is_v && job.direct && job.bf16
          ? value_by_dimension(kv.v, kv.capacity, stride, of_head, position)
          : key_head(is_v ? kv.v : kv.k, kv.capacity, stride, job.bf16, of_head, position);
#pragma unroll
  for (int u = 0; u < kRotatePairs; ++u) {
    const int d = thread + u * kRotateThreads;
    if (d >= half) break;
    if (is_v)
      to.store(d, half, a[u], b[u]);
    else
      to.store_rotated(d, half, a[u], b[u], c[u], s[u]);
  }
  if (is_q)
    for (int d = hd + thread; d < stride; d += kRotateThreads) to.store_one(d, 0.0f);
}

// Values of T from one row to a position; in the cache they may lie by dimension.
template <typename T>
__device__ __forceinline__ void copy_head(const CommitJob& job, size_t from_line, size_t to_line,
                                          size_t to_value, size_t value_step) {
  for (int i = static_cast<int>(threadIdx.x); i < job.head_dim; i += static_cast<int>(blockDim.x)) {
    const auto d = static_cast<size_t>(i);
    static_cast<T*>(job.cache.k)[to_line + d] = static_cast<const T*>(job.step.k)[from_line + d];
    static_cast<T*>(job.cache.v)[to_value + d * value_step] =
        static_cast<const T*>(job.step.v)[from_line + d];
  }
}

__global__ void commit(CommitJob job) {
  wait_for_previous();
  const CommitRow& r = job.rows[blockIdx.x];
  const auto row = static_cast<size_t>(r.row), sequence = static_cast<size_t>(r.sequence),
             position = static_cast<size_t>(r.position);
  const auto head = static_cast<size_t>(blockIdx.y), layer = static_cast<size_t>(blockIdx.z),
             heads = static_cast<size_t>(job.kv_heads),
             stride = static_cast<size_t>(job.head_stride),
             rows = static_cast<size_t>(job.step.capacity),
             capacity = static_cast<size_t>(job.cache.capacity);
  const size_t from_head = layer * heads + head;
  const size_t to_head = (layer * static_cast<size_t>(job.n_sequences) + sequence) * heads + head;
  if (in_bytes(job.type)) {
    const size_t line = byte_line(job.head_stride);
    const size_t from = from_head * rows * line, to = to_head * capacity * line;
    copy_head<unsigned char>(job, from + row * stride, to + position * stride, to + position,
                             capacity);
    if (threadIdx.x > 1) return;
    const bool is_v = threadIdx.x == 1;
    auto* scale_to = static_cast<unsigned char*>(is_v ? job.cache.v : job.cache.k) +
                     byte_scale_at(to_head, capacity, position, job.head_stride);
    const auto* scale_from = static_cast<const unsigned char*>(is_v ? job.step.v : job.step.k) +
                             byte_scale_at(from_head, rows, row, job.head_stride);
    *reinterpret_cast<float*>(scale_to) = *reinterpret_cast<const float*>(scale_from);
    return;
  }
  const size_t from_line = (from_head * rows + row) * stride;
  const size_t to_line = (to_head * capacity + position) * stride;
  if (job.type == KvType::kBf16)
    copy_head<uint16_t>(job, from_line, to_line, to_head * stride * capacity + position, capacity);
  else
    copy_head<float>(job, from_line, to_line, to_line, 1);
}

dim3 per_row(int n) { return dim3(static_cast<unsigned>(n)); }
// Of round_to and convert.
dim3 per_columns(int n, const InputRows& to) {
  constexpr int kColumns = kRoundEach * kThreads;
  return dim3(static_cast<unsigned>(n),
              static_cast<unsigned>((to.stride + kColumns - 1) / kColumns));
}

}  // namespace

void embed_rows(const StepRow* rows, int n, const MatrixRef& table, const float* embeddings,
                int width, int d, float* x, float* e, cudaStream_t stream) {
  constexpr int kColumns = kEmbedEach * kThreads;
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>((d + kColumns - 1) / kColumns));
  launch("embed", embed, grid, kThreads, 0, stream, rows, table, embeddings, width, d, x, e);
}
void norm_rows(const NormJob& job, int n, cudaStream_t stream) {
  if (job.to.bf16 && job.weights != nullptr && job.d <= 32 * kThreads) {
    const auto kernel = job.d <= 4 * kThreads    ? norm_in_registers<4>
                        : job.d <= 16 * kThreads ? norm_in_registers<16>
                                                 : norm_in_registers<32>;
    launch("norm", kernel, per_row(n), kThreads, kThreads * sizeof(float), stream, job);
    return;
  }
  launch("norm", norm, per_row(n), kThreads, kThreads * sizeof(float), stream, job);
}
void round_rows(const float* x, int ldx, int width, float factor, const InputRows& to, int n,
                cudaStream_t stream) {
  launch("round_to", round_to, per_columns(n, to), kThreads, 0, stream, x, ldx, width, factor, to);
}
void convert_rows(const InputRows& from, int width, const InputRows& to, int n,
                  cudaStream_t stream) {
  launch("convert", convert, per_columns(n, to), kThreads, 0, stream, from, width, to);
}
void update_rows(const UpdateJob& job, int n, cudaStream_t stream) {
  const int items = job.joint == Joint::kTurns ? job.activated.stride : job.width;
  const dim3 grid(static_cast<unsigned>((items + kThreads - 1) / kThreads),
                  static_cast<unsigned>((n + kUpdateRows - 1) / kUpdateRows));
  launch("update", update, grid, kThreads, 0, stream, job, n);
}
void step_rows(const RowStepJob& job, int n, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(n),
                  static_cast<unsigned>((job.cols + kStepCols - 1) / kStepCols));
  launch("row_step", row_step, grid, kThreads, 0, stream, job);
}
void rotate_rows(const RotateJob& job, int n, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(job.heads + 2 * job.kv_heads);
  check_argument(job.head_dim % 2 == 0 && job.head_dim <= 256, "a head of pairs of dimensions");
  const bool bytes = in_bytes(job.type);
  launch("rotate",
         job.type == KvType::kInt8  ? rotate<Int8Code>
         : job.type == KvType::kFp8 ? rotate<cpu::Fp8>
                                    : rotate<float>,
         dim3(static_cast<unsigned>(n), heads), kRotateThreads,
         static_cast<size_t>(job.head_dim + cpu::kLanes + (bytes ? 2 : 0)) * sizeof(float), stream,
         job);
}
void commit_rows(const CommitJob& job, int n, int layers, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(job.kv_heads),
                  static_cast<unsigned>(layers));
  launch("commit", commit, grid, 64, 0, stream, job);
}

}  // namespace evalrun::engine::cuda
