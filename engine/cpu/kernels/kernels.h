// Vector kernels of one instruction set. Each gives the bits of the scalar definitions in arith.h
// and of the products defined below, whatever the instruction set, the number of rows and the tile
// shape.
//
// Products y[r][o] of rows with packed panels (engine/model/weight_matrix.h):
//   kF32          one fma chain per output, inputs ascending, starting from 0
//   kBf16         inputs rounded to bfloat16; per pair of inputs (2i, 2i+1) two fma: first the odd,
//                 then the even one, pairs ascending. That is what vdpbf16ps computes; products of
//                 bfloat16 numbers are exact in float32, so it is two fma on any machine.
//   kInt8Channel  inputs as integers q = lo + 128 hi with one scale per row (arith.h):
//                 y = (float(sum_k q w) * channel scale) * row scale, the sum exact in int32
//   kInt8Group,   y = fma(float(sum over the group of lo w), d, y) for groups ascending, each
//   kQ4Group,     followed in kQ4* by y = fma(float(sum of lo), m, y); then for every four inputs
//   kQ4Centred    with a hi part, ascending, the same with 128 hi in place of lo; at the end
//                 y * row scale. In kQ4Centred m is -8.0f * d.
//   kQ4K, kQ5K    y = fma(float(sum over the block of lo * code * scale), d, y) for blocks of 256
//                 ascending, each followed by y = fma(float(sum of lo * minimum), m, y): code, and
//                 scale and minimum of the input's group of 32, are integers as in the file, m is
//                 -dmin, and the sums are exact in int32. Then, as above, four inputs with a hi
//                 part at a time, and row scale.
//   kQ6K          the same with code - 32, scales of groups of 16 and no minima.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/cpu/kernels/fp8.h"
#include "engine/cpu/kernels/int4.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cpu {

// Four neighbouring inputs of a row with at least one |q| > 127: their hi parts.
struct WideInputs {
  int32_t line;   // inputs 4 line .. 4 line + 3
  int32_t sum;    // of the four
  int32_t value;  // as bytes, the first one lowest
};

// What a row of integers has once. On a cache line of its own: threads round rows at the same time,
// and a line that they share would travel between them with every row.
struct alignas(64) RowHeader {
  float scale = 0;
  int32_t n_wide = 0;
};

// Rows prepared for one kind of storage by Kernels::round_*; views into the caller's buffers.
struct InputRows {
  const std::byte* values = nullptr;  // row r at r * stride: floats, bfloat16, or lo parts as bytes
  size_t stride = 0;                  // bytes, a multiple of 64
  const RowHeader* headers = nullptr;  // [rows]
  const int32_t* sums = nullptr;       // [rows][groups]: sum of lo over each group of 32 inputs
  int groups = 0;                      // padded inputs / 32
  const WideInputs* wide = nullptr;    // [rows][groups * 8]
  // For products with K-quants alone:
  const int32_t* pairs = nullptr;   // [rows][groups / 2]: two of the sums as 16 bits, even first
  const int32_t* starts = nullptr;  // [rows][groups * 2]: -32 times the sum of 16 inputs, in the
                                    // arrangement of the kernels' sums of codes

  InputRows from(int row) const {
    const ptrdiff_t r = row;
    return {values + static_cast<size_t>(row) * stride,
            stride,
            headers + r,
            sums + r * groups,
            groups,
            wide + r * groups * 8,
            pairs + r * (groups / 2),
            starts + r * groups * 2};
  }
};

// Where one row of integers goes; the rest as in InputRows.
struct IntegerRow {
  std::byte* values;  // [padded]
  float* scale;
  int32_t* sums;
  WideInputs* wide;  // [padded / 4]
  // Both null: no product with K-quants follows.
  int32_t* pairs = nullptr;
  int32_t* starts = nullptr;
};

struct Product {
  InputRows in;
  int n_rows;
  const std::byte* panels;  // n_panels of them, panel_bytes apart
  size_t panel_bytes;
  int n_panels;
  int n_in;   // as in the matrix, without padding
  int n_out;  // outputs that exist in these panels: the last panel may be partial
  float* y;   // row r at r * ldy
  int ldy;
  bool one_stream;  // read panels one after the other, where that is no matter of arithmetic
};

struct Kernels {
  const char* name;    // "avx512", "avx2", ...
  int bytes_per_bf16;  // size of one kBf16 input in a row: 2, or 4 where it is widened
  // How the processor reads memory fastest. Zen 4 gives a thread 30 GB/s in one stream and 15 to 27
  // in six; a Sapphire Rapids guest 12 in one and 20 in four.
  bool one_stream;

  void (*multiply_f32)(const Product&);
  void (*multiply_bf16)(const Product&);
  void (*multiply_int8_channel)(const Product&);
  void (*multiply_int8_group)(const Product&);
  void (*multiply_q4_group)(const Product&);
  void (*multiply_q4_centred)(const Product&);
  void (*multiply_q4_k)(const Product&);
  void (*multiply_q5_k)(const Product&);
  void (*multiply_q6_k)(const Product&);

  // One row to integers; padding, to a multiple of 64, becomes zero. Returns the number of wide
  // inputs. What serves K-quants changes nothing of the rest, so such a row fits matrices of any
  // integer storage.
  int (*round_int)(const float* x, int n, int padded, const IntegerRow& to);
  // One row to bfloat16; padding becomes zero.
  void (*round_bf16)(const float* x, int n, int padded, std::byte* values);

