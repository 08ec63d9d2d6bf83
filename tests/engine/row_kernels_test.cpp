// Kernels of rows against arith.h: rotation, keys and values as bfloat16, rounding to integers.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/model/weight_matrix.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {
namespace {

using cpu::kLanes;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class EveryRowKernel : public ::testing::TestWithParam<cpu::Kernels> {};

// Which of two NaN a sum takes is the compiler's choice.
bool same_number(float a, float b) {
  if (std::isnan(a) && std::isnan(b)) return true;
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

TEST_P(EveryRowKernel, RotatesAsTheDefinition) {
  constexpr float kBeside = -77.0f;
  for (const int half : {1, 7, 8, 15, 16, 17, 31, 32, 40, 64})
    for (const int heads : {1, 3}) {
      const int n = 2 * half * heads;
      std::vector<float> x = random_floats(n, static_cast<uint64_t>(half));
      const std::vector<float> cos = random_floats(half, 1), sin = random_floats(half, 2);
      x.front() = kInf, x.back() = kNan, x[x.size() / 2] = -0.0f;
      std::vector<float> want = x;
      for (int head = 0; head < heads; ++head)
        cpu::rope(want.data() + 2 * half * head, cos.data(), sin.data(), half);
      // Neither is aligned.
      std::vector<float> apart(x.size() + 2, kBeside), in_place(x.size() + 2, kBeside);
      std::copy(x.begin(), x.end(), in_place.begin() + 1);
      GetParam().rotate(x.data(), cos.data(), sin.data(), half, heads, apart.data() + 1);
      GetParam().rotate(in_place.data() + 1, cos.data(), sin.data(), half, heads,
                        in_place.data() + 1);
      for (const std::vector<float>* got : {&apart, &in_place}) {
        EXPECT_EQ(got->front(), kBeside);
        EXPECT_EQ(got->back(), kBeside);
        for (size_t i = 0; i < x.size(); ++i)
          ASSERT_TRUE(same_number((*got)[i + 1], want[i]))
              << heads << " heads of " << 2 * half << ", value " << i;
      }
    }
}

// All signs, exponents and upper bits, with lower ones on both sides of the middle: NaN, infinities
// and what is too small included.
TEST_P(EveryRowKernel, ValuesAreRoundedAsTheDefinition) {
  std::vector<float> all;
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (const uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      all.push_back(std::bit_cast<float>(high << 16 | low));
  std::vector<uint16_t> got(all.size());
  GetParam().values_to_bf16(all.data(), static_cast<int>(all.size()), got.data());
  for (size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(got[i], float_to_bfloat16(all[i])) << std::bit_cast<uint32_t>(all[i]);
}

TEST_P(EveryRowKernel, ValuesOfAnyNumberAreWrittenAndNothingElse) {
  constexpr uint16_t kBeside = 0x1234;
  const std::vector<float> x = random_floats(100, 1);
  for (int n = 1; n <= 70; ++n) {
    std::vector<uint16_t> got(static_cast<size_t>(n) + 2, kBeside), want = got;
    for (size_t i = 1; i <= static_cast<size_t>(n); ++i) want[i] = float_to_bfloat16(x[i]);
    GetParam().values_to_bf16(x.data() + 1, n, got.data() + 1);
    ASSERT_EQ(got, want) << n;
  }
}

TEST_P(EveryRowKernel, KeysGoToTheirLanesAndNoOthers) {
  for (const int head_dim : {8, 16, 24, 64, 80}) {
    const int ld = head_dim + 5;
    std::vector<float> x = random_floats(kLanes * ld, static_cast<uint64_t>(head_dim));
    x[0] = kInf, x[3] = kNan, x[5] = -1e-20f, x[static_cast<size_t>(ld)] = -kNan;
    for (int lane = 0; lane < kLanes; ++lane)
      for (int n = 1; lane + n <= kLanes; ++n) {
        std::vector<uint16_t> got(static_cast<size_t>(head_dim * kLanes) + 1);
        for (size_t i = 0; i < got.size(); ++i) got[i] = static_cast<uint16_t>(i * 7 + 1);
        std::vector<uint16_t> want = got;
        for (int r = 0; r < n; ++r)
          for (int d = 0; d < head_dim; ++d)
            want[static_cast<size_t>(d * kLanes + lane + r)] =
                float_to_bfloat16(x[static_cast<size_t>(r * ld + d)]);
        GetParam().keys_to_bf16(x.data(), ld, n, head_dim, lane, got.data());
        ASSERT_EQ(got, want) << head_dim << " dimensions, " << n << " from lane " << lane;
      }
  }
}

TEST_P(EveryRowKernel, HeadsAsBytesAreTheDefinition) {
  constexpr int8_t kBeside = 99;
  for (const int n : {2, 8, 16, 24, 64, 80, 256})
    for (const int stride : {1, kLanes})
      for (const float odd : {0.0f, 1e-29f, 1e-31f, 3e38f, -40.0f, kInf, -kInf, kNan})
        for (const bool alone : {false, true}) {
          std::vector<float> x = random_floats(n, static_cast<uint64_t>(n));
          if (alone) std::fill(x.begin(), x.end(), 0.0f);
          x[x.size() / 2] = odd;
          std::vector<int8_t> got(static_cast<size_t>(n * stride) + 1, kBeside), want = got;
          const float scale =
              cpu::round_to_bytes(x.data(), x.size(), want.data(), static_cast<size_t>(stride));
          ASSERT_TRUE(same_number(GetParam().head_to_bytes(x.data(), n, got.data(), stride), scale))
              << n << " with " << odd;
          ASSERT_EQ(got, want) << n << " with " << odd;
        }
}

struct RoundedRow {
  float scale = 0;
  std::vector<int8_t> lo;
  std::vector<int32_t> sums;
  std::vector<int32_t> wide;  // line, sum, value of each
};

RoundedRow defined_integers(const std::vector<float>& x, int padded) {
  const auto size = static_cast<size_t>(padded);
  RoundedRow to;
  to.lo.resize(size), to.sums.resize(size / 32);
  float lane[kLanes] = {}, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    lane[i % kLanes] = std::fma(x[i], x[i], lane[i % kLanes]);
    largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  }
  to.scale = cpu::input_scale(cpu::sum_lanes(lane), static_cast<int>(x.size()), largest);
  const float inverse = 1.0f / to.scale;
  std::vector<int> hi(size);
  for (size_t i = 0; i < x.size(); ++i) {
    const cpu::SplitInput q = cpu::split_input(static_cast<int>(std::nearbyint(x[i] * inverse)));
    to.lo[i] = static_cast<int8_t>(q.lo), hi[i] = q.hi;
    to.sums[i / 32] += q.lo;
  }
  for (size_t i = 0; i < size; i += 4) {
    int8_t bytes[4];
    int32_t sum = 0, value;
    bool any = false;
    for (size_t j = 0; j < 4; ++j) {
      bytes[j] = static_cast<int8_t>(hi[i + j]);
      sum += hi[i + j], any = any || hi[i + j] != 0;
    }
    std::memcpy(&value, bytes, sizeof value);
    if (any) to.wide.insert(to.wide.end(), {static_cast<int32_t>(i / 4), sum, value});
  }
  return to;
}

// By a kernel, with a guard after everything that it writes.
RoundedRow integers_of(const cpu::Kernels& kernels, const std::vector<float>& x, int padded) {
  const auto size = static_cast<size_t>(padded);
  base::AlignedVector<std::byte> values(size + 1, std::byte{77});
  RoundedRow to;
  to.sums.assign(size / 32 + 1, -77);
  std::vector<cpu::WideInputs> wide(size / 4 + 1, {-77, -77, -77});
  const int n_wide =
      kernels.round_int(x.data(), static_cast<int>(x.size()), padded,
                        {values.data(), &to.scale, to.sums.data(), wide.data(), nullptr, nullptr});
  EXPECT_EQ(values.back(), std::byte{77});
  EXPECT_EQ(to.sums.back(), -77);
  EXPECT_EQ(wide.back().line, -77);
  to.sums.pop_back();
  for (size_t i = 0; i < size; ++i) to.lo.push_back(static_cast<int8_t>(values[i]));
  for (size_t i = 0; i < static_cast<size_t>(n_wide); ++i)
    to.wide.insert(to.wide.end(), {wide[i].line, wide[i].sum, wide[i].value});
  return to;
}

// Rows with few and with many large values, alone and side by side, and without any.
std::vector<std::vector<float>> rows_to_round(int n) {
  std::vector<std::vector<float>> rows;
  for (uint64_t seed = 0; seed < 5; ++seed) rows.push_back(random_floats(n, seed));
  rows.emplace_back(static_cast<size_t>(n), 0.0f);
  rows.emplace_back(static_cast<size_t>(n), -3.0f);
  rows.push_back(random_floats(n, 9));
  rows.back()[static_cast<size_t>(n / 2)] = -1000.0f;
  // 3.46 times the root mean square: just beyond 127.
  rows.emplace_back(static_cast<size_t>(n), 0.0f);
  for (size_t i = 0; i < rows.back().size(); i += 12) rows.back()[i] = i % 24 == 0 ? 1.0f : -1.0f;
  rows.emplace_back(static_cast<size_t>(n), 0.001f);
  for (size_t i = 0; i < rows.back().size() / 16; ++i) rows.back()[i] = i % 3 == 0 ? 5.0f : -5.0f;
  return rows;
}

TEST_P(EveryRowKernel, IntegersAreTheDefinitions) {
  int n_wide = 0;
  for (const int n : {1, 3, 15, 16, 17, 33, 63, 64, 65, 75, 200, 576, 1536})
    for (const std::vector<float>& x : rows_to_round(n)) {
      const int padded = (n + 63) / 64 * 64;
      const RoundedRow want = defined_integers(x, padded);
      const RoundedRow got = integers_of(GetParam(), x, padded);
      ASSERT_TRUE(same_number(got.scale, want.scale)) << n;
      ASSERT_EQ(got.lo, want.lo) << n;
      ASSERT_EQ(got.sums, want.sums) << n;
      ASSERT_EQ(got.wide, want.wide) << n;
      n_wide += static_cast<int>(want.wide.size()) / 3;
    }
  EXPECT_GT(n_wide, 200);  // they are met at all
}

// The scale carries it to the result.
TEST_P(EveryRowKernel, WhatIsNotFiniteIsInTheScaleAlone) {
  for (const float odd : {kNan, kInf, -kInf}) {
    std::vector<float> x = random_floats(100, 1);
    x[50] = odd;
    const RoundedRow got = integers_of(GetParam(), x, 128);
    EXPECT_FALSE(std::isfinite(got.scale)) << odd;
    EXPECT_TRUE(got.wide.empty()) << odd;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryRowKernel,
                         ::testing::ValuesIn(cpu::available_kernels().begin(),
                                             cpu::available_kernels().end()),
                         [](const auto& path) { return as_test_name(path.param.name); });

}  // namespace
}  // namespace evalrun::engine::testing
