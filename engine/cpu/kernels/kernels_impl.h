// Norms, activations and attention, written once over a vector of 16 floats `V` that the including
// file defines for its instruction set. Everything here has internal linkage.
//
// V must offer: load (from floats, and from bfloat16 widened), store, bcast, zero, fma(a, b, c) =
// a * b + c, operators + - * /, vmax(a, b) = a > b ? a : b, vmin, abs, exp2i(y, t) = bits(y) +
// (bits(t) << 23), load_first(p, n), store_first(p, n, v), select_gt(a, b, x, y) = a > b ? x : y,
// sum(v) = sum_lanes() of arith.h, largest(v) of the lanes, kTileQueries (most queries of an
// attention tile: 6 or 2), tile_columns(queries) (its keys or values, in vectors). Of codes of 4
// bits (int4.h) of_codes(p, shift): (p[lane] >> shift) & 15, and with code_values(steps) as a third
// argument int4_value() of these. Of E4M3 (fp8.h) of_fp8(p): a 256th of fp8_value(), exact. And
// widen_pairs(p, even, odd): of 16 pairs of bfloat16 the first ones and the second ones.
#include "engine/cpu/kernels/fp8.h"
#include "engine/cpu/kernels/int4.h"

namespace {

using evalrun::engine::cpu::Fp8;
using evalrun::engine::cpu::Int4Steps;
using evalrun::engine::cpu::kChunk;
using evalrun::engine::cpu::kLanes;

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
  const V scale = V::bcast(evalrun::engine::cpu::rms_scale(V::sum(squares), d, eps));
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

// Keys and values as they are stored (kv_store.h), widened: one dimension of a block of 16 keys, 16
// dimensions of a value. `KeyScale` is what all dimensions of a block share, `ValueScale` what all
// of a value do. kTogether: so many dimensions of a key are read from the same bytes.
template <typename T>
struct Stored {
  static constexpr int kTogether = 1;
  static size_t key_block(int head_dim) { return static_cast<size_t>(head_dim) * kLanes; }
  struct KeyScale {};
  static KeyScale key_scale(const T* /*block*/, int /*head_dim*/) { return {}; }
  static V key(const T* block, int d, int /*part*/, const KeyScale& /*scale*/) {
    return V::load(block + static_cast<size_t>(d) * kLanes);
  }
  struct ValueScale {};
  static ValueScale value_scale(const T* /*row*/, int /*width*/) { return {}; }
  static V value(const T* row, int d, int /*part*/, const ValueScale& /*scale*/) {
    return V::load(row + d);
  }
};

// A number in a byte, T: they are followed by their scales, 16 floats after a block of keys, one
// after a value. kUnit: what V makes of a byte is that part of the number it stands for. A power of
// two, so that it changes no bit on which side of a product it is.
template <typename T>
struct StoredBytes {
  static constexpr int kTogether = 1;
  static constexpr bool kIsFp8 = std::is_same_v<T, Fp8>;
  static constexpr float kUnit = kIsFp8 ? 256.0f : 1.0f;
  static V load(const T* p) {
    if constexpr (kIsFp8)
      return V::of_fp8(reinterpret_cast<const uint8_t*>(p));
    else
      return V::load(p);
  }
  static size_t key_block(int head_dim) {
    return static_cast<size_t>(head_dim) * kLanes + kLanes * sizeof(float);
  }
  using KeyScale = V;
  static V key_scale(const T* block, int head_dim) {
    const V scale =
        V::load(reinterpret_cast<const float*>(block + static_cast<size_t>(head_dim) * kLanes));
    return kIsFp8 ? scale * V::bcast(kUnit) : scale;
  }
  static V key(const T* block, int d, int /*part*/, const V& scale) {
    return load(block + static_cast<size_t>(d) * kLanes) * scale;
  }
  using ValueScale = V;
  static V value_scale(const T* row, int width) {
    float scale;
    __builtin_memcpy(&scale, row + width, sizeof scale);
    return V::bcast(scale * kUnit);
  }
  static V value(const T* row, int d, int /*part*/, const V& scale) {
    return load(row + d) * scale;
  }
};
template <>
struct Stored<int8_t> : StoredBytes<int8_t> {};
template <>
struct Stored<Fp8> : StoredBytes<Fp8> {};

// Codes of 4 bits, two in a byte, are followed by Int4Steps (int4.h): 16 of them after a block of
// keys, one after a value.
template <>
struct Stored<uint8_t> {
  static constexpr int kTogether = 2;
  static size_t key_bytes(int head_dim) {
    return evalrun::engine::cpu::int4_key_bytes(static_cast<size_t>(head_dim)) * kLanes;
  }
  static size_t key_block(int head_dim) { return key_bytes(head_dim) + kLanes * sizeof(Int4Steps); }
  struct KeyScale {
    V scale, offset;
  };
  static KeyScale key_scale(const uint8_t* block, int head_dim) {
    KeyScale s;
    widen_pairs(reinterpret_cast<const std::byte*>(block + key_bytes(head_dim)), s.offset, s.scale);
    return s;
  }
  static V key(const uint8_t* block, int d, int part, const KeyScale& s) {
    return V::fma(V::of_codes(block + static_cast<size_t>(d / 2) * kLanes, 4 * part), s.scale,
                  s.offset);
  }
  using ValueScale = V::CodeValues;
  static ValueScale value_scale(const uint8_t* row, int width) {
    Int4Steps steps;
    __builtin_memcpy(&steps,
                     row + evalrun::engine::cpu::int4_value_bytes(static_cast<size_t>(width)),
                     sizeof steps);
    return V::code_values(steps);
  }
  static V value(const uint8_t* row, int d, int part, const ValueScale& scale) {
    return V::of_codes(row + d / 32 * 16, 4 * part, scale);
  }
};

// f(first, Q) for all queries, in tiles of Q of them: an integral constant.
template <typename F>
void for_query_tiles(int n_q, const F& f) {
  int i = 0;
  const auto tiles_of = [&](auto rows) {
    for (; i + decltype(rows)::value <= n_q; i += decltype(rows)::value) f(i, rows);
  };
  if constexpr (V::kTileQueries > 3) {
    tiles_of(std::integral_constant<int, 6>());
    tiles_of(std::integral_constant<int, 3>());
  }
  tiles_of(std::integral_constant<int, 2>());
  tiles_of(std::integral_constant<int, 1>());
}

// Q query rows against B blocks of 16 positions.
template <int Q, int B, typename T>
void score_tile(const float* q, int ldq, const T* k, int head_dim, V scale, float* s, int lds) {
  V acc[Q][B];
#pragma GCC unroll 8
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) acc[i][b] = V::zero();
  using S = Stored<T>;
  const size_t block = S::key_block(head_dim);
  typename S::KeyScale key_scale[B];
#pragma GCC unroll 8
  for (int b = 0; b < B; ++b)
    key_scale[b] = S::key_scale(k + static_cast<size_t>(b) * block, head_dim);
  // Head dimensions are even.
  for (int first = 0; first < head_dim; first += S::kTogether)
#pragma GCC unroll 2
    for (int part = 0; part < S::kTogether; ++part) {
      const int d = first + part;
      V key[B];
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b)
        key[b] = S::key(k + static_cast<size_t>(b) * block, d, part, key_scale[b]);
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
  constexpr int kWide = V::tile_columns(Q);
  const size_t block = Stored<T>::key_block(head_dim);
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
  const V factor = V::bcast(scale);
  for_query_tiles(n_q, [&](int i, auto rows) {
    score_rows<decltype(rows)::value>(q + static_cast<ptrdiff_t>(i) * ldq, ldq, k_blocks, n_blocks,
                                      head_dim, factor, s + static_cast<ptrdiff_t>(i) * lds, lds);
  });
}

