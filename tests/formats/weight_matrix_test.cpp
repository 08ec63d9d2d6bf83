// Every storage of weights: the documented layout, rounding and its bounds, rows that must keep
// their exact values, padding.
#include "engine/model/weight_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "engine/model/weight_cache.h"

namespace evalrun::engine {
namespace {

constexpr WeightStorage kStorages[] = {WeightStorage::kF32, WeightStorage::kBf16,
                                       WeightStorage::kInt8Channel, WeightStorage::kInt8Group,
                                       WeightStorage::kQ4Group};
constexpr int kGroup = WeightMatrix::kGroup;

// out, in: whole panels and blocks, and neither.
constexpr std::array<int, 2> kShapes[] = {{1, 1},   {16, 64}, {17, 65}, {15, 96},
                                          {33, 31}, {3, 576}, {40, 33}, {48, 127}};

float normal(base::Rng& rng) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += rng.uniform();
  return static_cast<float>(sum);
}

std::vector<float> random_row(int in, base::Rng& rng) {
  std::vector<float> row(static_cast<size_t>(in));
  for (float& x : row) x = 0.05f * normal(rng);
  return row;
}

std::vector<float> row_of(const WeightMatrix& m, int o) {
  std::vector<float> row(static_cast<size_t>(m.in()));
  m.copy_row(o, row);
  return row;
}

TEST(Half, EveryNumberAndEveryBorderBetweenTwo) {
  for (uint32_t sign : {0u, 0x8000u}) {
    for (uint32_t h = 0; h < 0x7C00; ++h) {
      const auto low = static_cast<uint16_t>(sign | h);
      const float x = half_to_float(low);
      ASSERT_EQ(float_to_half(x), low);
      // The next half, or what would follow the largest: 65536 rounds to infinity.
      const uint16_t high = static_cast<uint16_t>(low + 1);
      const float y = h == 0x7BFF ? std::copysign(65536.0f, x) : half_to_float(high);
      const float middle = (x + y) / 2;  // exact: one bit more than a half has
      ASSERT_EQ(float_to_half(middle), h % 2 == 0 ? low : high) << middle;
      ASSERT_EQ(float_to_half(std::nextafter(middle, x)), low) << middle;
      ASSERT_EQ(float_to_half(std::nextafter(middle, y)), high) << middle;
    }
    const float infinity = half_to_float(static_cast<uint16_t>(sign | 0x7C00));
    EXPECT_EQ(float_to_half(infinity), sign | 0x7C00);
    EXPECT_EQ(float_to_half(std::copysign(3e38f, infinity)), sign | 0x7C00);
  }
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::nanf("")))));
}

TEST(Bfloat, EveryNumberAndEveryBorderBetweenTwo) {
  for (uint32_t b = 0; b < 0x7F7F; ++b) {
    const auto low = static_cast<uint16_t>(b), high = static_cast<uint16_t>(b + 1);
    const float x = bfloat16_to_float(low), y = bfloat16_to_float(high);
    if (y <= 0x1p-50f) {
      ASSERT_EQ(float_to_bfloat16(x), 0);
      ASSERT_EQ(float_to_bfloat16(-x), 0x8000);
      continue;
    }
    ASSERT_EQ(float_to_bfloat16(x), low);
    ASSERT_EQ(float_to_bfloat16(-x), low | 0x8000);
    const float middle = std::bit_cast<float>(b << 16 | 0x8000u);
    ASSERT_EQ(float_to_bfloat16(middle), b % 2 == 0 ? low : high);
    ASSERT_EQ(float_to_bfloat16(std::nextafter(middle, x)), low);
    ASSERT_EQ(float_to_bfloat16(std::nextafter(middle, y)), high);
  }
  EXPECT_EQ(float_to_bfloat16(std::nextafter(0x1p-50f, 0.0f)), 0);
  EXPECT_TRUE(std::isinf(bfloat16_to_float(float_to_bfloat16(std::numeric_limits<float>::max()))));
  EXPECT_EQ(bfloat16_to_float(float_to_bfloat16(WeightMatrix::largest(WeightStorage::kBf16))),
            WeightMatrix::largest(WeightStorage::kBf16));
}

