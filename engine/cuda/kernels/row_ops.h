// What happens to rows between products: embedding, norms, rounding, rotation, keys and values,
// sums. Arithmetic of engine/cpu/kernels/arith.h. Each function queues one kernel.
#pragma once
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/matrix_ref.h"
#include "engine/cuda/kernels/step_record.h"
#include "engine/forward_plan.h"
#include "engine/row_program.h"

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
// weights x itself. The padding comes after it, when this is the row's end. `hidden`, when given,
// gets the same in float32 [n][d]. Lanes of the sum of squares: 16 as on the CPU for float32, else
// 256.
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

// What follows a product whose matrix has low-rank updates beside it (engine/model/low_rank.h):
// flagged rows get y += B (scale * inner), all rows their bias; then they stay in y, are added to
// the residual stream, or become silu(gate) * up of sums in turns. Each sum is one chain over the
// rank, as on the CPU.
struct LowRankPart {
  MatrixRef b;
  int rank = 0;  // 0 = none
  float scale = 1;
  int inner_at = 0;          // where its A's outputs are
  int first = 0, width = 0;  // outputs it is about; of sums in turns their number
};
struct UpdateJob {
  const StepRow* rows = nullptr;
  const float* inner = nullptr;  // [n][ld_inner] A x of all parts
  int ld_inner = 0;
  static constexpr int kMostParts = 3;
  LowRankPart parts[kMostParts];
  int n_parts = 0;
  Joint joint = Joint::kBehind;  // kTurns: parts are gate and up
  float* y = nullptr;            // [n][ldy] sums of the product
  int ldy = 0;
  const float* bias = nullptr;  // as y
  int width = 0;                // outputs; of sums in turns those of one factor
  float* residual = nullptr;    // [n][width]
  InputRows activated;          // of sums in turns
  int up_at = 0;  // kTurns, where gate and up do not lie in turns after all: the first sum of up
};
void update_rows(const UpdateJob& job, int n, cudaStream_t stream);

// One elementwise step of a RowProgram (engine/row_program.h) on blocks of float32 rows.
struct RowStepJob {
  RowProgram::Op op = RowProgram::Op::kCopy;
  float* to = nullptr;
  const float* from = nullptr;  // of kLstm the gates
  int ld_to = 0, ld_from = 0;
  int cols = 0;
  float factor = 1;
  const int32_t* tokens = nullptr;  // kEmbed
  MatrixRef table;
};
void step_rows(const RowStepJob& job, int n, cudaStream_t stream);

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
  bool bf16 = true;     // queries
  KvType type = KvType::kBf16;
};
void rotate_rows(const RotateJob& job, int n, cudaStream_t stream);

// Copies n rows of a forward to the caches of their sequences, in all layers by one kernel. `step`
// and `cache` are those of layer 0; layers lie in sequence.
struct CommitJob {
  const CommitRow* rows = nullptr;
  int n_sequences = 1;
  KeyValues step, cache;
  int kv_heads = 0, head_dim = 0, head_stride = 0;
  KvType type = KvType::kBf16;
};
void commit_rows(const CommitJob& job, int n, int layers, cudaStream_t stream);

}  // namespace evalrun::engine::cuda