// All maxima first, then all exponentials: each is a long chain of instructions, and those of the
// next query need not wait for it. Of the blocks of 16 at the borders, lanes beside the scores get
// what changes no maximum, then zeros.
void softmax_chunk(float* s, int n_q, int lo, const int* hi, float* max, float* sum) {
  constexpr float kLowest = -3.402823466e+38f;
  const int first = lo / kLanes * kLanes;
  const auto fill_borders = [&](float* x, int to, int last, float value) {
    if (first < lo) V::store_first(x + first, lo - first, V::bcast(value));
    if (to < last) V::store_first(x + to, last - to, V::bcast(value));
  };
  for (int q = 0; q < n_q; ++q) {
    if (hi[q] <= lo) continue;
    float* x = s + static_cast<ptrdiff_t>(q) * kChunk;
    const int last = (hi[q] + kLanes - 1) / kLanes * kLanes;
    fill_borders(x, hi[q], last, kLowest);
    V top = V::load(x + first);
    for (int j = first + kLanes; j < last; j += kLanes) top = V::vmax(V::load(x + j), top);
    max[q] = V::largest(top);
  }
  for (int q = 0; q < n_q; ++q) {
    if (hi[q] <= lo) continue;
    float* x = s + static_cast<ptrdiff_t>(q) * kChunk;
    const int last = (hi[q] + kLanes - 1) / kLanes * kLanes;
    const V top = V::bcast(max[q]);
    for (int j = first; j < last; j += kLanes) exp_fixed(V::load(x + j) - top).store(x + j);
    fill_borders(x, hi[q], last, 0.0f);
    V total = V::zero();
    for (int j = first; j < last; j += kLanes) total = total + V::load(x + j);
    sum[q] = V::sum(total);
  }
}