// The weight of (o, k) found in the bytes by the formulas of weight_matrix.h alone.
float documented(const WeightMatrix& m, int o, int k) {
  const auto* panel = reinterpret_cast<const uint8_t*>(m.panel(o / 16));
  const size_t c = static_cast<size_t>(o % 16), i = static_cast<size_t>(k);
  const auto half = [&](size_t at) {
    uint16_t h;
    std::memcpy(&h, panel + at, 2);
    return half_to_float(h);
  };
  const size_t blocks = static_cast<size_t>(m.in() + 63) / 64, b = i / 64, r = i % 64;
  float x = 0;
  uint16_t bf = 0;
  switch (m.storage()) {
    case WeightStorage::kF32:  // [in][16]
      std::memcpy(&x, panel + (i * 16 + c) * 4, 4);
      return x;
    case WeightStorage::kBf16:  // [in/2][16][2]
      std::memcpy(&bf, panel + ((i / 2 * 16 + c) * 2 + i % 2) * 2, 2);
      return bfloat16_to_float(bf);
    case WeightStorage::kInt8Channel:  // [in/4][16][4], [16] float
      std::memcpy(&x, panel + blocks * 1024 + c * 4, 4);
      return x * static_cast<float>(panel[(i / 4 * 16 + c) * 4 + i % 4] - 128);
    case WeightStorage::kInt8Group: {  // blocks of [16][16][4], [2][16] half
      const size_t at = b * (1024 + 64);
      return half(at + 1024 + (r / 32 * 16 + c) * 2) *
             static_cast<float>(panel[at + (r / 4 * 16 + c) * 4 + r % 4] - 128);
    }
    case WeightStorage::kQ4Group: {  // blocks of [8][16][4], [2][16] half, [2][16] half
      const size_t at = b * (512 + 128);
      const uint8_t both = panel[at + (r % 32 / 4 * 16 + c) * 4 + r % 4];
      return half(at + 512 + (r / 32 * 16 + c) * 2) *
                 static_cast<float>(r < 32 ? both & 15 : both >> 4) +
             half(at + 512 + 64 + (r / 32 * 16 + c) * 2);
    }
    case WeightStorage::kQ4Centred:  // q4_centred_test.cpp
    case WeightStorage::kQ4K:        // k_panels_test.cpp
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K:
      break;
  }
  return 0;
}

TEST(WeightMatrix, LayoutIsTheDocumentedOneAndReadersAgree) {
  base::Rng rng(1);
  for (const WeightStorage storage : kStorages) {
    for (const auto& [out, in] : kShapes) {
      WeightMatrix m(storage, out, in);
      for (int o = 0; o < out; ++o) m.set_row(o, random_row(in, rng));
      for (int o = 0; o < out; ++o) {
        const std::vector<float> row = row_of(m, o);
        for (int k = 0; k < in; ++k) {
          ASSERT_EQ(row[static_cast<size_t>(k)], documented(m, o, k)) << o << " " << k;
          ASSERT_EQ(m.at(o, k), documented(m, o, k)) << o << " " << k;
        }
      }
    }
  }
}

