// The kernels, written once over a vector of 16 floats `V` that the including file defines for its
// instruction set (kernels_avx2.cpp, kernels_avx512.cpp). Everything here has internal linkage.
//
// V must offer: load, store, bcast, zero, fma(a, b, c) = a * b + c, operators + - * /, vmax(a, b) =
// a > b ? a : b, vmin, exp2i(y, t) = bits(y) + (bits(t) << 23), load_first(p, n), store_first(p, n,
// v), panels_for(rows), kMaxRows.
//
// gemm: a panel is K cache lines, one per input channel; R rows x P panels of sums stay in
// registers while K is walked once. At one row the loop is bound by memory: P panels are P separate
// streams with software prefetch 2 KB ahead, because one sequential stream reaches only half of a
// core's bandwidth.

namespace {

using evalrun::engine::cpu::kChunk;
using evalrun::engine::cpu::kLanes;

constexpr int kPrefetchLines = 32;

template <int R, int P, bool kPrefetch>
void gemm_tile(const float* x, int ldx, const float* w, size_t panel_size, int n_in, int n_out,
               float* y, int ldy) {
  V acc[R][P];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) acc[r][p] = V::zero();
  for (int k = 0; k < n_in; ++k) {
    V column[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const float* line = w + static_cast<size_t>(p) * panel_size + static_cast<size_t>(k) * kLanes;
      column[p] = V::load(line);
      if constexpr (kPrefetch) __builtin_prefetch(line + kPrefetchLines * kLanes, 0, 3);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V b =
          V::bcast(x[static_cast<size_t>(r) * static_cast<size_t>(ldx) + static_cast<size_t>(k)]);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) acc[r][p] = V::fma(b, column[p], acc[r][p]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) {
      float* out = y + static_cast<size_t>(r) * static_cast<size_t>(ldy) + p * kLanes;
      const int left = n_out - p * kLanes;
      if (left >= kLanes)
        acc[r][p].store(out);
      else if (left > 0)
        V::store_first(out, left, acc[r][p]);
    }
}

// R rows against `n_panels` panels, P at a time.
template <int R, bool kPrefetch>
void gemm_rows(const float* x, int ldx, const float* w, size_t panel_size, int n_panels, int n_in,
               int n_out, float* y, int ldy) {
  constexpr int kP = V::panels_for(R);
  int p = 0;
  const auto at = [&](int i) { return w + static_cast<size_t>(i) * panel_size; };
  for (; p + kP <= n_panels; p += kP)
    gemm_tile<R, kP, kPrefetch>(x, ldx, at(p), panel_size, n_in, n_out - p * kLanes, y + p * kLanes,
                                ldy);
  if constexpr (kP > 2)
    for (; p + 2 <= n_panels; p += 2)
      gemm_tile<R, 2, kPrefetch>(x, ldx, at(p), panel_size, n_in, n_out - p * kLanes,
                                 y + p * kLanes, ldy);
  for (; p < n_panels; ++p)
    gemm_tile<R, 1, kPrefetch>(x, ldx, at(p), panel_size, n_in, n_out - p * kLanes, y + p * kLanes,
                               ldy);
}

template <bool kPrefetch>
void gemm_block(int rows, const float* x, int ldx, const float* w, size_t panel_size, int n_panels,
                int n_in, int n_out, float* y, int ldy) {
  switch (rows) {
    case 1:
      return gemm_rows<1, kPrefetch>(x, ldx, w, panel_size, n_panels, n_in, n_out, y, ldy);
    case 2:
      return gemm_rows<2, kPrefetch>(x, ldx, w, panel_size, n_panels, n_in, n_out, y, ldy);
    case 3:
      return gemm_rows<3, kPrefetch>(x, ldx, w, panel_size, n_panels, n_in, n_out, y, ldy);
    case 4:
      return gemm_rows<4, kPrefetch>(x, ldx, w, panel_size, n_panels, n_in, n_out, y, ldy);
    case 5:
      return gemm_rows<5, kPrefetch>(x, ldx, w, panel_size, n_panels, n_in, n_out, y, ldy);
    default:
      return gemm_rows<6, kPrefetch>(x, ldx, w, panel_size, n_panels, n_in, n_out, y, ldy);
  }
}

void gemm(const float* x, int ldx, int n_rows, const float* panels, int n_panels, int n_in,
          int n_out, float* y, int ldy) {
  const size_t panel_size = static_cast<size_t>(n_in) * kLanes;
  const int group = n_rows <= 2 ? 8 : 4;  // panels that stay in L2 while the rows pass over them
  // Row blocks of nearly equal height, at most 6: 8 rows are 4 + 4, not 6 + 2.
  const int n_blocks = (n_rows + 5) / 6;
  for (int p = 0; p < n_panels; p += group) {
    const int g = n_panels - p < group ? n_panels - p : group;
    const float* w = panels + static_cast<size_t>(p) * panel_size;
    int r = 0;
    for (int b = 0; b < n_blocks; ++b) {
      const int rows = (n_rows - r + n_blocks - b - 1) / (n_blocks - b);
      const float* xr = x + static_cast<size_t>(r) * static_cast<size_t>(ldx);
      float* yr = y + static_cast<size_t>(r) * static_cast<size_t>(ldy) + p * kLanes;
      if (b == 0)
        gemm_block<true>(rows, xr, ldx, w, panel_size, g, n_in, n_out - p * kLanes, yr, ldy);
      else
        gemm_block<false>(rows, xr, ldx, w, panel_size, g, n_in, n_out - p * kLanes, yr, ldy);
      r += rows;
    }
  }
}

V exp_fixed(V x) {
  const V round = V::bcast(12582912.0f);
  // The comparisons of the scalar code keep x when it is a NaN; so do these (second operand
  // returned).
  x = V::vmax(V::bcast(-86.0f), x);
  x = V::vmin(V::bcast(86.0f), x);
  const V t = V::fma(x, V::bcast(1.44269504088896341f), round);
  const V n = t - round;
  V r = V::fma(n, V::bcast(-0.693359375f), x);
  r = V::fma(n, V::bcast(2.12194440e-4f), r);
  V p = V::bcast(1.9875691500e-4f);
  p = V::fma(p, r, V::bcast(1.3981999507e-3f));
  p = V::fma(p, r, V::bcast(8.3334519073e-3f));
  p = V::fma(p, r, V::bcast(4.1665795894e-2f));
  p = V::fma(p, r, V::bcast(1.6666665459e-1f));
  p = V::fma(p, r, V::bcast(5.0000001201e-1f));
  return V::exp2i(V::fma(p, r * r, r) + V::bcast(1.0f), t);
}

float sum_vector(V v) {
  alignas(64) float lane[kLanes];
  v.store(lane);
  return evalrun::engine::cpu::sum_lanes(lane);
}

void rms_norm(const float* x, const float* w, int d, float eps, float* y) {
  V squares = V::zero();
  int i = 0;
  for (; i + kLanes <= d; i += kLanes) {
    const V v = V::load(x + i);
    squares = V::fma(v, v, squares);
  }
  if (i < d) {
    const V v = V::load_first(x + i, d - i);  // missing lanes are 0: fma(0, 0, s) = s
    squares = V::fma(v, v, squares);
  }
  const V scale = V::bcast(evalrun::engine::cpu::rms_scale(sum_vector(squares), d, eps));
  for (i = 0; i + kLanes <= d; i += kLanes) (V::load(x + i) * scale * V::load(w + i)).store(y + i);
  if (i < d)
    V::store_first(y + i, d - i, V::load_first(x + i, d - i) * scale * V::load_first(w + i, d - i));
}

V silu_mul_vector(V g, V u) {
  const V e = exp_fixed(V::zero() - g);
  return g / (V::bcast(1.0f) + e) * u;
}

void silu_mul(const float* gate, const float* up, int n, float* y) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    silu_mul_vector(V::load(gate + i), V::load(up + i)).store(y + i);
  if (i < n)
    V::store_first(y + i, n - i,
                   silu_mul_vector(V::load_first(gate + i, n - i), V::load_first(up + i, n - i)));
}

