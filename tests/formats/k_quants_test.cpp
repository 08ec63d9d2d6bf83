// K-quants taken apart: with the arithmetic of their definition, the parts give what dequantize()
// gives, which is checked against the gguf package.
#include "engine/formats/k_quants.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace evalrun::engine {
namespace {

constexpr DType kTypes[] = {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

std::vector<uint8_t> random_block(DType t, base::Rng& rng) {
  std::vector<uint8_t> bytes(static_cast<size_t>(block_bytes(t)));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng.below(256));
  // Finite float16: an exponent below 31.
  for (const size_t at : t == DType::kQ6_K ? std::vector<size_t>{209} : std::vector<size_t>{1, 3})
    bytes[at] &= 0xBF;
  return bytes;
}

TEST(KQuants, PartsGiveTheWeights) {
  base::Rng rng(1);
  for (const DType t : kTypes) {
    const bool six = t == DType::kQ6_K;
    const size_t length = six ? 16 : 32;
    const int codes = t == DType::kQ4_K ? 16 : t == DType::kQ5_K ? 32 : 64;
    for (int n = 0; n < 200; ++n) {
      const std::vector<uint8_t> bytes = random_block(t, rng);
      std::array<float, kKBlock> want;
      dequantize(t, bytes, want);
      const KBlock b = unpack_k_block(t, bytes);
      const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
      for (size_t i = 0; i < kKBlock; ++i) {
        ASSERT_LT(b.code[i], codes);
        const float step = d * static_cast<float>(b.scale[i / length]);
        const float got =
            six ? step * static_cast<float>(b.code[i] - 32)
                : step * static_cast<float>(b.code[i]) - dmin * static_cast<float>(b.min[i / 32]);
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want[i]))
            << dtype_name(t) << " weight " << i;
      }
    }
  }
}

TEST(KQuants, TheLargestScaleIsThatOfAnyBlock) {
  for (const DType t : kTypes) {
    const auto size = static_cast<size_t>(block_bytes(t));
    std::vector<uint8_t> row(3 * size);
    const auto put = [&](size_t at, uint16_t half) {
      row[at] = static_cast<uint8_t>(half & 255), row[at + 1] = static_cast<uint8_t>(half >> 8);
    };
    const size_t d = t == DType::kQ6_K ? 208 : 0;
    EXPECT_EQ(largest_scale(t, row), 0);
    put(size + d, 0xB800);
    EXPECT_EQ(largest_scale(t, row), 0x3800);
    if (t != DType::kQ6_K) {
      put(2 * size + 2, 0xFE00);
      EXPECT_EQ(largest_scale(t, row), 0x7E00);
    }
  }
}

TEST(KQuants, OthersAndHalfBlocksAreRefused) {
  for (const DType t : {DType::kQ4_1, DType::kF32, DType::kQ2_K, DType::kQ3_K})
    EXPECT_EQ(k_bits(t), 0) << dtype_name(t);
  const std::vector<uint8_t> bytes(144);
  EXPECT_THROW((void)unpack_k_block(DType::kQ8_0, bytes), base::InternalError);
  EXPECT_THROW((void)unpack_k_block(DType::kQ4_K, {bytes.data(), 143}), base::InternalError);
}

}  // namespace
}  // namespace evalrun::engine