  // y = x * rms_scale * w
  void (*rms_norm)(const float* x, const float* w, int d, float eps, float* y);
  // y = silu(gate) * up
  void (*silu_mul)(const float* gate, const float* up, int n, float* y);
  void (*lstm)(const float* i, const float* g, const float* o, int n, float* y);  // lstm_cell()
  void (*add)(float* x, const float* y, int n);                                   // x += y
  // y = rope() of arith.h of n_heads neighbouring heads of 2 * half values; y may be x.
  void (*rotate)(const float* x, const float* cos, const float* sin, int half, int n_heads,
                 float* y);

  // Values and keys as they are stored (KvStore): float_to_bfloat16 of each.
  void (*values_to_bf16)(const float* v, int n, uint16_t* to);
  // Keys of n neighbouring positions, row r at k + r * ldk, to lanes [lane, lane + n) of a block
  // [head_dim][16]. Other lanes are read and written again, so one thread at a time writes to a
  // block.
  void (*keys_to_bf16)(const float* k, int ldk, int n, int head_dim, int lane, uint16_t* block);
  // One head as bytes, q[i * stride]; its scale (round_to_bytes in arith.h).
  float (*head_to_bytes)(const float* x, int n, int8_t* q, int stride);
  // One head in 4 bits: a code for each of n values; what they are read with (round_to_int4).
  Int4Steps (*head_to_int4)(const float* x, int n, uint8_t* codes);

  // Attention over keys and values of float32, bfloat16, bytes with scales (int8, fp8) or codes of
  // 4 bits (KvStore); widened, then float32 arithmetic.
  // s[q][16 b + lane] = scale * sum_d q[q][d] * k[b][d][lane]; k in blocks of 16 positions [d][16].
  void (*scores_f32)(const float* q, int ldq, int n_q, const float* k_blocks, int n_blocks,
                     int head_dim, float scale, float* s, int lds);
  void (*scores_bf16)(const float* q, int ldq, int n_q, const uint16_t* k_blocks, int n_blocks,
                      int head_dim, float scale, float* s, int lds);
  void (*scores_int8)(const float* q, int ldq, int n_q, const int8_t* k_blocks, int n_blocks,
                      int head_dim, float scale, float* s, int lds);
  void (*scores_int4)(const float* q, int ldq, int n_q, const uint8_t* k_blocks, int n_blocks,
                      int head_dim, float scale, float* s, int lds);
  void (*scores_fp8)(const float* q, int ldq, int n_q, const Fp8* k_blocks, int n_blocks,
                     int head_dim, float scale, float* s, int lds);
  // One chunk of n_q queries, kChunk scores each: those of query q are at [lo, hi[q]). On return
  // p = exp(s - max) there, and each query's maximum and the sum of its p. A query without scores,
  // hi[q] <= lo, is left alone.
  void (*softmax_chunk)(float* s, int n_q, int lo, const int* hi, float* max, float* sum);
  // acc[q][d] += sum_j p[q][j] * v[j][d], j ascending, one fma chain per d; width a multiple of 16.
  void (*weighted_sum_f32)(const float* p, int ldp, int n_q, const float* v, int ldv, int n,
                           int width, float* acc, int lda);
  void (*weighted_sum_bf16)(const float* p, int ldp, int n_q, const uint16_t* v, int ldv, int n,
                            int width, float* acc, int lda);
  void (*weighted_sum_int8)(const float* p, int ldp, int n_q, const int8_t* v, int ldv, int n,
                            int width, float* acc, int lda);
  void (*weighted_sum_int4)(const float* p, int ldp, int n_q, const uint8_t* v, int ldv, int n,
                            int width, float* acc, int lda);
  void (*weighted_sum_fp8)(const float* p, int ldp, int n_q, const Fp8* v, int ldv, int n,
                           int width, float* acc, int lda);
  // Running softmax of n_q queries: weighted sums [n_q][width], maxima and denominators of one more
  // chunk into out, m, l (merge_chunk in arith.h).
  void (*merge)(float* out, float* m, float* l, const float* chunk, const float* chunk_m,
                const float* chunk_l, int n_q, int width);
  // Running argmax of 16 lanes: for every lane where y[16 b + lane] > best[lane], that value and
  // the number first_block + b (exact in float32). y has n values; false when not all are finite.
  bool (*track_max)(const float* y, int n, int first_block, float* best, float* block);
};

// The kernel of a storage.
inline void multiply(const Kernels& k, WeightStorage storage, const Product& p) {
  switch (storage) {
    case WeightStorage::kF32:
      return k.multiply_f32(p);
    case WeightStorage::kBf16:
      return k.multiply_bf16(p);
    case WeightStorage::kInt8Channel:
      return k.multiply_int8_channel(p);
    case WeightStorage::kInt8Group:
      return k.multiply_int8_group(p);
    case WeightStorage::kQ4Group:
      return k.multiply_q4_group(p);
    case WeightStorage::kQ4Centred:
      return k.multiply_q4_centred(p);
    case WeightStorage::kQ4K:
      return k.multiply_q4_k(p);
    case WeightStorage::kQ5K:
      return k.multiply_q5_k(p);
    case WeightStorage::kQ6K:
      return k.multiply_q6_k(p);
  }
}

// What this processor can run, best first; never empty ("portable" is last).
std::span<const Kernels> available_kernels();
const Kernels* find_kernels(std::string_view name);  // nullptr when not available
// The same with faster products, whose bits are this path's own (`--reproducible one-isa`);
// nullptr where there are none.
const Kernels* one_isa_kernels(std::string_view name);

}  // namespace evalrun::engine::cpu
