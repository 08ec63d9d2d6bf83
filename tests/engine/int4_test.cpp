// Keys and values in 4 bits: their rounding against a definition in double precision, the layout of
// codes, and the kernels of every path against sums over the values as they are read.
#include "engine/cpu/kernels/int4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kv_store.h"
#include "tests/engine/cache_kernels.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {
namespace {

using cpu::kLanes;

constexpr float kInt4Inf = std::numeric_limits<float>::infinity();
constexpr float kInt4Nan = std::numeric_limits<float>::quiet_NaN();

struct Int4Head {
  std::vector<uint8_t> codes;
  cpu::Int4Steps steps = 0;
  float scale() const { return cpu::int4_scale(steps); }
  float offset() const { return cpu::int4_offset(steps); }
  float read(size_t i) const { return cpu::int4_value(codes[i], steps); }
};

Int4Head rounded_head(const std::vector<float>& x) {
  Int4Head head;
  head.codes.assign(x.size(), 99);
  head.steps = cpu::round_to_int4(x.data(), x.size(), head.codes.data());
  return head;
}

// The neighbours of a bfloat16 number other than zero.
float bf16_above(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>(x > 0 ? bits + 0x10000u : bits - 0x10000u);
}
float bf16_below(float x) { return -bf16_above(-x); }

// Heads of all kinds: what a model has, one value far outside, all alike, on one side of zero.
std::vector<std::vector<float>> int4_heads() {
  std::vector<std::vector<float>> heads;
  for (const int n : {2, 8, 16, 24, 64, 80, 96, 128, 256})
    for (const float factor : {1e-20f, 1e-3f, 1.0f, 300.0f, 1e20f, 1e33f})
      for (const float shift : {0.0f, 0.7f, -50.0f}) {
        std::vector<float> x = random_floats(n, static_cast<uint64_t>(n));
        for (float& v : x) v = v * factor + shift;
        heads.push_back(x);
        x[x.size() / 2] = -1000 * factor;
        heads.push_back(x);
      }
  for (const float alike : {0.0f, -0.0f, 1.0f, -3.14159f, 1e-29f, 1e-31f, -1e-31f, 1e38f, -1e38f})
    heads.emplace_back(24, alike);
  heads.push_back({-1e38f, 1e38f, 0.0f, 5e37f});
  heads.push_back({0.0f, -0.0f, 1e-45f, -1e-45f});
  heads.push_back({1000.0f, 1000.001f, 1000.002f, 1000.0005f});
  heads.push_back({-1.0f, -0.5f, -0.25f, -1e-9f});
  return heads;
}

TEST(Int4, EveryValueIsReadWithinHalfAStep) {
  for (const std::vector<float>& x : int4_heads()) {
    const Int4Head head = rounded_head(x);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(head.codes[i], 15) << x[i];
      // Half a step, and the rounding of float32. Steps of next to nothing are no steps.
      const double value = x[i], bound = 0.5001 * head.scale() + 2e-7 * std::fabs(value) + 1.7e-29;
      ASSERT_LE(std::fabs(head.read(i) - value), bound) << value << " of " << x.size();
    }
  }
}

// The steps are no larger than they must be: the offset is the largest bfloat16 that is not above
// the smallest value, the scale the smallest that reaches the largest value in 15 steps.
TEST(Int4, OffsetAndScaleAreTheNearestThatReach) {
  int seen = 0;
  for (const std::vector<float>& x : int4_heads()) {
    const Int4Head head = rounded_head(x);
    const double low = *std::min_element(x.begin(), x.end());
    const double high = *std::max_element(x.begin(), x.end());
    if (std::fabs(low) < 1e-29 || head.scale() == 0) continue;
    ++seen;
    EXPECT_LE(head.offset(), low);
    EXPECT_GT(bf16_above(head.offset()), low) << head.offset();
    const double needed = (high - head.offset()) / 15;
    EXPECT_GE(head.scale(), needed * (1 - 3e-7));
    EXPECT_LT(bf16_below(head.scale()), needed * (1 + 3e-7)) << head.scale();
    // Codes are the nearest ones.
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_LE(std::fabs((x[i] - head.offset()) / head.scale() - head.codes[i]), 0.50001) << x[i];
  }
  EXPECT_GT(seen, 250);
}

TEST(Int4, WhatIsExactStaysExact) {
  // Sixteen values with a step and a first one that bfloat16 has.
  for (const float step : {0.25f, 3.0f, 0x1p33f})
    for (const float first : {0.0f, -8.0f, 24.0f}) {
      std::vector<float> x;
      for (int i = 0; i < 16; ++i)
        x.push_back(first * step + step * static_cast<float>((i * 7) % 16));
      const Int4Head head = rounded_head(x);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(head.read(i), x[i]) << step << ", " << first;
        EXPECT_EQ(head.codes[i], i * 7 % 16);
      }
    }
  for (const float alike : {0.0f, 1.0f, -2.5f}) {
    const Int4Head head = rounded_head(std::vector<float>(64, alike));
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(head.read(i), alike);
  }
  const Int4Head zeros = rounded_head(std::vector<float>(64, -0.0f));
  EXPECT_EQ(zeros.steps, 0u) << "a head of zeros is all zero bits";
}

