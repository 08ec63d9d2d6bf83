// What happens to rows between products: embedding, norms, rounding, rotation, keys and values,
// sums. Arithmetic of engine/cpu/arith.h. Each function queues one kernel.
#pragma once
#include "engine/cuda/attention.h"
#include "engine/cuda/device_matrix.h"
#include "engine/cuda/step_record.h"

namespace evalrun::engine::cuda {

// Rows of inputs of a product: bfloat16, padded to blocks of 32 with zeros, or float32.
struct InputRows {
  void* data = nullptr;
  int stride = 0;  // values
  bool bf16 = true;
};

// x[row] = the token's embedding, or an uploaded row; with paired input its front half goes to e.
void embed_rows(const StepRow* rows, int n, const MatrixRef& table, const float* embeddings,
                int width, int d, float* x, float* e, cudaStream_t stream);

// to[i][at .. at + d) = x[index ? index[i] : i] / rms * weights, rounded as `to` wants; without
// weights x itself. Behind it the padding, when this is the row's end. `hidden`, when given, gets
// the same in float32 [n][d]. Lanes of the sum of squares: 16 as on the CPU for float32, else 256.
struct NormJob {
  const float* x = nullptr;
  int d = 0;
  const int32_t* index = nullptr;
  const float* weights = nullptr;
  float eps = 0;
  InputRows to = {};
  int at = 0;
  float* hidden = nullptr;
};
void norm_rows(const NormJob& job, int n, cudaStream_t stream);

// to[i] = x[i] * factor, rounded and padded.
void round_rows(const float* x, int ldx, int width, float factor, const InputRows& to, int n,
                cudaStream_t stream);

// The same rows in the other format.
void convert_rows(const InputRows& from, int width, const InputRows& to, int n,
                  cudaStream_t stream);

// y[i][map(j)] += delta[i][j] for rows flagged low_rank; in turns, map(j) = 16 (j / 8) + j % 8 +
// first, otherwise first + j.
void add_flagged(const StepRow* rows, const float* delta, int ldd, int width, float* y, int ldy,
                 int first, Joint joint, int n, cudaStream_t stream);
// y[i][j] += bias[j]; and x[i][j] += y[i][j] when x is given.
void add_bias(float* y, int ldy, const float* bias, int width, float* x, int ldx, int n,
              cudaStream_t stream);
// to[i][j] = silu(gate) * up of sums in turns.
void activate(const float* y, int ldy, int d_ffn, const InputRows& to, int n, cudaStream_t stream);

struct RotateJob {
  const StepHeader* header = nullptr;
  const StepRow* rows = nullptr;
  const float* y = nullptr;  // [n][ldy] queries, keys, values of the product
  int ldy = 0, q_at = 0, k_at = 0, v_at = 0;
  const float *q_norm = nullptr, *k_norm = nullptr;  // [head_dim] or none
  float eps = 0;
  const float *cos = nullptr, *sin = nullptr;  // [positions][head_dim / 2]
  int heads = 0, kv_heads = 0, head_dim = 0, head_stride = 0;
  void* q = nullptr;  // as AttentionArguments::q
  KeyValues cache, step;
  bool direct = false;  // keys and values to the cache, else to the rows of the request
  bool bf16 = true;
};
void rotate_rows(const RotateJob& job, int n, cudaStream_t stream);

// Copies n rows of a forward to positions first, first + 1, ... of a sequence's cache, in all
// layers by one kernel. `step` and `cache` are those of layer 0; layers lie one behind the other.
struct CommitJob {
  const int32_t* rows = nullptr;
  int first = 0, sequence = 0, n_sequences = 1;
  KeyValues step, cache;
  int kv_heads = 0, head_dim = 0, head_stride = 0;
  bool bf16 = true;
};
void commit_rows(const CommitJob& job, int n, int layers, cudaStream_t stream);

}  // namespace evalrun::engine::cuda
