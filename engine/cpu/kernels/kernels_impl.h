// Everything but the products, written once over a vector of 16 floats `V` that the including file
// defines for its instruction set. Everything here has internal linkage.
//
// V must offer: load (from floats, and from bfloat16 widened), store, bcast, zero, fma(a, b, c) =
// a * b + c, operators + - * /, vmax(a, b) = a > b ? a : b, vmin, abs, exp2i(y, t) = bits(y) +
// (bits(t) << 23), load_first(p, n), store_first(p, n, v), select_gt(a, b, x, y) = a > b ? x : y,
// kQueries (query rows of a tile of weighted values).
// Also used: quantize16(x, inverse, lo, hi, sum) of the integer arrangement D: 16 inputs to lo
// parts at `lo`; true when one has a hi part, then all 16 are in `hi`; adds their lo sum to `sum`.

namespace {

using evalrun::engine::cpu::kChunk;
using evalrun::engine::cpu::kLanes;
using evalrun::engine::cpu::WideInputs;

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

V sigmoid_vector(V x) { return V::bcast(1.0f) / (V::bcast(1.0f) + exp_fixed(V::zero() - x)); }
V tanh_vector(V x) { return V::bcast(1.0f) - V::bcast(2.0f) / (V::bcast(1.0f) + exp_fixed(x + x)); }
V lstm_vector(V i, V g, V o) {
  return sigmoid_vector(o) * tanh_vector(sigmoid_vector(i) * tanh_vector(g));
}

void lstm(const float* i, const float* g, const float* o, int n, float* y) {
  int j = 0;
  for (; j + kLanes <= n; j += kLanes)
    lstm_vector(V::load(i + j), V::load(g + j), V::load(o + j)).store(y + j);
  if (j < n)
    V::store_first(y + j, n - j,
                   lstm_vector(V::load_first(i + j, n - j), V::load_first(g + j, n - j),
                               V::load_first(o + j, n - j)));
}

void add(float* x, const float* y, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) (V::load(x + i) + V::load(y + i)).store(x + i);
  if (i < n)
    V::store_first(x + i, n - i, V::load_first(x + i, n - i) + V::load_first(y + i, n - i));
}

// Keys and values as bytes are followed by their scales (kv_store.h): 16 floats after a block of
// keys, one after a row of values. An element is widened to float(q) * scale.
template <typename T>
constexpr bool kScaled = std::is_same_v<T, int8_t>;
template <typename T>
size_t key_block(int head_dim) {
  return static_cast<size_t>(head_dim) * kLanes + (kScaled<T> ? kLanes * sizeof(float) : 0);
}

// Q query rows against B blocks of 16 positions.
template <int Q, int B, typename T>
void score_tile(const float* q, int ldq, const T* k, int head_dim, V scale, float* s, int lds) {
  V acc[Q][B];
#pragma GCC unroll 8
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) acc[i][b] = V::zero();
  const size_t block = key_block<T>(head_dim);
  [[maybe_unused]] V key_scale[B];
  if constexpr (kScaled<T>)
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b)
      key_scale[b] = V::load(reinterpret_cast<const float*>(
          k + static_cast<size_t>(b) * block + static_cast<size_t>(head_dim) * kLanes));
  for (int d = 0; d < head_dim; ++d) {
    V key[B];
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) {
      key[b] = V::load(k + static_cast<size_t>(b) * block + static_cast<size_t>(d) * kLanes);
      if constexpr (kScaled<T>) key[b] = key[b] * key_scale[b];
    }
#pragma GCC unroll 8
    for (int i = 0; i < Q; ++i) {
      const V qd = V::bcast(q[static_cast<ptrdiff_t>(i) * ldq + d]);
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b) acc[i][b] = V::fma(qd, key[b], acc[i][b]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b)
      (acc[i][b] * scale).store(s + static_cast<ptrdiff_t>(i) * lds + b * kLanes);
}

template <int Q, typename T>
void score_rows(const float* q, int ldq, const T* k_blocks, int n_blocks, int head_dim, V scale,
                float* s, int lds) {
  constexpr int kWide = V::kQueries > 2 ? 4 : 2;
  const size_t block = key_block<T>(head_dim);
  int b = 0;
  for (; b + kWide <= n_blocks; b += kWide)
    score_tile<Q, kWide>(q, ldq, k_blocks + static_cast<size_t>(b) * block, head_dim, scale,
                         s + b * kLanes, lds);
  for (; b < n_blocks; ++b)
    score_tile<Q, 1>(q, ldq, k_blocks + static_cast<size_t>(b) * block, head_dim, scale,
                     s + b * kLanes, lds);
}

template <typename T>
void scores(const float* q, int ldq, int n_q, const T* k_blocks, int n_blocks, int head_dim,
            float scale, float* s, int lds) {
  constexpr int kMost = V::kQueries > 2 ? 6 : 2;
  const V factor = V::bcast(scale);
  int i = 0;
  const auto at = [&](auto rows) {
    for (; i + decltype(rows)::value <= n_q; i += decltype(rows)::value)
      score_rows<decltype(rows)::value>(q + static_cast<ptrdiff_t>(i) * ldq, ldq, k_blocks,
                                        n_blocks, head_dim, factor,
                                        s + static_cast<ptrdiff_t>(i) * lds, lds);
  };
  at(std::integral_constant<int, kMost>());
  if constexpr (kMost > 3) at(std::integral_constant<int, 3>());
  at(std::integral_constant<int, 1>());
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

template <int Q, int W, typename T>
void weighted_sum_tile(const float* p, int ldp, const T* v, int ldv, [[maybe_unused]] int scale_at,
                       int n, float* acc, int lda) {
  V a[Q][W];
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q)
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w)
      a[q][w] = V::load(acc + static_cast<ptrdiff_t>(q) * lda + w * kLanes);
  for (int j = 0; j < n; ++j) {
    const T* row = v + static_cast<size_t>(j) * static_cast<size_t>(ldv);
    V value[W];
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w) value[w] = V::load(row + w * kLanes);
    if constexpr (kScaled<T>) {
      float scale;
      __builtin_memcpy(&scale, row + scale_at, sizeof scale);
      const V s = V::bcast(scale);
#pragma GCC unroll 8
      for (int w = 0; w < W; ++w) value[w] = value[w] * s;
    }
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) {
      const V b = V::bcast(p[static_cast<ptrdiff_t>(q) * ldp + j]);
#pragma GCC unroll 8
      for (int w = 0; w < W; ++w) a[q][w] = V::fma(b, value[w], a[q][w]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q)
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w) a[q][w].store(acc + static_cast<ptrdiff_t>(q) * lda + w * kLanes);
}

