// Keys and values in 8 bits as floating-point numbers: all codes against the definition of E4M3 in
// double precision, the rounding of numbers against a search among all of them, and the kernels of
// every path at every code.
#include "engine/cpu/kernels/fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kv_store.h"
#include "engine/model/weight_matrix.h"
#include "tests/engine/cache_kernels.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {
namespace {

using cpu::Fp8;
using cpu::kLanes;

constexpr float kFp8Inf = std::numeric_limits<float>::infinity();
constexpr float kFp8Nan = std::numeric_limits<float>::quiet_NaN();

// The specification's table: S.EEEE.MMM, bias 7.
double defined_value(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double value =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 7 - 3);
  return (code & 0x80) != 0 ? -value : value;
}
bool is_no_number(int code) { return (code & 0x7f) == 0x7f; }

// The nearest of the 127 numbers of x's sign; of two the even code. What is larger is the largest.
int defined_code(float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  int best = 0;
  for (int code = 1; code < 0x7f; ++code) {
    const double now = std::fabs(defined_value(code) - magnitude),
                 before = std::fabs(defined_value(best) - magnitude);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(x) ? 0x80 : 0);
}

TEST(Fp8, AllCodesAreTheNumbersOfTheSpecification) {
  for (int code = 0; code < 256; ++code) {
    const float got = cpu::fp8_value(static_cast<Fp8>(code));
    // Not numbers there; here what their bits would be.
    ASSERT_EQ(got, defined_value(code)) << code;
    ASSERT_EQ(std::signbit(got), code >= 0x80) << code;
  }
  EXPECT_EQ(defined_value(0x7e), cpu::kFp8Most);
  EXPECT_EQ(defined_value(0x7f), 480);
  EXPECT_EQ(cpu::fp8_value(Fp8{1}), 0x1p-9f);
  EXPECT_EQ(cpu::fp8_value(Fp8{8}), 0x1p-6f);
}

// All numbers of bfloat16, over scales that are powers of two and others; and in the middle between
// two codes, and beside it.
std::vector<float> numbers_to_round() {
  std::vector<float> all;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    const float x = std::bit_cast<float>(high << 16);
    if (!std::isfinite(x)) continue;
    for (const float factor : {1.0f, 0x1p-9f, 448.0f, 1.0f / 3, 0.1f, 448.0f / 7.7f})
      if (std::isfinite(x * factor)) all.push_back(x * factor);
  }
  for (int code = 0; code < 0x7f; ++code) {
    const auto middle = static_cast<float>((defined_value(code) + defined_value(code + 1)) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      all.push_back(x);
      all.push_back(-x);
    }
  }
  all.insert(all.end(), {std::numeric_limits<float>::max(), -0.0f, 1e-45f, -1e-45f});
  return all;
}

// The first number that an encoder rounds to another code; NaN: none.
template <typename Encoder>
float first_wrong(const std::vector<float>& numbers, const std::vector<int>& want,
                  const Encoder& encode) {
  for (size_t i = 0; i < numbers.size(); ++i)
    if (static_cast<int>(encode(numbers[i])) != want[i]) return numbers[i];
  return kFp8Nan;
}

TEST(Fp8, NumbersAreRoundedAsASearchDoesAndFaultsAreSeen) {
  std::vector<float> numbers = numbers_to_round();
  std::sort(numbers.begin(), numbers.end());
  std::vector<int> want;
  std::vector<bool> seen(256);
  for (const float x : numbers) {
    want.push_back(defined_code(x));
    seen[static_cast<size_t>(want.back())] = true;
  }
  for (int code = 0; code < 256; ++code)
    EXPECT_EQ(seen[static_cast<size_t>(code)], !is_no_number(code)) << code;
  EXPECT_TRUE(std::isnan(first_wrong(numbers, want, cpu::fp8_code)));

  const auto wrong = [&](const auto& encode) { return first_wrong(numbers, want, encode); };
  const auto bits_of = [](float x) { return std::bit_cast<uint32_t>(x); };
  EXPECT_FALSE(std::isnan(wrong([&](float x) {  // towards zero
    return cpu::fp8_code(std::bit_cast<float>(bits_of(x) & 0xfff00000u));
  })));
  EXPECT_FALSE(std::isnan(wrong([&](float x) {  // ties away from zero
    return cpu::fp8_code(std::bit_cast<float>(bits_of(x) + 1));
  })));
  EXPECT_FALSE(std::isnan(wrong([](float x) {  // nothing below the smallest normal number
    return cpu::fp8_code(std::fabs(x) < 0x1p-6f ? std::copysign(0.0f, x) : x);
  })));
  EXPECT_FALSE(std::isnan(wrong([](float x) {  // what is too large is no number
    return std::fabs(x) > 464 ? static_cast<Fp8>(x > 0 ? 0x7f : 0xff) : cpu::fp8_code(x);
  })));
  EXPECT_FALSE(std::isnan(wrong([](float x) { return cpu::fp8_code(x == 0.0f ? 0.0f : x); })));
  EXPECT_FALSE(std::isnan(wrong([](float x) { return cpu::fp8_code(x * 1.0001f); })));
}

TEST(Fp8, EveryCodeIsRoundedToItself) {
  for (int code = 0; code < 256; ++code)
    if (!is_no_number(code)) {
      EXPECT_EQ(static_cast<int>(cpu::fp8_code(cpu::fp8_value(static_cast<Fp8>(code)))), code);
    }
}

