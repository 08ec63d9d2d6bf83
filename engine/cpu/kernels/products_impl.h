// Products of rows with packed panels (definitions: kernels.h), written once over the vector types
// the including file defines for its instruction set. Everything here has internal linkage.
//
//   V  16 floats: see kernels_impl.h. V::of_half(p): 16 float16 widened.
//   D  integer dot products: Sum (16 int32), Line (64 weights), Four (4 inputs of a row);
//      D::splat(i), D::line(p), D::four(p), D::dot(sum, line, four), D::shl7(sum), D::add(a, b),
//      D::to_float(sum) -> V. A byte of a panel is a weight plus 128: where a line holds weights
//      plus D::kBias, sums begin with the inputs' sum times its negative. Codes (64 of 4 to 6
//      bits), Narrow (16 sums of codes by inputs, each perhaps in parts): D::low_codes(p),
//      D::high_codes(p) (a line of 4-bit codes: its halves), D::narrow(start), D::dot_codes(narrow,
//      codes, four) for up to D::lines_of_narrow(bits) lines, D::sum_of(narrow).
//   B  bfloat16: Line, Pair; B::line(p), B::pair(p), B::dot(V, Line, Pair), B::kBytesPerInput.
//   tile_rows(kind), tile_panels(kind, rows): the largest tile of many rows, and how many panels a
//      tile of that many rows spans. rows_at_once(kind): so many rows at most are a single tile.
//
// A tile is R rows x P panels of sums that stay in registers while the inputs are walked once.
// Panels are separate streams: at one row the loop is bound by memory, and on some processors
// several streams per thread with prefetch read faster than one, on others slower
// (Product::one_stream). With more rows than a tile has, a group of panels stays in L2 while the
// row blocks sweep over it; the next group is fetched into L2 meanwhile, a few lines every step,
// because the first sweep alone would leave the memory idle during all others.

namespace {

using evalrun::engine::cpu::InputRows;
using evalrun::engine::cpu::kLanes;
using evalrun::engine::cpu::Product;
using evalrun::engine::cpu::WideInputs;

constexpr int kPanelGroup = 6;  // divisible by the tile widths 1, 2, 3 and 6
constexpr size_t kLine = 64;

// Prefetch distance within a stream, into L2. Measured on Zen 4, GB/s of a thread (kernels_bench):
// one or two rows in one stream are read best by the processor's own prefetcher, which fetches a
// little ahead and which distances from 2 KB on disturb (int8-group: 30 at 512 bytes, 19 at 8 KB).
// K-quants, whose lines are not used in their order, and taller tiles need the distance (q6-k: 18
// and 23; int8-group at four rows: 15 and 21). Several streams at one row: a Sapphire Rapids guest.
// A Zen 5 reads one stream of 4-bit blocks, which are 576 or 640 bytes, better at 256 bytes than at
// 512 (q4-centred at one row: 37 and 34 with AVX-512, 34 and 29 with AVX2). Its int8-group is at 38
// with 512 bytes and at 32 in six streams, so it takes what a Zen 4 does.
template <Kind K, int R, int P>
constexpr int ahead_bytes() {
  const bool in_order = K != Kind::kQ4K && K != Kind::kQ5K && K != Kind::kQ6K;
  const bool four_bits = K == Kind::kQ4 || K == Kind::kQ4Centred;
  return R > 2 || !in_order ? 8192 : P > 1 ? 2048 : four_bits ? 256 : 512;
}

// What is fetched into L2 during a sweep.
struct Ahead {
  const std::byte* at = nullptr;
  const std::byte* end = nullptr;
  int lines_per_step = 0;
  void step() {
    for (int i = 0; i < lines_per_step; ++i) {
      __builtin_prefetch(at, 0, 2);
      at += kLine;
    }
    if (at >= end) lines_per_step = 0;
  }
};

// The panels of a tile: P streams of weights and where their outputs go.
struct Streams {
  const std::byte* panels;  // first; stream j begins j * stride later
  size_t stride;
  size_t panel_bytes;
  int left;  // outputs that exist from the first panel's first on
  float* y;
  int y_stride;  // between the outputs of neighbouring streams
  const std::byte* at(int j) const { return panels + static_cast<size_t>(j) * stride; }
};

inline void store_row(V sum, float* y, int left) {
  if (left >= kLanes)
    sum.store(y);
  else if (left > 0)
    V::store_first(y, left, sum);
}

// kFirst: panels come from memory, so every stream prefetches its own lines.
template <Kind K, int R, int P, bool kFirst>
struct TileOf;

template <int R, int P, bool kFirst>
struct TileOf<Kind::kF32, R, P, kFirst> {
  static constexpr int kAheadBytes = ahead_bytes<Kind::kF32, R, P>();
  static void run(const Product& p, int row, const Streams& s, Ahead& ahead) {
    V acc[R][P];
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < P; ++j) acc[r][j] = V::zero();
    const float* x[R];
    for (int r = 0; r < R; ++r)
      x[r] =
          reinterpret_cast<const float*>(p.in.values + static_cast<size_t>(row + r) * p.in.stride);
    const std::byte* w = s.panels;
    for (int k = 0; k < p.n_in; ++k, w += kLine) {
      if (!kFirst && k % 8 == 0) ahead.step();
      V column[P];
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) {
        const std::byte* line = w + static_cast<size_t>(j) * s.stride;
        column[j] = V::load(reinterpret_cast<const float*>(line));
        if constexpr (kFirst) __builtin_prefetch(line + kAheadBytes, 0, 2);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const V b = V::bcast(x[r][k]);
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j) acc[r][j] = V::fma(b, column[j], acc[r][j]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < P; ++j)
        store_row(acc[r][j], s.y + static_cast<ptrdiff_t>(r) * p.ldy + j * s.y_stride,
                  s.left - j * s.y_stride);
  }
};

