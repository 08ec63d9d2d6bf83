// Products of rows with K-quants (definitions: kernels.h; layout: engine/model/k_panels.h), the
// tiles of products_impl.h, which comes first, as kernels_impl.h does. Everything here has internal
// linkage.
//
// Of D also used:
//   Scale, Pairs                  16 scales, as integers; two bytes of each channel
//   add_high(codes, p, bit, mask) with the bits of a line's bytes from `bit` on as bits 4 and 5;
//                                 mask 0x10 or 0x30
//   scale_at(p), add_scaled(sum, narrow, scale), times(sum, scale)
//   pairs_at(p), dot_pairs(sum, pairs, two)   `two`: of 16 bits each, as in InputRows::pairs
#pragma once
#include "engine/model/k_panels.h"

namespace {

using evalrun::engine::k_panel_block_bytes;
using evalrun::engine::k_part_bytes;
using evalrun::engine::kKd;
using evalrun::engine::kKm;
using evalrun::engine::kKMinima;
using evalrun::engine::kKNibbles;
using evalrun::engine::kKParts;

template <int kBits, int R, int P, bool kFirst>
struct KTile {
  static constexpr int kAheadBytes = ahead_bytes<Kind::kQ4K, R, P>();
  static constexpr bool kMinimaToo = kBits < 6;
  static constexpr int kGroupLines = kMinimaToo ? 8 : 4;  // that share a scale
  static constexpr size_t kBlockBytes = k_panel_block_bytes(kBits);
  // Lines that are summed before the scale is applied.
  static constexpr int kRun =
      kGroupLines < D::lines_of_narrow(kBits) ? kGroupLines : D::lines_of_narrow(kBits);
  using Sums = typename D::Sum[R][P];

  static const std::byte* part_of(const std::byte* block, int part) {
    return block + kKParts + static_cast<size_t>(part) * k_part_bytes(kBits);
  }
  // Line i of a part's half 0 or 1.
  [[gnu::always_inline]] static inline typename D::Codes codes_at(const std::byte* part, int half,
                                                                  int i) {
    const std::byte* line = part + static_cast<size_t>(i) * kLine;
    const typename D::Codes low = half == 0 ? D::low_codes(line) : D::high_codes(line);
    [[maybe_unused]] const std::byte* high = part + kKNibbles;
    if constexpr (kBits == 5)
      return D::add_high(low, high + static_cast<size_t>(half) * kLine, i, 0x10);
    else if constexpr (kBits == 6)
      return D::add_high(low, high + static_cast<size_t>(half * 2 + i / 4) * kLine, i % 4 * 2,
                         0x30);
    else
      return low;
  }
  static typename D::Scale scale_of(const std::byte* block, int part, int half, int i) {
    const int group = (part * 2 + half) * (8 / kGroupLines) + i / kGroupLines;
    return D::scale_at(block + static_cast<size_t>(group) * kLanes);
  }

  // 32 inputs, bytes at `x`. `w`: the block in the first stream, `starts` of these inputs.
  template <int kHalf>
  [[gnu::always_inline]] static inline void half_part(const Product& p, const Streams& s, Sums& sum,
                                                      const std::byte* w, int part,
                                                      const std::byte* x, const int32_t* starts) {
#pragma GCC unroll 8
    for (int first = 0; first < 8; first += kRun) {
      typename D::Narrow acc[R][P];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int32_t start =
            kMinimaToo ? 0 : starts[static_cast<ptrdiff_t>(r) * p.in.groups * 2 + first / 4];
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j) acc[r][j] = D::narrow(start);
      }
#pragma GCC unroll 8
      for (int i = first; i < first + kRun; ++i) {
        typename D::Codes codes[P];
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j) {
          const std::byte* at = part_of(w + static_cast<size_t>(j) * s.stride, part);
          codes[j] = codes_at(at, kHalf, i);
          // The second half reads the first one's lines again, and lines of high bits.
          if constexpr (kFirst && kHalf == 0)
            __builtin_prefetch(at + static_cast<size_t>(i) * kLine + kAheadBytes, 0, 2);
          if constexpr (kFirst && kHalf == 1)
            if (i < (kBits - 4) * 2)
              __builtin_prefetch(at + kKNibbles + static_cast<size_t>(i) * kLine + kAheadBytes, 0,
                                 2);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const typename D::Four a =
              D::four(x + static_cast<size_t>(r) * p.in.stride + static_cast<size_t>(i) * 4);
#pragma GCC unroll 8
          for (int j = 0; j < P; ++j) D::dot_codes(acc[r][j], codes[j], a);
        }
      }
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) {
        const typename D::Scale scale =
            scale_of(w + static_cast<size_t>(j) * s.stride, part, kHalf, first);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) D::add_scaled(sum[r][j], acc[r][j], scale);
      }
    }
  }

  // `pairs`: of this block.
  static void finish_block(const Product& p, const Streams& s, const Sums& sum, V (&total)[R][P],
                           const std::byte* w, const int32_t* pairs) {
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) {
      const std::byte* block = w + static_cast<size_t>(j) * s.stride;
      const V d = V::of_half(block + kKd);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) total[r][j] = V::fma(D::to_float(sum[r][j]), d, total[r][j]);
      if constexpr (kMinimaToo) {
        typename D::Sum minima[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) minima[r] = D::splat(0);
#pragma GCC unroll 8
        for (int t = 0; t < 4; ++t) {
          const typename D::Pairs two = D::pairs_at(block + kKMinima + static_cast<size_t>(t) * 32);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r)
            D::dot_pairs(minima[r], two, pairs[static_cast<ptrdiff_t>(r) * (p.in.groups / 2) + t]);
        }
        const V m = V::of_half(block + kKm);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) total[r][j] = V::fma(D::to_float(minima[r]), m, total[r][j]);
      }
      // The lines before the parts.
      if constexpr (kFirst)