TEST(WeightMatrix, RowsAreIndependentAndPaddingIsZero) {
  base::Rng rng(2);
  for (const WeightStorage storage : kStorages) {
    for (const auto& [out, in] : kShapes) {
      SCOPED_TRACE(fmt::format("storage {}, {} x {}", static_cast<int>(storage), out, in));
      WeightMatrix m(storage, out, in);
      const std::vector<std::byte> cleared(m.bytes().begin(), m.bytes().end());
      for (int o = 0; o < out; ++o) EXPECT_EQ(row_of(m, o), std::vector<float>(m.in(), 0.0f));
      const std::vector<float> row = random_row(in, rng), zeros(static_cast<size_t>(in));
      m.set_row(out - 1, row);
      for (int o = 0; o + 1 < out; ++o) ASSERT_EQ(row_of(m, o), zeros);
      // Padded inputs multiply by zero; only kQ4Group keeps an offset where `in` cuts a group.
      if (storage != WeightStorage::kF32) {
        for (int k = in; k < m.padded_in(); ++k) {
          const bool is_cut = storage == WeightStorage::kQ4Group && k / kGroup == (in - 1) / kGroup;
          ASSERT_EQ(documented(m, out - 1, k),
                    is_cut ? m.group_offset(out - 1, (in - 1) / kGroup) : 0.0f)
              << k;
        }
      }
      m.set_row(out - 1, zeros);  // leaves nothing of the first row behind
      EXPECT_TRUE(std::ranges::equal(m.bytes(), cleared));
      m.set_row(0, row);
      for (int p = 0; p < m.panels(); ++p) m.clear_panel(p);
      EXPECT_TRUE(std::ranges::equal(m.bytes(), cleared));
    }
  }
}

TEST(WeightMatrix, SlicesOfOneBlockKeepApart) {
  base::Rng rng(3);
  size_t bytes = 0;
  for (const WeightStorage s : kStorages) bytes += WeightMatrix::bytes_for(s, 17, 65);
  const std::shared_ptr<std::byte> block = allocate_weights(bytes);
  std::vector<WeightMatrix> slices, own;
  size_t at = 0;
  for (const WeightStorage s : kStorages) {
    EXPECT_EQ(at % 64, 0u);
    slices.emplace_back(s, 17, 65, std::shared_ptr<std::byte>(block, block.get() + at));
    own.emplace_back(s, 17, 65);
    at += slices.back().size();
    for (int p = 0; p < 2; ++p) slices.back().clear_panel(p);
  }
  for (int o = 0; o < 17; ++o) {
    const std::vector<float> row = random_row(65, rng);
    for (WeightMatrix& m : slices) m.set_row(o, row);
    for (WeightMatrix& m : own) m.set_row(o, row);
  }
  for (size_t i = 0; i < own.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(slices[i].bytes(), own[i].bytes())) << i;
  EXPECT_EQ(block.use_count(), 1 + static_cast<long>(slices.size()));
}

TEST(WeightMatrix, RoundingErrorsAreBounded) {
  base::Rng rng(4);
  for (const auto& [out, in] : kShapes) {
    const std::vector<float> row = random_row(in, rng);
    for (const WeightStorage storage : kStorages) {
      WeightMatrix m(storage, out, in);
      m.set_row(out - 1, row);
      const std::vector<float> kept = row_of(m, out - 1);
      for (int k = 0; k < in; ++k) {
        const float x = row[static_cast<size_t>(k)], error = std::fabs(kept[k] - x);
        float bound = 0;  // f32
        if (storage == WeightStorage::kBf16) bound = std::fabs(x) * 0x1p-8f;
        if (storage == WeightStorage::kInt8Channel) bound = 0.5001f * m.channel_scale(out - 1);
        if (storage == WeightStorage::kInt8Group)
          bound = 0.5001f * m.group_scale(out - 1, k / kGroup);
        if (storage != WeightStorage::kQ4Group) {  // see the test of its fit
          ASSERT_LE(error, bound) << static_cast<int>(storage) << " " << k;
        }
      }
    }
  }
}

// One group's squared error in kQ4Group, and with codes spread from minimum to maximum.
std::pair<double, double> q4_errors(const std::vector<float>& x) {
  WeightMatrix m(WeightStorage::kQ4Group, 1, static_cast<int>(x.size()));
  m.set_row(0, x);
  const std::vector<float> kept = row_of(m, 0);
  const auto [lo, hi] = std::minmax_element(x.begin(), x.end());
  const float d = half_to_float(float_to_half((*hi - *lo) / 15)),
              offset = half_to_float(float_to_half(*lo));
  double fitted = 0, plain = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const float code = d > 0 ? std::clamp(std::nearbyint((x[i] - offset) / d), 0.0f, 15.0f) : 0;
    fitted += std::pow(static_cast<double>(kept[i]) - static_cast<double>(x[i]), 2);
    plain += std::pow(static_cast<double>(d * code + offset) - static_cast<double>(x[i]), 2);
  }
  return {fitted, plain};
}