template <int R, int P, bool kFirst>
struct TileOf<Kind::kBf16, R, P, kFirst> {
  static constexpr int kAheadBytes = ahead_bytes<Kind::kBf16, R, P>();
  static void run(const Product& p, int row, const Streams& s, Ahead& ahead) {
    V acc[R][P];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) acc[r][j] = V::zero();
    const std::byte* x = p.in.values + static_cast<size_t>(row) * p.in.stride;
    const int pairs = (p.n_in + 1) / 2;
    const std::byte* w = s.panels;
    for (int k = 0; k < pairs; ++k, w += kLine, x += 2 * B::kBytesPerInput) {
      if (!kFirst && k % 8 == 0) ahead.step();
      B::Line line[P];
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) {
        line[j] = B::line(w + static_cast<size_t>(j) * s.stride);
        if constexpr (kFirst)
          __builtin_prefetch(w + static_cast<size_t>(j) * s.stride + kAheadBytes, 0, 2);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const B::Pair b = B::pair(x + static_cast<size_t>(r) * p.in.stride);
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j) B::dot(acc[r][j], line[j], b);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j)
        store_row(acc[r][j], s.y + static_cast<ptrdiff_t>(r) * p.ldy + j * s.y_stride,
                  s.left - j * s.y_stride);
  }
};

template <int R, int P, bool kFirst>
struct TileOf<Kind::kChannel, R, P, kFirst> {
  static constexpr int kAheadBytes = ahead_bytes<Kind::kChannel, R, P>();
  static void run(const Product& p, int row, const Streams& s, Ahead& ahead) {
    typename D::Sum acc[R][P];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const int32_t* sums = p.in.sums + static_cast<ptrdiff_t>(row + r) * p.in.groups;
      int32_t total = 0;
      for (int g = 0; g < p.in.groups; ++g) total += sums[g];
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) acc[r][j] = D::splat(-D::kBias * total);
    }
    const std::byte* x = p.in.values + static_cast<size_t>(row) * p.in.stride;
    const std::byte* w = s.panels;
    for (int k = 0; k < p.in.groups * 8; k += 2) {
      if (!kFirst && k % 8 == 0) ahead.step();
#pragma GCC unroll 2
      for (int u = 0; u < 2; ++u) {
        typename D::Line line[P];
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j) {
          line[j] = D::line(w + static_cast<size_t>(j) * s.stride);
          if constexpr (kFirst)
            __builtin_prefetch(w + static_cast<size_t>(j) * s.stride + kAheadBytes, 0, 2);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const typename D::Four a = D::four(x + static_cast<size_t>(r) * p.in.stride);
#pragma GCC unroll 8
          for (int j = 0; j < P; ++j) D::dot(acc[r][j], line[j], a);
        }
        w += kLine, x += 4;
      }
    }
    V scale[P];
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j)
      scale[j] = V::load(reinterpret_cast<const float*>(s.at(j) + s.panel_bytes - kLine));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const int32_t n_wide = p.in.headers[row + r].n_wide;
      if (n_wide > 0) {
        const WideInputs* wide = p.in.wide + static_cast<ptrdiff_t>(row + r) * p.in.groups * 8;
        int32_t total = 0;
        for (int i = 0; i < n_wide; ++i) total += wide[i].sum;
        typename D::Sum hi[P];
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j) hi[j] = D::splat(-D::kBias * total);
        for (int i = 0; i < n_wide; ++i) {
          const typename D::Four a = D::four(reinterpret_cast<const std::byte*>(&wide[i].value));
          const std::byte* at = s.panels + static_cast<size_t>(wide[i].line) * kLine;
#pragma GCC unroll 8
          for (int j = 0; j < P; ++j)
            D::dot(hi[j], D::line(at + static_cast<size_t>(j) * s.stride), a);
        }
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j) acc[r][j] = D::add(acc[r][j], D::shl7(hi[j]));
      }
      const V row_scale = V::bcast(p.in.headers[row + r].scale);
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j)
        store_row(D::to_float(acc[r][j]) * scale[j] * row_scale,
                  s.y + static_cast<ptrdiff_t>(r) * p.ldy + j * s.y_stride,
                  s.left - j * s.y_stride);
    }
  }
};

