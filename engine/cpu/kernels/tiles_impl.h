// Products on matrix tiles, written once over `Tiles`: AMX (kernels_amx.cpp), or loops that do what
// the manual says of the instructions (tests/engine/amx_tiles_test.cpp, for machines without AMX).
// Needs V, D and products_impl.h. Internal linkage.
//
// A panel is a run of 1 KB blocks, each a B tile: of tdpbsud 64 inputs, [16 fours][16 channels][4];
// of tdpbf16ps 32, [16 pairs][16 channels][2]. Up to 16 rows are the A tile, six panels are six C
// tiles.
//   int32_t  kInt8Channel. The sums are those of every other path; wide inputs, offsets and scales
//            follow from memory as there.
//   float    kBf16 in an order of its own, so only for `--reproducible one-isa`: per 32 inputs one
//            fma chain over the even ones and one over the odd ones, starting from zero, their sum
//            added to y. Whatever the number of rows, so a row's bits still depend on the row
//            alone. Denormals count as zero.
namespace {

// Offsets, wide inputs and scales of the sums of one panel.
inline void finish_tile_rows(const Product& p, int row, int rows, int panel,
                             const int32_t (*sums)[kLanes]) {
  const std::byte* w = p.panels + static_cast<size_t>(panel) * p.panel_bytes;
  const V scale = V::load(reinterpret_cast<const float*>(w + p.panel_bytes - kLine));
  const int left = p.n_out - panel * kLanes;
  for (int r = 0; r < rows; ++r) {
    const ptrdiff_t at = row + r;
    int32_t total = 0;
    for (int g = 0; g < p.in.groups; ++g) total += p.in.sums[at * p.in.groups + g];
    typename D::Sum sum = D::add(D::splat(-128 * total), D::from_memory(sums[r]));
    const WideInputs* wide = p.in.wide + at * p.in.groups * 8;
    const int32_t n_wide = p.in.headers[at].n_wide;
    int32_t wide_total = 0;
    for (int i = 0; i < n_wide; ++i) wide_total += wide[i].sum;
    typename D::Sum hi = D::splat(-D::kBias * wide_total);
    for (int i = 0; i < n_wide; ++i)
      D::dot(hi, D::line(w + static_cast<size_t>(wide[i].line) * kLine),
             D::four(reinterpret_cast<const std::byte*>(&wide[i].value)));
    sum = D::add(sum, D::shl7(hi));
    store_row(D::to_float(sum) * scale * V::bcast(p.in.headers[at].scale),
              p.y + at * p.ldy + panel * kLanes, left);
  }
}

// Tiles::configure(rows), zero(t), load_a(p, stride), load_b(p), multiply_bytes(t),
// multiply_bf16(t), store(t, p): C tiles 0..5 of [rows][16] sums, row stride 64.
template <typename Tiles, typename Sum>
void multiply_tiles(const Product& p) {
  constexpr bool kBytes = std::is_same_v<Sum, int32_t>;
  constexpr int kRows = 16, kPanels = 6;
  alignas(64) Sum sums[kPanels][kRows][kLanes];
  const int n_blocks = kBytes ? p.in.groups / 2 : p.in.groups;
  for (int row = 0; row < p.n_rows; row += kRows) {
    const int rows = p.n_rows - row < kRows ? p.n_rows - row : kRows;
    Tiles::configure(rows);
    const std::byte* x = p.in.values + static_cast<size_t>(row) * p.in.stride;
    const int whole = p.n_panels / kPanels;
    for (int tile = 0; tile < (p.n_panels + kPanels - 1) / kPanels; ++tile) {
      // Whole tiles take panels of six contiguous streams; what is left over, neighbours.
      const bool streams = tile < whole;
      const int count = streams ? kPanels : p.n_panels - whole * kPanels;
      const auto panel_of = [&](int j) { return streams ? tile + j * whole : whole * kPanels + j; };
      const std::byte* w[kPanels];
      for (int j = 0; j < count; ++j)
        w[j] = p.panels + static_cast<size_t>(panel_of(j)) * p.panel_bytes;
      for (int j = 0; j < count; ++j) Tiles::zero(j);
      for (int block = 0; block < n_blocks; ++block) {
        Tiles::load_a(x + static_cast<size_t>(block) * 64, p.in.stride);
        for (int j = 0; j < count; ++j) {
          for (int line = 0; line < 16; ++line)
            __builtin_prefetch(w[j] + 2048 + static_cast<size_t>(line) * kLine, 0, 3);
          Tiles::load_b(w[j]);
          if constexpr (kBytes)
            Tiles::multiply_bytes(j);
          else
            Tiles::multiply_bf16(j);
          w[j] += 1024;
        }
      }
      for (int j = 0; j < count; ++j) Tiles::store(j, &sums[j][0][0]);
      for (int j = 0; j < count; ++j) {
        const int panel = panel_of(j);
        if constexpr (kBytes)
          finish_tile_rows(p, row, rows, panel, sums[j]);
        else
          for (int r = 0; r < rows; ++r)
            store_row(V::load(sums[j][r]),
                      p.y + static_cast<ptrdiff_t>(row + r) * p.ldy + panel * kLanes,
                      p.n_out - panel * kLanes);
      }
    }
    Tiles::release();
  }
}

}  // namespace