TEST(WeightMatrix, FourBitFitIsNoWorseThanMinimumToMaximum) {
  base::Rng rng(5);
  double fitted = 0, plain = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<float> x(kGroup);
    const int kind = round % 5;
    const float scale = std::ldexp(1.0f, static_cast<int>(rng.below(20)) - 14);
    for (float& v : x) v = scale * (kind == 1 ? static_cast<float>(rng.uniform()) : normal(rng));
    if (kind == 2) x[rng.below(kGroup)] = 20 * scale;    // an outlier
    if (kind == 3) x.resize(1 + rng.below(kGroup - 1));  // a cut group
    if (kind == 4)
      for (float& v : x) v += 8 * scale;  // far from zero
    const auto [f, p] = q4_errors(x);
    ASSERT_LE(f, p * 1.0001) << "round " << round;  // errors are compared in float32
    if (kind == 0) fitted += f, plain += p;
  }
  EXPECT_LT(fitted, 0.9 * plain);  // on normal weights it is clearly better
}

TEST(WeightMatrix, OddGroupsAreKeptAsWellAsHalvesAllow) {
  for (const float value : {0.0f, 1.0f, -0.3f, 1e-9f, -6e4f / 8}) {
    const std::vector<float> x(kGroup, value);
    for (const WeightStorage storage : kStorages) {
      WeightMatrix m(storage, 1, kGroup);
      m.set_row(0, x);
      for (const float kept : row_of(m, 0))  // 2^-24: the step of the smallest halves, times 127
        EXPECT_NEAR(kept, value, std::fabs(value) / 127 + 127 * 0x1p-25f)
            << static_cast<int>(storage);
    }
  }
}

TEST(WeightMatrix, LargestValuesStayFinite) {
  base::Rng rng(6);
  for (const WeightStorage storage : kStorages) {
    const float top = WeightMatrix::largest(storage);
    std::vector<float> x = random_row(96, rng);
    x[3] = top, x[70] = -top, x[71] = top;
    WeightMatrix m(storage, 1, 96);
    m.set_row(0, x);
    for (const float kept : row_of(m, 0))
      EXPECT_TRUE(std::isfinite(kept)) << static_cast<int>(storage);
    // Half a step of 4 bits over 2 * top is 0.067 * top, and the fit may cut the ends.
    EXPECT_NEAR(m.at(0, 3) / top, 1.0f, 0.1f) << static_cast<int>(storage);
    EXPECT_NEAR(m.at(0, 70) / top, -1.0f, 0.1f) << static_cast<int>(storage);
  }
}

// Random rows of a block type; scales are any finite halves Q4_0's offset allows.
std::vector<uint8_t> random_blocks(DType t, int n, base::Rng& rng) {
  const auto size = static_cast<size_t>(block_bytes(t));
  std::vector<uint8_t> bytes(static_cast<size_t>(bytes_of(t, n)));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(rng.below(256));
  for (size_t b = 0; b < bytes.size(); b += size)
    for (size_t at : {b + 1, b + 3})
      if (at == b + 1 || t == DType::kQ4_1)
        bytes[at] = static_cast<uint8_t>((bytes[at] & 0x80) | rng.below(0x6F));
  return bytes;
}