struct Fp8Head {
  std::vector<Fp8> codes;
  float scale = 0;
  float read(size_t i) const { return cpu::fp8_value(codes[i]) * scale; }
};
Fp8Head rounded_fp8(const std::vector<float>& x) {
  Fp8Head head{std::vector<Fp8>(x.size(), Fp8{99})};
  head.scale = cpu::round_to_fp8(x.data(), x.size(), head.codes.data(), 1);
  return head;
}

TEST(Fp8, TheLargestIs448AndTheOthersAreWithinHalfAStep) {
  for (const float factor : {1e-29f, 1e-3f, 1.0f, 300.0f, 1e37f}) {
    std::vector<float> x = random_floats(128, 7);
    for (float& v : x) v *= factor;
    const Fp8Head head = rounded_fp8(x);
    float most = 0;
    for (const float v : x) most = std::max(most, std::fabs(v));
    EXPECT_EQ(head.scale, most / 448.0f);
    int at_most = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      at_most += (static_cast<int>(head.codes[i]) & 0x7f) == 0x7e ? 1 : 0;
      // Half a step is a sixteenth of a number's power of two, and 2^-10 at least, of the scale.
      const double step = std::max(std::fabs(static_cast<double>(x[i])) / 16, head.scale * 0x1p-10);
      ASSERT_LE(std::fabs(head.read(i) - static_cast<double>(x[i])), step * 1.000001) << x[i];
    }
    EXPECT_GE(at_most, 1);
  }
}

TEST(Fp8, HeadsWithRulesOfTheirOwn) {
  for (const float odd : {kFp8Nan, -kFp8Nan, kFp8Inf, -kFp8Inf})
    for (const size_t at : {0u, 5u, 23u}) {
      std::vector<float> x = random_floats(24, 3);
      x[at] = odd;
      const Fp8Head head = rounded_fp8(x);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_TRUE(std::isnan(head.read(i))) << odd;
        EXPECT_EQ(head.codes[i], Fp8{});
      }
    }
  for (const float tiny : {0.0f, -0.0f, 1e-31f, -1e-45f}) {
    const Fp8Head head = rounded_fp8(std::vector<float>(24, tiny));
    EXPECT_EQ(head.scale, 0.0f) << tiny;
    for (const Fp8 code : head.codes) EXPECT_EQ(code, Fp8{}) << tiny;
  }
  const Fp8Head huge = rounded_fp8({3.4e38f, -3.4e38f, 1.0f});
  EXPECT_EQ(huge.codes, (std::vector<Fp8>{Fp8{0x7e}, Fp8{0xfe}, Fp8{}}));
}

// --- kernels -------------------------------------------------------------------------------------

class EveryFp8Kernel : public ::testing::TestWithParam<cpu::Kernels> {};

// Every code as a key and as a value, over scales of all sizes that heads have: the largest, the
// smallest, whose products are no normal numbers, and none. Product and scale are rounded as in
// fp8_value(code) * scale.
TEST_P(EveryFp8Kernel, ReadsEveryCodeAsTheDefinition) {
  constexpr int kBlocks = 256 / kLanes;  // a block has 16 codes, all of one dimension
  for (const float scale : {1.0f, 0.1f, 3.4e38f / 448, 1e-30f / 448, 0x1.234567p-20f, 0.0f}) {
    constexpr int kBlockBytes = 2 * kLanes + kLanes * 4, kRowBytes = kLanes + 4;
    std::vector<Fp8> keys(kBlocks * kBlockBytes), values(kBlocks * kRowBytes);
    for (int b = 0; b < kBlocks; ++b) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const auto code = static_cast<Fp8>(b * kLanes + lane);
        keys[static_cast<size_t>(b * kBlockBytes + lane)] = code;
        values[static_cast<size_t>(b * kRowBytes + lane)] = code;
        std::memcpy(&keys[static_cast<size_t>(b * kBlockBytes + 2 * kLanes + 4 * lane)], &scale, 4);
      }
      std::memcpy(&values[static_cast<size_t>(b * kRowBytes + kLanes)], &scale, 4);
    }
    const std::vector<float> q = {1.0f, 0.0f};
    std::vector<float> s(256);
    GetParam().scores_fp8(q.data(), 2, 1, keys.data(), kBlocks, 2, 1.0f, s.data(), 256);
    for (int code = 0; code < 256; ++code) {
      const float want = cpu::fp8_value(static_cast<Fp8>(code)) * scale;
      ASSERT_EQ(s[static_cast<size_t>(code)], want) << "key of code " << code << ", " << scale;
      const float one = 1.0f;
      std::vector<float> sums(kLanes, 0.0f);
      GetParam().weighted_sum_fp8(&one, 1, 1,
                                  &values[static_cast<size_t>(code / kLanes) * kRowBytes],
                                  kRowBytes, 1, kLanes, sums.data(), kLanes);
      ASSERT_EQ(sums[static_cast<size_t>(code % kLanes)], want)
          << "value of code " << code << ", " << scale;
    }
  }
}

TEST_P(EveryFp8Kernel, ScoresAndSumsAreThoseOfTheValuesAsRead) {
  expect_sums_of_values_as_read<Fp8>(GetParam().scores_fp8, GetParam().weighted_sum_fp8);
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryFp8Kernel,
                         ::testing::ValuesIn(cpu::available_kernels().begin(),
                                             cpu::available_kernels().end()),
                         [](const auto& path) { return as_test_name(path.param.name); });

}  // namespace
}  // namespace evalrun::engine::testing
