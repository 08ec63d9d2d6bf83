// The product on AMX tiles (engine/cpu/kernels/tiles_impl.h) for machines without AMX: the same
// code over tiles that do in loops what Intel's manual says of tileloadd, tdpbsud, tdpbf16ps and
// tilestored. What this leaves unchecked is kernels_amx.cpp, the instructions themselves;
// EveryKernel checks those where there are any.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "engine/cpu/kernels/kernels_portable.h"
#include "engine/cpu/prepared_rows.h"
#include "engine/cpu/reference_products.h"
#include "tests/engine/random_models.h"

// Each builds on those before it.
// clang-format off
#include "engine/cpu/kernels/vectors_portable_impl.h"
#include "engine/cpu/kernels/widened_bf16_impl.h"
#include "engine/cpu/kernels/products_impl.h"
#include "engine/cpu/kernels/tiles_impl.h"
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
  static void multiply_bytes(int t) {
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
  // tdpbf16ps: for every row m one fma chain over the even inputs and one over the odd ones, both
  // from zero; C[m][n] += their sum.
  static void multiply_bf16(int t) {
    const auto widened = [](const uint8_t* p) {
      uint16_t half;
      std::memcpy(&half, p, 2);
      return evalrun::engine::bfloat16_to_float(half);
    };
    for (size_t m = 0; m < static_cast<size_t>(rows_of_input); ++m)
      for (size_t n = 0; n < 16; ++n) {
        float chain[2] = {0, 0}, c;
        for (size_t k = 0; k < 16; ++k)
          for (size_t i = 0; i < 2; ++i)
            chain[i] = std::fma(widened(&tile(6)[m][4 * k + 2 * i]),
                                widened(&tile(7)[k][4 * n + 2 * i]), chain[i]);
        std::memcpy(&c, &tile(t)[m][4 * n], 4);
        c = c + (chain[0] + chain[1]);
        std::memcpy(&tile(t)[m][4 * n], &c, 4);
      }
  }
  static void store(int t, void* p) {
    for (int r = 0; r < rows_of_input; ++r)
      std::memcpy(static_cast<std::byte*>(p) + 64 * r, &tile(t)[static_cast<size_t>(r)], 64);
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
      multiply_tiles<LoopTiles, int32_t>({prepared.view(w), rows, w.panel(0), w.panel_bytes(),
                                          w.panels(), in, out, y.data(), out, false});
      EXPECT_FALSE(LoopTiles::configured) << "tiles were not given back";
      for (int r = 0; r < rows; ++r)
        ASSERT_TRUE(same_bits({y.data() + r * out, static_cast<size_t>(out)},
                              cpu::reference_product(w, x[static_cast<size_t>(r)])))
            << out << " x " << in << ", row " << r << " of " << rows;
    }
  }
}

// The bfloat16 product has no twin on other paths: it is checked against its definition in
// tiles_impl.h, and against the exact sum.
TEST(AmxTiles, Bf16ProductIsItsDefinitionForAnyNumberOfRows) {
  for (const auto& [out, in] : {std::pair{15 * 16 - 3, 192}, {96, 75}, {9, 64}}) {
    WeightMatrix w(WeightStorage::kBf16, out, in);
    std::vector<std::vector<float>> weights, x;
    const auto rounded = [](std::vector<float> v) {
      for (float& f : v) f = bfloat16_to_float(float_to_bfloat16(f));
      return v;
    };
    for (int o = 0; o < out; ++o) {
      weights.push_back(rounded(random_floats(in, static_cast<uint64_t>(500 + o))));
      w.set_row(o, weights.back());
    }
    for (int r = 0; r < 35; ++r) x.push_back(rounded(random_floats(in, static_cast<uint64_t>(r))));
    // Rows as AMX takes them, two bytes an input.
    const size_t stride = static_cast<size_t>(w.padded_in()) * 2;
    base::AlignedVector<std::byte> values(stride * x.size());
    for (size_t r = 0; r < x.size(); ++r)
      for (size_t k = 0; k < static_cast<size_t>(in); ++k) {
        const uint16_t half = float_to_bfloat16(x[r][k]);
        std::memcpy(values.data() + r * stride + 2 * k, &half, 2);
      }
    cpu::InputRows rows_in;
    rows_in.values = values.data(), rows_in.stride = stride, rows_in.groups = w.padded_in() / 32;
    for (const int rows : {1, 2, 15, 16, 17, 32, 35}) {
      std::vector<float> y(static_cast<size_t>(rows * out));
      multiply_tiles<LoopTiles, float>(
          {rows_in, rows, w.panel(0), w.panel_bytes(), w.panels(), in, out, y.data(), out, false});
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
        for (size_t o = 0; o < static_cast<size_t>(out); ++o) {
          float want = 0;
          double exact = 0, magnitude = 0;
          for (size_t from = 0; from < static_cast<size_t>(in); from += 32) {
            float even = 0, odd = 0;
            for (size_t k = from; k < std::min(from + 32, static_cast<size_t>(in)); ++k) {
              float& chain = k % 2 == 0 ? even : odd;
              chain = std::fma(x[r][k], weights[o][k], chain);
              exact += static_cast<double>(x[r][k]) * static_cast<double>(weights[o][k]);
              magnitude += std::fabs(static_cast<double>(x[r][k] * weights[o][k]));
            }
            want = want + (even + odd);
          }
          const float got = y[r * static_cast<size_t>(out) + o];
          ASSERT_EQ(got, want) << out << " x " << in << ", row " << r << " of " << rows;
          ASSERT_NEAR(got, exact, 1e-5 * magnitude);
        }
    }
  }
}

}  // namespace
}  // namespace evalrun::engine::testing