TEST(Int4, OneHugeValueIsKeptAndTheOthersAreTheOffset) {
  std::vector<float> x = random_floats(64, 5);
  x[17] = 1e30f;
  const Int4Head head = rounded_head(x);
  EXPECT_NEAR(head.read(17), 1e30f, 1e28f);
  EXPECT_EQ(head.codes[17], 15);
  for (size_t i = 0; i < x.size(); ++i)
    if (i != 17) {
      EXPECT_EQ(head.codes[i], 0) << i;
    }
}

TEST(Int4, WhatIsNoNumberMakesNoNumberOfItsHeadAlone) {
  for (const float odd : {kInt4Nan, -kInt4Nan, kInt4Inf, -kInt4Inf, 2e38f, -3e38f})
    for (const size_t at : {0u, 5u, 23u}) {
      std::vector<float> x = random_floats(24, 3);
      x[at] = odd;
      const Int4Head head = rounded_head(x);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_TRUE(std::isnan(head.read(i))) << odd;
        EXPECT_EQ(head.codes[i], 0);
      }
    }
  // In a store: the other head, and other positions, are what they were.
  cpu::KvStore<uint8_t> store;
  store.configure(2, 24);
  store.reserve(20);
  std::vector<float> good = random_floats(48, 9), bad = good, k(48), v(48), want_k(48), want_v(48);
  bad[30] = kInt4Inf;
  store.write(3, good.data(), good.data());
  store.read(3, want_k.data(), want_v.data());
  store.write(4, bad.data(), good.data());
  store.read(3, k.data(), v.data());
  EXPECT_TRUE(same_bits(k, want_k));
  EXPECT_TRUE(same_bits(v, want_v));
  store.read(4, k.data(), v.data());
  EXPECT_TRUE(same_bits(std::span(k).first(24), std::span(want_k).first(24)));
  EXPECT_TRUE(same_bits(v, want_v));
  for (size_t i = 24; i < 48; ++i) EXPECT_TRUE(std::isnan(k[i])) << i;
}

TEST(Int4, PackedCodesAreReadAsTheyWere) {
  for (size_t dims = 2; dims <= 160; dims += 2) {
    std::vector<uint8_t> codes(dims);
    for (size_t d = 0; d < dims; ++d) codes[d] = static_cast<uint8_t>((d * 11 + dims) % 16);
    const size_t key_bytes = cpu::int4_key_bytes(dims), value_bytes = cpu::int4_value_bytes(dims);
    EXPECT_EQ(key_bytes, dims / 2);
    EXPECT_EQ(value_bytes % 16, 0u);
    EXPECT_LT(2 * value_bytes, dims + 32);
    std::vector<uint8_t> key(key_bytes * 3 + 1, 0xAB), value(value_bytes + 1, 0xAB);
    cpu::pack_int4_key(codes.data(), dims, key.data(), 3);
    cpu::pack_int4_value(codes.data(), dims, value.data());
    for (size_t d = 0; d < dims; ++d) {
      ASSERT_EQ(cpu::int4_key_code(key.data(), 3, d), codes[d]) << d << " of " << dims;
      ASSERT_EQ(cpu::int4_value_code(value.data(), d), codes[d]) << d << " of " << dims;
    }
    for (size_t d = dims; d < 2 * value_bytes; ++d)
      ASSERT_EQ(cpu::int4_value_code(value.data(), d), 0u) << "no dimension";
    EXPECT_EQ(value.back(), 0xAB);
    for (size_t i = 0; i < key.size(); ++i)
      if (i % 3 != 0 || i == key_bytes * 3) {
        ASSERT_EQ(key[i], 0xAB) << i;
      }
  }
}

// --- kernels -------------------------------------------------------------------------------------

class EveryInt4Kernel : public ::testing::TestWithParam<cpu::Kernels> {};

TEST_P(EveryInt4Kernel, RoundsAsTheDefinition) {
  std::vector<std::vector<float>> heads = int4_heads();
  const size_t plain = heads.size();
  for (const float odd : {kInt4Nan, kInt4Inf, -kInt4Inf, 2e38f, -2e38f})
    for (size_t i = 0; i < plain; i += 7) {
      heads.push_back(heads[i]);
      heads.back()[heads[i].size() - 1] = odd;
    }
  // Halves of a step, to either side.
  std::vector<float> ties = {0.0f, 15.0f};
  for (int i = 0; i < 15; ++i) ties.push_back(static_cast<float>(i) + 0.5f);
  for (int i = 0; i < 15; ++i) ties.push_back(std::nextafter(static_cast<float>(i) + 0.5f, 20.0f));
  heads.push_back(ties);
  for (const std::vector<float>& x : heads) {
    const Int4Head want = rounded_head(x);
    std::vector<uint8_t> got(x.size() + 1, 99);
    const cpu::Int4Steps steps =
        GetParam().head_to_int4(x.data(), static_cast<int>(x.size()), got.data());
    ASSERT_EQ(steps, want.steps) << x.size() << " values from " << x[0];
    ASSERT_EQ(got.back(), 99);
    got.pop_back();
    ASSERT_EQ(got, want.codes) << x.size() << " values from " << x[0];
  }
}

TEST_P(EveryInt4Kernel, ScoresAndSumsAreThoseOfTheValuesAsRead) {
  expect_sums_of_values_as_read<uint8_t>(GetParam().scores_int4, GetParam().weighted_sum_int4);
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryInt4Kernel,
                         ::testing::ValuesIn(cpu::available_kernels().begin(),
                                             cpu::available_kernels().end()),
                         [](const auto& path) { return as_test_name(path.param.name); });

}  // namespace
}  // namespace evalrun::engine::testing