// The end of rows whose scales are applied group by group: inputs with a hi part, and row scale.
template <typename Tile, int R, int P>
[[gnu::always_inline]] inline void finish_rows(const Product& p, int row, const Streams& s,
                                               V (&total)[R][P]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const int32_t n_wide = p.in.headers[row + r].n_wide;
    const WideInputs* wide = p.in.wide + static_cast<ptrdiff_t>(row + r) * p.in.groups * 8;
    for (int i = 0; i < n_wide; ++i) Tile::add_wide(s, total[r], wide[i]);
    const V row_scale = V::bcast(p.in.headers[row + r].scale);
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j)
      store_row(total[r][j] * row_scale, s.y + static_cast<ptrdiff_t>(r) * p.ldy + j * s.y_stride,
                s.left - j * s.y_stride);
  }
}

// kInt8Group, kQ4Group and kQ4Centred.
template <Kind K, int R, int P, bool kFirst>
struct GroupTile {
  static constexpr bool kQ4 = K != Kind::kGroup;
  static constexpr bool kStoredOffsets = K == Kind::kQ4;
  static constexpr int kAheadBytes = ahead_bytes<K, R, P>();
  static constexpr size_t kCodes = kQ4 ? 512 : 1024;  // of a block of 64 inputs
  static constexpr size_t kBlockBytes = kCodes + (kStoredOffsets ? 128 : 64);
  static V scale_at(const std::byte* block, int group) {
    return V::of_half(block + kCodes + static_cast<size_t>(group) * 32);
  }
  // `d`: the group's scales. -8 d is exact.
  static V offset_at([[maybe_unused]] const std::byte* block, [[maybe_unused]] int group,
                     [[maybe_unused]] V d) {
    if constexpr (kStoredOffsets)
      return V::of_half(block + kCodes + 64 + static_cast<size_t>(group) * 32);
    else
      return V::bcast(-8.0f) * d;
  }
  using Line = std::conditional_t<kQ4, typename D::Codes, typename D::Line>;
  using Sums = std::conditional_t<kQ4, typename D::Narrow, typename D::Sum>;
  static_assert(D::lines_of_narrow(4) >= 8, "a group is eight lines");
  // Line i of group 0 or 1.
  [[gnu::always_inline]] static inline Line line_at(const std::byte* block, int group, int i) {
    if constexpr (!kQ4)
      return D::line(block + static_cast<size_t>(group * 8 + i) * kLine);
    else if (group == 0)
      return D::low_codes(block + static_cast<size_t>(i) * kLine);
    else
      return D::high_codes(block + static_cast<size_t>(i) * kLine);
  }
  // Before the first line. `sum`: of the inputs.
  [[gnu::always_inline]] static inline Sums start(int32_t sum) {
    if constexpr (kQ4)
      return D::narrow(0);
    else
      return D::splat(-D::kBias * sum);
  }
  [[gnu::always_inline]] static inline void dot(Sums& acc, const Line& line,
                                                typename D::Four four) {
    if constexpr (kQ4)
      D::dot_codes(acc, line, four);
    else
      D::dot(acc, line, four);
  }
  [[gnu::always_inline]] static inline typename D::Sum sum_of(const Sums& acc) {
    if constexpr (kQ4)
      return D::sum_of(acc);
    else
      return acc;
  }