#pragma GCC unroll 8
        for (size_t at = 0; at < kKParts; at += kLine)
          __builtin_prefetch(block + at + kAheadBytes, 0, 2);
    }
  }

  static void run(const Product& p, int row, const Streams& s, Ahead& ahead) {
    V total[R][P];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) total[r][j] = V::zero();
    const std::byte* x = p.in.values + static_cast<size_t>(row) * p.in.stride;
    const int32_t* starts = p.in.starts + static_cast<ptrdiff_t>(row) * p.in.groups * 2;
    const int32_t* pairs = p.in.pairs + static_cast<ptrdiff_t>(row) * (p.in.groups / 2);
    const std::byte* w = s.panels;
    for (int g = 0; g < p.in.groups; g += 8, w += kBlockBytes) {
      Sums sum;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j) sum[r][j] = D::splat(0);
      for (int part = 0; part < 4; ++part, x += 64, starts += 4) {
        if (!kFirst) ahead.step(), ahead.step();
        half_part<0>(p, s, sum, w, part, x, starts);
        half_part<1>(p, s, sum, w, part, x + 32, starts + 2);
      }
      finish_block(p, s, sum, total, w, pairs + g / 2);
    }
    finish_rows<KTile>(p, row, s, total);
  }

  static void add_wide(const Streams& s, V (&total)[P], const WideInputs& wide) {
    const typename D::Four a = D::four(reinterpret_cast<const std::byte*>(&wide.value));
    const int in_block = wide.line % 64, part = in_block / 16, half = in_block % 16 / 8,
              i = in_block % 8;
    const std::byte* w = s.panels + static_cast<size_t>(wide.line / 64) * kBlockBytes;
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) {
      const std::byte* block = w + static_cast<size_t>(j) * s.stride;
      typename D::Narrow narrow = D::narrow(0);
      D::dot_codes(narrow, codes_at(part_of(block, part), half, i), a);
      typename D::Sum acc = D::sum_of(narrow);
      if constexpr (!kMinimaToo) acc = D::add(acc, D::splat(-32 * wide.sum));
      acc = D::times(acc, scale_of(block, part, half, i));
      total[j] = V::fma(D::to_float(D::shl7(acc)), V::of_half(block + kKd), total[j]);
      if constexpr (kMinimaToo) {
        typename D::Sum minima = D::splat(0);
        const auto sum = static_cast<uint32_t>(wide.sum);
        D::dot_pairs(minima, D::pairs_at(block + kKMinima + static_cast<size_t>(part) * 32),
                     static_cast<int32_t>(half == 0 ? sum & 0xFFFFu : sum << 16));
        total[j] = V::fma(D::to_float(D::shl7(minima)), V::of_half(block + kKm), total[j]);
      }
    }
  }
};
template <int R, int P, bool kFirst>
struct TileOf<Kind::kQ4K, R, P, kFirst> : KTile<4, R, P, kFirst> {};
template <int R, int P, bool kFirst>
struct TileOf<Kind::kQ5K, R, P, kFirst> : KTile<5, R, P, kFirst> {};
template <int R, int P, bool kFirst>
struct TileOf<Kind::kQ6K, R, P, kFirst> : KTile<6, R, P, kFirst> {};

}  // namespace