void add(float* x, const float* y, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) (V::load(x + i) + V::load(y + i)).store(x + i);
  if (i < n)
    V::store_first(x + i, n - i, V::load_first(x + i, n - i) + V::load_first(y + i, n - i));
}

template <int B>
void score_blocks(const float* q, const float* k, int head_dim, V scale, float* s) {
  V acc[B];
  for (int b = 0; b < B; ++b) acc[b] = V::zero();
  const size_t block = static_cast<size_t>(head_dim) * kLanes;
  for (int d = 0; d < head_dim; ++d) {
    const V qd = V::bcast(q[d]);
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b)
      acc[b] =
          V::fma(qd, V::load(k + static_cast<size_t>(b) * block + static_cast<size_t>(d) * kLanes),
                 acc[b]);
  }
  for (int b = 0; b < B; ++b) (acc[b] * scale).store(s + b * kLanes);
}

void scores(const float* q, int ldq, int n_q, const float* k_blocks, int n_blocks, int head_dim,
            float scale, float* s, int lds) {
  const V factor = V::bcast(scale);
  const size_t block = static_cast<size_t>(head_dim) * kLanes;
  int b = 0;
  for (; b + 4 <= n_blocks; b += 4)
    for (int i = 0; i < n_q; ++i)
      score_blocks<4>(q + static_cast<size_t>(i) * static_cast<size_t>(ldq),
                      k_blocks + static_cast<size_t>(b) * block, head_dim, factor,
                      s + static_cast<size_t>(i) * static_cast<size_t>(lds) + b * kLanes);
  for (; b < n_blocks; ++b)
    for (int i = 0; i < n_q; ++i)
      score_blocks<1>(q + static_cast<size_t>(i) * static_cast<size_t>(ldq),
                      k_blocks + static_cast<size_t>(b) * block, head_dim, factor,
                      s + static_cast<size_t>(i) * static_cast<size_t>(lds) + b * kLanes);
}