  template <int kGroup>
  static void group(const Product& p, const Streams& s, V (&total)[R][P], const std::byte* w,
                    const std::byte* x, const int32_t* sums) {
    Sums acc[R][P];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) acc[r][j] = start(sums[static_cast<ptrdiff_t>(r) * p.in.groups]);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      Line line[P];
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) {
        const std::byte* block = w + static_cast<size_t>(j) * s.stride;
        line[j] = line_at(block, kGroup, i);
        // The second group of a 4-bit block reads the lines of the first again.
        if constexpr (kFirst && (!kQ4 || kGroup == 0))
          __builtin_prefetch(block + static_cast<size_t>(kGroup * 8 + i) * kLine + kAheadBytes, 0,
                             2);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const typename D::Four a =
            D::four(x + static_cast<size_t>(r) * p.in.stride + static_cast<size_t>(i) * 4);
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j) dot(acc[r][j], line[j], a);
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) {
      const std::byte* block = w + static_cast<size_t>(j) * s.stride;
      const V d = scale_at(block, kGroup);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
        total[r][j] = V::fma(D::to_float(sum_of(acc[r][j])), d, total[r][j]);
      if constexpr (kQ4) {
        const V m = offset_at(block, kGroup, d);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          total[r][j] =
              V::fma(V::bcast(static_cast<float>(sums[static_cast<ptrdiff_t>(r) * p.in.groups])), m,
                     total[r][j]);
      }
    }
  }

  static void run(const Product& p, int row, const Streams& s, Ahead& ahead) {
    V total[R][P];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) total[r][j] = V::zero();
    const std::byte* x = p.in.values + static_cast<size_t>(row) * p.in.stride;
    const int32_t* sums = p.in.sums + static_cast<ptrdiff_t>(row) * p.in.groups;
    const std::byte* w = s.panels;
    for (int g = 0; g < p.in.groups; g += 2, w += kBlockBytes) {
      if (!kFirst) ahead.step(), ahead.step();
      group<0>(p, s, total, w, x, sums + g);
      group<1>(p, s, total, w, x + 32, sums + g + 1);
      x += 64;
      // The lines of scales, and of offsets.
      if constexpr (kFirst)
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j) {
          const std::byte* block = w + static_cast<size_t>(j) * s.stride;
          __builtin_prefetch(block + kCodes + kAheadBytes, 0, 2);
          if constexpr (kStoredOffsets) __builtin_prefetch(block + kCodes + 64 + kAheadBytes, 0, 2);
        }
    }
    finish_rows<GroupTile>(p, row, s, total);
  }

  static void add_wide(const Streams& s, V (&total)[P], const WideInputs& wide) {
    const typename D::Four a = D::four(reinterpret_cast<const std::byte*>(&wide.value));
    const int in_block = wide.line % 16, group = in_block / 8;
    const std::byte* w = s.panels + static_cast<size_t>(wide.line / 16) * kBlockBytes;
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) {
      const std::byte* block = w + static_cast<size_t>(j) * s.stride;
      Sums acc = start(wide.sum);
      dot(acc, line_at(block, group, in_block % 8), a);
      const V d = scale_at(block, group);
      total[j] = V::fma(D::to_float(D::shl7(sum_of(acc))), d, total[j]);
      if constexpr (kQ4)
        total[j] = V::fma(V::bcast(static_cast<float>(128 * wide.sum)), offset_at(block, group, d),
                          total[j]);
    }
  }
};
template <int R, int P, bool kFirst>
struct TileOf<Kind::kGroup, R, P, kFirst> : GroupTile<Kind::kGroup, R, P, kFirst> {};
template <int R, int P, bool kFirst>
struct TileOf<Kind::kQ4, R, P, kFirst> : GroupTile<Kind::kQ4, R, P, kFirst> {};
template <int R, int P, bool kFirst>
struct TileOf<Kind::kQ4Centred, R, P, kFirst> : GroupTile<Kind::kQ4Centred, R, P, kFirst> {};

// R rows against `count` tiles' worth of streams: tile i takes panel i of every stream.
template <Kind K, int R, int P, bool kFirst>
void sweep(const Product& p, int row, Streams s, int count, Ahead& ahead) {
  for (int i = 0; i < count; ++i) {
    TileOf<K, R, P, kFirst>::run(p, row, s, ahead);
    s.panels += s.panel_bytes, s.y += kLanes, s.left -= kLanes;
  }
}

