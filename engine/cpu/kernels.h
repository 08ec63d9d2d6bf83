// Vector kernels of one instruction set. Each gives the bits of the scalar definitions in arith.h.
#pragma once
#include <span>
#include <string_view>

namespace evalrun::engine::cpu {

struct Kernels {
  const char* name;  // "avx512", "avx2"

  // y[r][o] = sum_k x[r][k] * w[o][k] for the `n_out` outputs of `n_panels` packed panels (see
  // WeightMatrix): one fma chain per output, k ascending, starting from 0.
  void (*gemm)(const float* x, int ldx, int n_rows, const float* panels, int n_panels, int n_in,
               int n_out, float* y, int ldy);
  // y = x * rms_scale * w
  void (*rms_norm)(const float* x, const float* w, int d, float eps, float* y);
  // y = silu(gate) * up
  void (*silu_mul)(const float* gate, const float* up, int n, float* y);
  void (*add)(float* x, const float* y, int n);  // x += y
  // s[q][16 b + lane] = scale * sum_d q[q][d] * k[b][d][lane]; k in blocks of 16 positions [d][16].
  void (*scores)(const float* q, int ldq, int n_q, const float* k_blocks, int n_blocks,
                 int head_dim, float scale, float* s, int lds);
  // One chunk: s[kChunk] holds scores at [lo, hi). On return p = exp(s - max) there and exact zeros
  // elsewhere; returns their sum, stores the maximum.
  float (*softmax_chunk)(float* s, int lo, int hi, float* max);
  // acc[q][d] += sum_j p[q][j] * v[j][d], j ascending, one fma chain per d; width a multiple of 16.
  void (*weighted_sum)(const float* p, int ldp, int n_q, const float* v, int ldv, int n, int width,
                       float* acc, int lda);
  // out = out * keep + chunk * add (first: out = chunk)
  void (*merge)(float* out, const float* chunk, int width, float keep, float add);
};

// What this processor can run, best first; empty where only the reference path exists.
std::span<const Kernels* const> available_kernels();
const Kernels* find_kernels(std::string_view name);  // nullptr when not available

}  // namespace evalrun::engine::cpu