// Columns of 16 dimensions from dimension d on.
template <int Q, int W, typename T>
void weighted_sum_tile(const float* p, int ldp, const T* v, int ldv, int d, int width, int n,
                       float* acc, int lda) {
  using S = Stored<T>;
  V a[Q][W];
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q)
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w)
      a[q][w] = V::load(acc + static_cast<ptrdiff_t>(q) * lda + w * kLanes);
  for (int j = 0; j < n; ++j) {
    const T* row = v + static_cast<size_t>(j) * static_cast<size_t>(ldv);
    const auto scale = S::value_scale(row, width);
    V value[W];
    // Tiles of several columns begin at an even one, so that the part is a constant.
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w)
      value[w] = S::value(row, d + w * kLanes, W > 1 ? w % 2 : d / kLanes % 2, scale);
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
  constexpr int kWide = V::tile_columns(Q);
  int d = 0;
  for (; d + kWide * kLanes <= width; d += kWide * kLanes)
    weighted_sum_tile<Q, kWide>(p, ldp, v, ldv, d, width, n, acc + d, lda);
  for (; d < width; d += kLanes) weighted_sum_tile<Q, 1>(p, ldp, v, ldv, d, width, n, acc + d, lda);
}

template <typename T>
void weighted_sum(const float* p, int ldp, int n_q, const T* v, int ldv, int n, int width,
                  float* acc, int lda) {
  for_query_tiles(n_q, [&](int i, auto rows) {
    weighted_sum_rows<decltype(rows)::value>(p + static_cast<ptrdiff_t>(i) * ldp, ldp, v, ldv, n,
                                             width, acc + static_cast<ptrdiff_t>(i) * lda, lda);
  });
}

// merge_chunk() of arith.h, a query to a lane.
void merge(float* out, float* m, float* l, const float* chunk, const float* chunk_m,
           const float* chunk_l, int n_q, int width) {
  alignas(64) float keep[kLanes], more[kLanes];
  for (int first = 0; first < n_q; first += kLanes) {
    const int n = n_q - first < kLanes ? n_q - first : kLanes;
    const V old_m = V::load_first(m + first, n), new_m = V::load_first(chunk_m + first, n);
    const V top = V::vmax(old_m, new_m);
    const V of_old = exp_fixed(old_m - top), of_new = exp_fixed(new_m - top);
    V::store_first(m + first, n, top);
    V::store_first(
        l + first, n,
        V::load_first(l + first, n) * of_old + V::load_first(chunk_l + first, n) * of_new);
    of_old.store(keep), of_new.store(more);
    for (int q = 0; q < n; ++q) {
      const V a = V::bcast(keep[q]), b = V::bcast(more[q]);
      const ptrdiff_t at = static_cast<ptrdiff_t>(first + q) * width;
      for (int d = 0; d < width; d += kLanes)
        (V::load(out + at + d) * a + V::load(chunk + at + d) * b).store(out + at + d);
    }
  }
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
  return V::sum(poison) == 0.0f;
}

}  // namespace