float softmax_chunk(float* s, int lo, int hi, float* max) {
  // Outside [lo, hi) the scores become the maximum's neutral element, then exact zeros.
  constexpr float kLowest = -3.402823466e+38f;
  for (int j = 0; j < lo; ++j) s[j] = kLowest;
  for (int j = hi; j < kChunk; ++j) s[j] = kLowest;
  V top = V::load(s);
  for (int j = kLanes; j < kChunk; j += kLanes) top = V::vmax(V::load(s + j), top);
  alignas(64) float lane[kLanes];
  top.store(lane);
  float m = lane[0];
  for (int j = 1; j < kLanes; ++j) m = lane[j] > m ? lane[j] : m;
  const V mv = V::bcast(m);
  for (int j = 0; j < kChunk; j += kLanes) exp_fixed(V::load(s + j) - mv).store(s + j);
  for (int j = 0; j < lo; ++j) s[j] = 0.0f;
  for (int j = hi; j < kChunk; ++j) s[j] = 0.0f;
  V sum = V::zero();
  for (int j = 0; j < kChunk; j += kLanes) sum = sum + V::load(s + j);
  *max = m;
  return sum_vector(sum);
}

template <int Q>
void weighted_sum_tile(const float* p, int ldp, const float* v, int ldv, int n, int width,
                       float* acc, int lda) {
  for (int d = 0; d < width; d += 2 * kLanes) {
    const bool two = d + kLanes < width;
    V a[Q][2];
    for (int q = 0; q < Q; ++q) {
      a[q][0] = V::load(acc + q * lda + d);
      a[q][1] = two ? V::load(acc + q * lda + d + kLanes) : V::zero();
    }
    for (int j = 0; j < n; ++j) {
      const float* row = v + static_cast<size_t>(j) * static_cast<size_t>(ldv) + d;
      const V v0 = V::load(row), v1 = two ? V::load(row + kLanes) : V::zero();
#pragma GCC unroll 8
      for (int q = 0; q < Q; ++q) {
        const V b = V::bcast(p[q * ldp + j]);
        a[q][0] = V::fma(b, v0, a[q][0]);
        a[q][1] = V::fma(b, v1, a[q][1]);
      }
    }
    for (int q = 0; q < Q; ++q) {
      a[q][0].store(acc + q * lda + d);
      if (two) a[q][1].store(acc + q * lda + d + kLanes);
    }
  }
}

void weighted_sum(const float* p, int ldp, int n_q, const float* v, int ldv, int n, int width,
                  float* acc, int lda) {
  int q = 0;
  for (; q + 3 <= n_q; q += 3)
    weighted_sum_tile<3>(p + q * ldp, ldp, v, ldv, n, width, acc + q * lda, lda);
  for (; q + 2 <= n_q; q += 2)
    weighted_sum_tile<2>(p + q * ldp, ldp, v, ldv, n, width, acc + q * lda, lda);
  for (; q < n_q; ++q) weighted_sum_tile<1>(p + q * ldp, ldp, v, ldv, n, width, acc + q * lda, lda);
}

void merge(float* out, const float* chunk, int width, float keep, float add_factor) {
  const V k = V::bcast(keep), a = V::bcast(add_factor);
  for (int d = 0; d < width; d += kLanes)
    (V::load(out + d) * k + V::load(chunk + d) * a).store(out + d);
}

}  // namespace
