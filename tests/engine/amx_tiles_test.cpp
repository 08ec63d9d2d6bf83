// The product on AMX tiles (engine/cpu/tiles_impl.h) for machines without AMX: the same code over
// tiles that do in loops what Intel's manual says of tileloadd, tdpbsud and tilestored. What this
// leaves unchecked is kernels_amx.cpp, the instructions themselves; EveryKernel checks those where
// there are any.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <stdexcept>

#include "engine/cpu/kernels_portable.h"
#include "engine/cpu/prepared_rows.h"
#include "engine/cpu/reference_products.h"
#include "tests/engine/random_models.h"

// Each builds on those before it.
// clang-format off
#include "engine/cpu/vectors_portable_impl.h"
#include "engine/cpu/widened_bf16_impl.h"
#include "engine/cpu/products_impl.h"
#include "engine/cpu/tiles_impl.h"
// clang-format on

namespace {

// Eight tiles of 16 rows of 64 bytes. As in the processor, a load, product or store touches the
// rows the configuration gives the tile; the others are zero after a load.
struct LoopTiles {
  using Tile = std::array<std::array<uint8_t, 64>, 16>;
  inline static std::array<Tile, 8> tiles;
  inline static int rows_of_input = 0;  // of tiles 0..6
  inline static bool configured = false;

  static void configure(int n_rows) {
    if (n_rows < 1 || n_rows > 16) throw std::out_of_range("rows of a tile");
    rows_of_input = n_rows, configured = true;
    std::memset(tiles.data(), 0, sizeof tiles);
  }
  static Tile& tile(int t) {
    if (!configured) throw std::logic_error("tiles used before they were configured");
    return tiles.at(static_cast<size_t>(t));
  }
  static void zero(int t) { std::memset(&tile(t), 0, sizeof(Tile)); }
  static void load_a(const std::byte* p, size_t stride) {
    zero(6);
    for (int r = 0; r < rows_of_input; ++r)
      std::memcpy(&tile(6)[static_cast<size_t>(r)], p + static_cast<size_t>(r) * stride, 64);
  }
  static void load_b(const std::byte* p) { std::memcpy(&tile(7), p, sizeof(Tile)); }
  // tdpbsud: for every row m, dword n, dword k: C[m][n] += sum of 4 signed A[m][4k+i] times
  // unsigned B[k][4n+i].
  static void multiply(int t) {
    for (size_t m = 0; m < static_cast<size_t>(rows_of_input); ++m)
      for (size_t n = 0; n < 16; ++n) {
        int32_t c;
        std::memcpy(&c, &tile(t)[m][4 * n], 4);
        for (size_t k = 0; k < 16; ++k)
          for (size_t i = 0; i < 4; ++i)
            c += static_cast<int8_t>(tile(6)[m][4 * k + i]) * tile(7)[k][4 * n + i];
        std::memcpy(&tile(t)[m][4 * n], &c, 4);
      }
  }
  static void store(int t, int32_t* p) {
    for (int r = 0; r < rows_of_input; ++r)
      std::memcpy(p + 16 * r, &tile(t)[static_cast<size_t>(r)], 64);
  }
  static void release() { configured = false; }
};

}  // namespace

namespace evalrun::engine::testing {
namespace {

TEST(AmxTiles, GiveTheProductOfEveryOtherPath) {
  // Panels of whole tiles of six streams, and left over; the last partial.
  for (const auto& [out, in] : {std::pair{15 * 16 - 3, 192}, {96, 75}, {9, 64}}) {
    WeightMatrix w(WeightStorage::kInt8Channel, out, in);
    for (int o = 0; o < out; ++o) w.set_row(o, random_floats(in, static_cast<uint64_t>(500 + o)));
    cpu::PreparedRows prepared;
    std::vector<std::vector<float>> x;
    for (int r = 0; r < 35; ++r) x.push_back(random_floats(in, static_cast<uint64_t>(r)));
    prepared.ensure(*cpu::portable_kernels(), w.storage(), x.size(), in);
    for (size_t r = 0; r < x.size(); ++r) prepared.set(r, w, x[r].data());
    for (const int rows : {1, 2, 15, 16, 17, 32, 35}) {
      std::vector<float> y(static_cast<size_t>(rows * out));
      multiply_tiles<LoopTiles>({prepared.view(w), rows, w.panel(0), w.panel_bytes(), w.panels(),
                                 in, out, y.data(), out, false});
      EXPECT_FALSE(LoopTiles::configured) << "tiles were not given back";
      for (int r = 0; r < rows; ++r)
        ASSERT_TRUE(same_bits({y.data() + r * out, static_cast<size_t>(out)},
                              cpu::reference_product(w, x[static_cast<size_t>(r)])))
            << out << " x " << in << ", row " << r << " of " << rows;
    }
  }
}

}  // namespace
}  // namespace evalrun::engine::testing
