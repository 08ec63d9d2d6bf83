// Widening of every storage type: bit for bit what the gguf package computes, and every
// half-precision number there is.
#include "engine/formats/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/formats/gguf.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine {
namespace {

using testing::data_path;

constexpr size_t kValues = 1024, kRow = 256;  // of each type in the fixture

// All that the gguf package widens: no Q1_0.
std::vector<DType> types_in_fixture() {
  std::vector<DType> types;
  for (int t = 0; t < static_cast<int>(DType::kI32); ++t)
    if (static_cast<DType>(t) != DType::kQ1_0) types.push_back(static_cast<DType>(t));
  return types;
}

TEST(Dtype, EveryTypeEqualsTheGgufPackageBitForBit) {
  const GgufFile file(data_path("dequant.gguf"));
  for (const DType t : types_in_fixture()) {
    const std::string name(dtype_name(t));
    SCOPED_TRACE(name);
    ASSERT_TRUE(file.tensors().contains(name));
    const GgufTensor& stored = file.tensors().at(name);
    const GgufTensor& expected = file.tensors().at(name + ".expected");
    ASSERT_EQ(stored.dtype, t);
    ASSERT_EQ(expected.dtype, DType::kF32);
    ASSERT_EQ(expected.bytes.size(), kValues * sizeof(float));
    std::vector<float> values(kValues);
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
  for (const DType t : types_in_fixture()) {
    const GgufTensor& stored = file.tensors().at(std::string(dtype_name(t)));
    std::vector<float> whole(kValues), part(kRow + 1, 7.0f);
    dequantize(t, stored.bytes, whole);
    const auto bytes = static_cast<size_t>(bytes_of(t, kRow));
    for (size_t row = 0; row < kValues / kRow; ++row) {
      dequantize(t, stored.bytes.subspan(row * bytes, bytes), std::span(part).first(kRow));
      EXPECT_EQ(0, std::memcmp(part.data(), whole.data() + row * kRow, kRow * sizeof(float)))
          << dtype_name(t) << " row " << row;
      EXPECT_EQ(part[kRow], 7.0f) << dtype_name(t) << " writes past the row";
    }
  }
}

// Every point of every grid, every byte of TQ1_0, every scale of MXFP4 and NVFP4 that is a number.
TEST(Dtype, EveryEntryOfEveryTableEqualsTheGgufPackage) {
  const GgufFile file(data_path("dequant.gguf"));
  int swept = 0;
  for (const DType t : types_in_fixture()) {
    const std::string name = std::string(dtype_name(t)) + ".sweep";
    if (!file.tensors().contains(name)) continue;
    ++swept;
    const std::span<const uint8_t> stored = file.tensors().at(name).bytes;
    std::vector<float> values(stored.size() / static_cast<size_t>(block_bytes(t)) *
                              static_cast<size_t>(block_length(t)));
    dequantize(t, stored, values);
    EXPECT_EQ(base::sha256_hex(
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}),
              file.text(name + ".sha256"))
        << name;
  }
  EXPECT_EQ(swept, 10);
}

// A weight's code takes most of its share of a block, and of types with weights it has bits.
TEST(Dtype, CodesHaveTheBitsThatTheirNamesSay) {
  EXPECT_EQ(code_bits(DType::kQ4_1), 4);
  EXPECT_EQ(code_bits(DType::kMXFP4), 4);
  EXPECT_EQ(code_bits(DType::kQ5_1), 5);
  EXPECT_EQ(code_bits(DType::kBF16), 16);
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    const auto t = static_cast<DType>(i);
    if (t >= DType::kI32) {
      EXPECT_EQ(code_bits(t), 0) << dtype_name(t);
      continue;
    }
    const double share = 8.0 * static_cast<double>(block_bytes(t)) / block_length(t);
    EXPECT_LE(code_bits(t), share) << dtype_name(t);
    EXPECT_GE(code_bits(t), 0.57 * share) << dtype_name(t);
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

TEST(Dtype, Q10ByHand) {
  std::vector<uint8_t> block(18, 0);
  block[1] = 0xBC;  // -1.0
  block[2] = 0x05;  // weights 0 and 2
  block[17] = 0x80;
  std::vector<float> w(128);
  dequantize(DType::kQ1_0, block, w);
  for (size_t i = 0; i < w.size(); ++i)
    EXPECT_EQ(w[i], i == 0 || i == 2 || i == 127 ? -1.0f : 1.0f) << i;
}

// The package reads these for 2^128 and for 0 or 480.
TEST(Dtype, ScalesThatTheirStandardsCallNoNumberAreNone) {
  std::vector<uint8_t> block(17, 0);
  std::vector<float> w(32);
  block[0] = 255;
  dequantize(DType::kMXFP4, block, w);
  for (const float x : w) EXPECT_TRUE(std::isnan(x));
  block[0] = 254;
  dequantize(DType::kMXFP4, block, w);
  for (const float x : w) EXPECT_EQ(x, 0.0f);

  w.resize(64);
  for (const uint8_t scale : {0x7F, 0xFF}) {
    block.assign(36, 0);
    block[2] = scale;
    dequantize(DType::kNVFP4, block, w);
    for (size_t i = 0; i < w.size(); ++i) EXPECT_EQ(std::isnan(w[i]), i / 16 == 2) << i;
  }
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
  for (const DType t : {DType::kU8, DType::kI8, DType::kBool}) EXPECT_EQ(bytes_of(t, 3), 3);
  for (int t = static_cast<int>(DType::kQ8_0); t < static_cast<int>(DType::kI32); ++t) {
    const int length = block_length(static_cast<DType>(t));
    EXPECT_THROW(bytes_of(static_cast<DType>(t), length - 1), base::InternalError) << t;
    EXPECT_EQ(bytes_of(static_cast<DType>(t), 3 * length), 3 * block_bytes(static_cast<DType>(t)));
  }
  EXPECT_THROW(dequantize(DType::kI32, std::vector<uint8_t>(128), out), base::InternalError);
}

}  // namespace
}  // namespace evalrun::engine