template <int Q, typename T>
void weighted_sum_rows(const float* p, int ldp, const T* v, int ldv, int n, int width, float* acc,
                       int lda) {
  constexpr int kWide = V::kQueries > 2 ? 4 : 2;
  int d = 0;
  for (; d + kWide * kLanes <= width; d += kWide * kLanes)
    weighted_sum_tile<Q, kWide>(p, ldp, v + d, ldv, width - d, n, acc + d, lda);
  for (; d < width; d += kLanes)
    weighted_sum_tile<Q, 1>(p, ldp, v + d, ldv, width - d, n, acc + d, lda);
}

template <typename T>
void weighted_sum(const float* p, int ldp, int n_q, const T* v, int ldv, int n, int width,
                  float* acc, int lda) {
  constexpr int kMost = V::kQueries > 2 ? 6 : 2;
  int i = 0;
  const auto at = [&](auto rows) {
    for (; i + decltype(rows)::value <= n_q; i += decltype(rows)::value)
      weighted_sum_rows<decltype(rows)::value>(p + static_cast<ptrdiff_t>(i) * ldp, ldp, v, ldv, n,
                                               width, acc + static_cast<ptrdiff_t>(i) * lda, lda);
  };
  at(std::integral_constant<int, kMost>());
  if constexpr (kMost > 3) at(std::integral_constant<int, 3>());
  at(std::integral_constant<int, 1>());
}

void merge(float* out, float* m, float* l, const float* chunk, float chunk_m, float chunk_l,
           int width) {
  const evalrun::engine::cpu::Merge f = evalrun::engine::cpu::merge_chunk(*m, *l, chunk_m, chunk_l);
  *m = f.m, *l = f.l;
  const V keep = V::bcast(f.keep), add_factor = V::bcast(f.add);
  for (int d = 0; d < width; d += kLanes)
    (V::load(out + d) * keep + V::load(chunk + d) * add_factor).store(out + d);
}

bool track_max(const float* y, int n, int first_block, float* best, float* block) {
  V top = V::load(best), where = V::load(block);
  V poison = V::zero();  // 0 x = 0 for finite x only
  for (int i = 0; i < n; i += kLanes) {
    const V number = V::bcast(static_cast<float>(first_block + i / kLanes));
    V v;
    if (i + kLanes <= n) {
      v = V::load(y + i);
    } else {
      // Lanes that do not exist must never win.
      alignas(64) float lane[kLanes];
      for (float& x : lane) x = -__builtin_inff();
      V::store_first(lane, n - i, V::load_first(y + i, n - i));
      v = V::load(lane);
    }
    poison = V::fma(i + kLanes <= n ? v : V::load_first(y + i, n - i), V::zero(), poison);
    where = V::select_gt(v, top, number, where);
    top = V::select_gt(v, top, v, top);
  }
  top.store(best), where.store(block);
  return sum_vector(poison) == 0.0f;
}

int round_int(const float* x, int n, int padded, std::byte* values, float* scale, int32_t* sums,
              WideInputs* wide) {
  V squares = V::zero(), largest = V::zero();
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V v = V::load(x + i);
    squares = V::fma(v, v, squares);
    largest = V::vmax(V::abs(v), largest);
  }
  if (i < n) {
    const V v = V::load_first(x + i, n - i);
    squares = V::fma(v, v, squares);
    largest = V::vmax(V::abs(v), largest);
  }
  alignas(64) float lane[kLanes];
  largest.store(lane);
  float top = lane[0];
  for (int j = 1; j < kLanes; ++j) top = lane[j] > top ? lane[j] : top;
  *scale = evalrun::engine::cpu::input_scale(sum_vector(squares), n, top);
  const V inverse = V::bcast(1.0f / *scale);
  int n_wide = 0;
  for (int g = 0; g < padded / 32; ++g) {
    typename D::Partial sum = D::partial_zero();
    for (int half = 0; half < 2; ++half) {
      const int at = g * 32 + half * kLanes;
      const V v = at + kLanes <= n ? V::load(x + at)
                  : at < n         ? V::load_first(x + at, n - at)
                                   : V::zero();
      alignas(64) int32_t hi[kLanes];
      if (D::quantize16(v * inverse, values + static_cast<size_t>(at / 4) * D::kBytesPerFour, hi,
                        sum))
        for (int four = 0; four < 4; ++four) {
          const int32_t* h = hi + 4 * four;
          if ((h[0] | h[1] | h[2] | h[3]) == 0) continue;
          WideInputs& w = wide[n_wide++];
          w.line = at / 4 + four;
          w.sum = h[0] + h[1] + h[2] + h[3];
          D::arrange(h, w.value);
        }
    }
    sums[g] = D::reduce(sum);
  }
  return n_wide;
}

}  // namespace