TEST(WeightMatrix, BlockTypesAreKeptToTheLastBit) {
  base::Rng rng(7);
  for (const auto& [source, storage] : {std::pair{DType::kQ8_0, WeightStorage::kInt8Group},
                                        {DType::kQ4_0, WeightStorage::kQ4Group},
                                        {DType::kQ4_0, WeightStorage::kQ4Centred},
                                        {DType::kQ4_1, WeightStorage::kQ4Group}}) {
    for (const int in : {32, 64, 96, 576}) {
      WeightMatrix m(storage, 18, in);
      std::vector<float> expected(static_cast<size_t>(in));
      for (int o = 0; o < 18; ++o) {
        const std::vector<uint8_t> bytes = random_blocks(source, in, rng);
        m.set_row_exactly(o, source, bytes);
        dequantize(source, bytes, expected);
        ASSERT_EQ(row_of(m, o), expected) << dtype_name(source) << " " << in << " row " << o;
      }
    }
  }
}

TEST(WeightMatrix, AZeroGroupOfQ40WithAHugeScaleStaysZero) {
  std::vector<uint8_t> bytes(18, 0x88);  // all codes are 8: d * 0
  bytes[0] = 0xFF, bytes[1] = 0x7B;      // d = 65504, whose -8 d no half holds
  for (const WeightStorage storage : {WeightStorage::kQ4Group, WeightStorage::kQ4Centred}) {
    WeightMatrix m(storage, 1, 32);
    m.set_row_exactly(0, DType::kQ4_0, bytes);
    EXPECT_EQ(row_of(m, 0), std::vector<float>(32, 0.0f));
  }
}

TEST(WeightMatrix, WhatIsKeptExactly) {
  for (const WeightStorage storage : kStorages) {
    for (int t = 0; t <= static_cast<int>(DType::kBool); ++t) {
      const auto type = static_cast<DType>(t);
      EXPECT_EQ(WeightMatrix::keeps_exactly(storage, type),
                (storage == WeightStorage::kInt8Group && type == DType::kQ8_0) ||
                    (storage == WeightStorage::kQ4Group &&
                     (type == DType::kQ4_0 || type == DType::kQ4_1)))
          << static_cast<int>(storage) << " " << dtype_name(type);
    }
  }
}

TEST(WeightMatrix, MisuseIsOurMistake) {
  WeightMatrix m(WeightStorage::kInt8Group, 4, 64);
  std::vector<float> row(64), wrong(63);
  EXPECT_THROW(m.set_row(4, row), base::InternalError);
  EXPECT_THROW(m.set_row(-1, row), base::InternalError);
  EXPECT_THROW(m.set_row(0, wrong), base::InternalError);
  EXPECT_THROW(m.copy_row(0, wrong), base::InternalError);
  EXPECT_THROW(m.set_row_exactly(0, DType::kQ4_0, std::vector<uint8_t>(36)), base::InternalError);
  EXPECT_THROW(m.set_row_exactly(0, DType::kQ8_0, std::vector<uint8_t>(67)), base::InternalError);
}

// Files of converted weights outlive the program. Whoever changes these bytes must raise
// kWeightLayoutVersion, or old files would be taken for new ones.
TEST(WeightMatrix, LayoutVersionStandsForTheseBytes) {
  EXPECT_EQ(kWeightLayoutVersion, 3);
  const std::vector<std::pair<WeightStorage, std::string>> expected = {
      {WeightStorage::kF32, "db3e26c8faab7b24"},
      {WeightStorage::kBf16, "738248603e4fe8d4"},
      {WeightStorage::kInt8Channel, "7c8935b869ebfada"},
      {WeightStorage::kInt8Group, "1e4106c8d04e5496"},
      {WeightStorage::kQ4Group, "de53df8bec01e938"}};
  for (const auto& [storage, digest] : expected) {
    base::Rng rng(8);
    WeightMatrix m(storage, 20, 200);
    for (int o = 0; o < 20; ++o) m.set_row(o, random_row(200, rng));
    EXPECT_EQ(
        base::sha256_hex({reinterpret_cast<const char*>(m.bytes().data()), m.size()}).substr(0, 16),
        digest)
        << static_cast<int>(storage);
  }
}

}  // namespace
}  // namespace evalrun::engine