// Rows row .. row + R of panels [first, first + count). From memory (kFirst) the range is cut into
// as many contiguous streams as a tile is wide, so that prefetching ahead in a stream always
// fetches what it reads next; from L2 neighbouring panels are taken together.
template <Kind K, int R, bool kFirst>
void panels_of_rows(const Product& p, int row, int first, int count, Ahead& ahead) {
  constexpr int kWide = tile_panels(K, R);
  // Sums of one or two rows leave time enough to walk panel by panel.
  constexpr bool kOneStream =
      kFirst && R <= (K == Kind::kF32 || K == Kind::kBf16 ? 1 : 2) && kWide > 1;
  const auto streams = [&](int panel, int apart) {
    return Streams{p.panels + static_cast<size_t>(panel) * p.panel_bytes,
                   static_cast<size_t>(apart) * p.panel_bytes,
                   p.panel_bytes,
                   p.n_out - panel * kLanes,
                   p.y + static_cast<ptrdiff_t>(row) * p.ldy + panel * kLanes,
                   apart * kLanes};
  };
  if constexpr (kOneStream)
    if (p.one_stream) return sweep<K, R, 1, kFirst>(p, row, streams(first, 1), count, ahead);
  const int whole = count / kWide;
  if (kFirst)
    sweep<K, R, kWide, kFirst>(p, row, streams(first, whole), whole, ahead);
  else
    for (int i = 0; i < whole; ++i)
      sweep<K, R, kWide, kFirst>(p, row, streams(first + i * kWide, 1), 1, ahead);
  int done = whole * kWide;
  if constexpr (kWide > 2)
    if (done + 2 <= count) {
      const int pairs = (count - done) / 2;
      sweep<K, R, 2, kFirst>(p, row, streams(first + done, pairs), pairs, ahead);
      done += 2 * pairs;
    }
  if (done < count) sweep<K, R, 1, kFirst>(p, row, streams(first + done, 1), count - done, ahead);
}

template <Kind K, bool kFirst, int R = tile_rows(K)>
void panels_of_block(int rows, const Product& p, int row, int first, int count, Ahead& ahead) {
  if constexpr (R > 1)
    if (rows < R) return panels_of_block<K, kFirst, R - 1>(rows, p, row, first, count, ahead);
  panels_of_rows<K, R, kFirst>(p, row, first, count, ahead);
}

template <Kind K>
void multiply_panels(const Product& p) {
  constexpr int kMaxRows = tile_rows(K), kAtOnce = rows_at_once(K);
  Ahead ahead;
  if (p.n_rows <= kAtOnce)
    return panels_of_block<K, true, kAtOnce>(p.n_rows, p, 0, 0, p.n_panels, ahead);
  // Row blocks of nearly equal height: 10 rows are 5 + 5, not 8 + 2.
  const int n_blocks = (p.n_rows + kMaxRows - 1) / kMaxRows;
  const int steps = static_cast<int>(p.panel_bytes / kLine / 8) + 1;  // of a tile, see Ahead::step
  for (int first = 0; first < p.n_panels; first += kPanelGroup) {
    const int count = p.n_panels - first < kPanelGroup ? p.n_panels - first : kPanelGroup;
    const int after = p.n_panels - first - count;
    if (after > 0) {
      const int next = after < kPanelGroup ? after : kPanelGroup;
      ahead.at = p.panels + static_cast<size_t>(first + count) * p.panel_bytes;
      ahead.end = ahead.at + static_cast<size_t>(next) * p.panel_bytes;
      const int lines = static_cast<int>(static_cast<size_t>(next) * p.panel_bytes / kLine);
      const int spread = (count + 2) / 3 * n_blocks * steps;
      ahead.lines_per_step = (lines + spread - 1) / spread;
    } else {
      ahead.lines_per_step = 0;
    }
    for (int b = 0, row = 0; b < n_blocks; ++b) {
      const int rows = (p.n_rows - row + n_blocks - b - 1) / (n_blocks - b);
      // Only the very first group comes from memory.
      if (b == 0 && first == 0)
        panels_of_block<K, true>(rows, p, row, first, count, ahead);
      else
        panels_of_block<K, false>(rows, p, row, first, count, ahead);
      row += rows;
    }
  }
}

}  // namespace
