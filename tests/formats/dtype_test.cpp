// Widening of every storage type: bit for bit what the gguf package computes, and every
// half-precision number there is.
#include "engine/formats/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/formats/gguf.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine {
namespace {

using testing::data_path;

constexpr DType kWeightTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                                  DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                  DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

TEST(Dtype, EveryTypeEqualsTheGgufPackageBitForBit) {
  const GgufFile file(data_path("dequant.gguf"));
  for (const DType t : kWeightTypes) {
    const std::string name(dtype_name(t));
    SCOPED_TRACE(name);
    ASSERT_TRUE(file.tensors().contains(name));
    const GgufTensor& stored = file.tensors().at(name);
    const GgufTensor& expected = file.tensors().at(name + ".expected");
    ASSERT_EQ(stored.dtype, t);
    ASSERT_EQ(expected.dtype, DType::kF32);
    ASSERT_EQ(expected.bytes.size(), 2048 * sizeof(float));
    std::vector<float> values(2048);
    dequantize(t, stored.bytes, values);
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, expected.bytes.data() + 4 * i, 4);
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), bits)
          << "value " << i << ": " << values[i] << " instead of " << std::bit_cast<float>(bits);
    }
  }
}

TEST(Dtype, RowsCanBeWidenedApart) {
  const GgufFile file(data_path("dequant.gguf"));
  for (const DType t : kWeightTypes) {
    const GgufTensor& stored = file.tensors().at(std::string(dtype_name(t)));
    std::vector<float> whole(2048), part(256);
    dequantize(t, stored.bytes, whole);
    const auto bytes = static_cast<size_t>(bytes_of(t, 256));
    for (size_t row = 0; row < 8; ++row) {
      dequantize(t, stored.bytes.subspan(row * bytes, bytes), part);
      EXPECT_EQ(0, std::memcmp(part.data(), whole.data() + row * 256, 256 * sizeof(float)))
          << dtype_name(t) << " row " << row;
    }
  }
}

// By hand: the first block of two tensors of the default model.
TEST(Dtype, Q41AndQ80ByHand) {
  const std::vector<uint8_t> q41 = {0x0f, 0x30, 0xd8, 0xb9, 0x45, 0x87, 0x65, 0x40, 0x6f, 0x65,
                                    0x16, 0x4b, 0x67, 0x76, 0x64, 0x50, 0x22, 0x67, 0x65, 0x5a};
  std::vector<float> w(32);
  dequantize(DType::kQ4_1, q41, w);
  EXPECT_EQ(w[0], -0.0963134765625f);  // 0.1268310546875 * 5 - 0.73046875
  EXPECT_EQ(w[1], 0.1573486328125f);
  EXPECT_EQ(w[16], -0.22314453125f);
  EXPECT_EQ(w[31], -0.0963134765625f);
  std::vector<uint8_t> q80(34, 0);
  q80[1] = 0x3C;  // 1.0
  q80[2] = 0x80;  // -128
  q80[33] = 0x7F;
  dequantize(DType::kQ8_0, q80, w);
  EXPECT_EQ(w[0], -128.0f);
  EXPECT_EQ(w[1], 0.0f);
  EXPECT_EQ(w[31], 127.0f);
}

TEST(Dtype, AllHalvesAsTheirDefinitionSays) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const int exponent = static_cast<int>(h >> 10 & 31), mantissa = static_cast<int>(h & 0x3FF);
    const float value = half_to_float(static_cast<uint16_t>(h));
    ASSERT_EQ(std::signbit(value), h >> 15 == 1) << h;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(value), mantissa != 0) << h;
      ASSERT_EQ(std::isinf(value), mantissa == 0) << h;
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(std::abs(static_cast<double>(value)), magnitude) << h;
    }
  }
}

TEST(Dtype, BfloatIsTheUpperHalfOfAFloat) {
  EXPECT_EQ(bfloat16_to_float(0x3FC0), 1.5f);
  EXPECT_EQ(bfloat16_to_float(0x8000), -0.0f);
  EXPECT_TRUE(std::isinf(bfloat16_to_float(0x7F80)));
  EXPECT_EQ(bfloat16_to_float(0x0001), std::bit_cast<float>(0x00010000u));  // subnormal
}

TEST(Dtype, WrongSizesAreOurMistake) {
  std::vector<float> out(32);
  const std::vector<uint8_t> bytes(33);
  EXPECT_THROW(dequantize(DType::kQ8_0, bytes, out), base::InternalError);
  EXPECT_THROW(bytes_of(DType::kQ4_K, 255), base::InternalError);
  EXPECT_THROW(dequantize(DType::kI32, std::vector<uint8_t>(128), out), base::InternalError);
}

}  // namespace
}  // namespace evalrun::engine
