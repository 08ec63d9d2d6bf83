// Matrices of K-quants: the documented layout, the weights of the file to the bit, memory, and what
// such a matrix refuses.
#include "engine/model/k_panels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/low_rank.h"
#include "engine/model/weight_matrix.h"
#include "tests/formats/weight_models.h"

namespace evalrun::engine {
namespace {

constexpr DType kKTypes[] = {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
constexpr std::pair<int, int> kKShapes[] = {{1, 256}, {16, 512}, {19, 768}, {33, 256}};

struct FileMatrix {
  DType type;
  int out, in;
  std::string bytes;
  std::span<const uint8_t> row(int o) const {
    const auto size = static_cast<size_t>(bytes_of(type, in));
    return {reinterpret_cast<const uint8_t*>(bytes.data()) + static_cast<size_t>(o) * size, size};
  }
  std::vector<float> weights(int o) const {
    std::vector<float> w(static_cast<size_t>(in));
    dequantize(type, row(o), w);
    return w;
  }
  WeightMatrix matrix() const {
    WeightMatrix m(WeightMatrix::storage_of(type), out, in);
    for (int o = 0; o < out; ++o) m.set_row_exactly(o, type, row(o));
    return m;
  }
};
FileMatrix random_file_matrix(DType type, int out, int in, uint64_t seed) {
  base::Rng rng(seed);
  return {type, out, in, testing::random_weights(type, int64_t{out} * in, rng)};
}

// The weight of (o, k) found in the bytes by the words of k_panels.h alone.
float documented_k(const WeightMatrix& m, int o, int k) {
  const int bits = k_bits(m.storage());
  const size_t parts = 512 + (bits == 5   ? 128
                              : bits == 6 ? 256
                                          : 0),
               c = static_cast<size_t>(o % 16);
  const auto* block = reinterpret_cast<const uint8_t*>(m.panel(o / 16)) +
                      static_cast<size_t>(k / 256) * (320 + 4 * parts);
  const auto half = [&](size_t at) {
    uint16_t h;
    std::memcpy(&h, block + at + 2 * c, 2);
    return half_to_float(h);
  };
  const size_t i = static_cast<size_t>(k % 256), in_part = i % 64;
  const uint8_t* part = block + 320 + i / 64 * parts;
  const uint8_t both = part[(in_part % 32 / 4 * 16 + c) * 4 + i % 4];
  int code = in_part < 32 ? both & 15 : both >> 4;
  if (bits == 5)  // [2][16][4] after the nibbles
    code |= (part[512 + (in_part / 32 * 16 + c) * 4 + i % 4] >> (in_part % 32 / 4) & 1) << 4;
  if (bits == 6)  // [4][16][4]
    code |= (part[512 + (in_part / 16 * 16 + c) * 4 + i % 4] >> (in_part % 16 / 4 * 2) & 3) << 4;
  if (bits == 6)
    return half(256) * static_cast<float>(static_cast<int8_t>(block[i / 16 * 16 + c])) *
           static_cast<float>(code - 32);
  const uint8_t minimum = block[128 + (i / 64 * 16 + c) * 2 + i / 32 % 2];
  return half(256) * static_cast<float>(block[i / 32 * 16 + c]) * static_cast<float>(code) +
         half(288) * static_cast<float>(minimum);
}

TEST(KPanels, HaveTheDocumentedLayoutAndTheFilesWeights) {
  for (const DType type : kKTypes) {
    for (const auto& [out, in] : kKShapes) {
      const FileMatrix file = random_file_matrix(type, out, in, static_cast<uint64_t>(in + out));
      const WeightMatrix m = file.matrix();
      std::vector<float> row(static_cast<size_t>(in));
      for (int o = 0; o < out; ++o) {
        const std::vector<float> want = file.weights(o);
        m.copy_row(o, row);
        for (int k = 0; k < in; ++k) {
          const auto bits = std::bit_cast<uint32_t>(want[static_cast<size_t>(k)]);
          ASSERT_EQ(std::bit_cast<uint32_t>(row[static_cast<size_t>(k)]), bits) << o << " " << k;
          ASSERT_EQ(std::bit_cast<uint32_t>(documented_k(m, o, k)), bits) << o << " " << k;
          if (k % 37 == 0) {
            ASSERT_EQ(std::bit_cast<uint32_t>(m.at(o, k)), bits) << o << " " << k;
          }
        }
        const KBlock got = m.k_block(o, in / 256 - 1);
        const auto size = static_cast<size_t>(block_bytes(type));
        const KBlock stored = unpack_k_block(type, file.row(o).last(size));
        EXPECT_EQ(got.d, stored.d);
        EXPECT_EQ(got.dmin, stored.dmin);
        EXPECT_EQ(got.scale, stored.scale);
        EXPECT_EQ(got.min, stored.min);
        EXPECT_EQ(got.code, stored.code);
      }
    }
  }
}

TEST(KPanels, TakeAtMostAFewPercentMoreThanTheFile) {
  for (const DType type : kKTypes) {
    const auto bytes =
        static_cast<double>(WeightMatrix::bytes_for(WeightMatrix::storage_of(type), 2048, 8192));
    const auto in_file = static_cast<double>(bytes_of(type, int64_t{2048} * 8192));
    EXPECT_GE(bytes, in_file);
    EXPECT_LE(bytes, 1.03 * in_file) << dtype_name(type);
    EXPECT_EQ(WeightMatrix::bytes_for(WeightMatrix::storage_of(type), 16, 256) % 64, 0u);
  }
}

TEST(KPanels, RowsAreIndependentAndClearedOnesAreZero) {
  for (const DType type : kKTypes) {
    const FileMatrix file = random_file_matrix(type, 19, 512, 3);
    WeightMatrix m(WeightMatrix::storage_of(type), 19, 512);
    const std::vector<std::byte> cleared(m.bytes().begin(), m.bytes().end());
    std::vector<float> row(512);
    m.set_row_exactly(17, type, file.row(17));
    for (int o = 0; o < 19; ++o) {
      m.copy_row(o, row);
      EXPECT_EQ(row, o == 17 ? file.weights(17) : std::vector<float>(512, 0.0f)) << o;
    }
    m.set_row_exactly(17, type, file.row(3));
    m.copy_row(17, row);
    EXPECT_EQ(row, file.weights(3)) << "leaves nothing of the first row behind";
    m.clear_panel(1);
    EXPECT_TRUE(std::ranges::equal(m.bytes(), cleared));
  }
}

TEST(KPanels, ConvertToEveryOtherStorageAndFromNone) {
  for (const DType type : kKTypes) {
    const FileMatrix file = random_file_matrix(type, 17, 256, 5);
    const WeightMatrix m = file.matrix();
    for (const WeightStorage s :
         {WeightStorage::kF32, WeightStorage::kBf16, WeightStorage::kInt8Channel,
          WeightStorage::kInt8Group, WeightStorage::kQ4Group}) {
      WeightMatrix want(s, 17, 256);
      for (int o = 0; o < 17; ++o) want.set_row(o, file.weights(o));
      EXPECT_TRUE(std::ranges::equal(m.converted(s).bytes(), want.bytes()));
    }
    WeightMatrix to(m.storage(), 17, 256);
    EXPECT_THROW(to.set_row(0, file.weights(0)), base::InternalError);
    EXPECT_THROW(WeightMatrix(m.storage(), 17, 320), base::InternalError);
    for (const DType other : kKTypes)
      if (other != type) {
        EXPECT_THROW(to.set_row_exactly(0, other, file.row(0)), base::InternalError);
      }
    EXPECT_THROW(to.set_row_exactly(0, type, file.row(0).first(100)), base::InternalError);
    EXPECT_EQ(WeightMatrix::storage_for_values(m.storage()), WeightStorage::kInt8Group);
  }
  EXPECT_EQ(WeightMatrix::storage_for_values(WeightStorage::kBf16), WeightStorage::kBf16);
  EXPECT_EQ(WeightMatrix::storage_of(DType::kQ4_1), WeightStorage::kQ4Group);
  EXPECT_EQ(WeightMatrix::storage_of(DType::kQ8_0), WeightStorage::kInt8Group);
  EXPECT_EQ(WeightMatrix::storage_of(DType::kF16), WeightStorage::kInt8Group);
}

TEST(KPanels, TheFirstRowsAreTheSameWeights) {
  const FileMatrix file = random_file_matrix(DType::kQ5_K, 40, 256, 7);
  const WeightMatrix m = file.matrix();
  for (const int n : {1, 16, 23, 40}) {
    const WeightMatrix part = m.first_rows(n);
    ASSERT_EQ(part.out(), n);
    EXPECT_EQ(part.storage(), m.storage());
    std::vector<float> row(256);
    for (int o = 0; o < n; ++o) {
      part.copy_row(o, row);
      EXPECT_EQ(row, file.weights(o));
    }
  }
  EXPECT_THROW((void)m.first_rows(0), base::InternalError);
  EXPECT_THROW((void)m.first_rows(41), base::InternalError);
}

// An update of weights as stored: what is no longer the file's is int8, the rest stays.
TEST(KPanels, MergedUpdatesAreEightBits) {
  const testing::TempFolder folder;
  LoadOptions options;
  options.format = WeightFormat::kStored;
  options.need_tokenizer = false;
  const auto model =
      load_model(testing::write_gguf(folder, "m.gguf", {.type = DType::kQ4_K, .seed = 9}), options);
  LowRankDelta delta;
  delta.layers.resize(2);
  LowRankFactor& f = delta.layers[1].o;
  f.a = WeightMatrix(1, 256), f.b = WeightMatrix(256, 1);
  f.scale = 1;
  std::vector<float> a(256, 0.0f), one = {0.25f};
  a[3] = 1;
  f.a.set_row(0, a);
  for (int o = 0; o < 256; ++o) f.b.set_row(o, one);
  const auto merged = merge_low_rank(*model, delta, "merged", "", 1);
  EXPECT_EQ(merged->layer(0).o.storage(), WeightStorage::kQ4K);
  EXPECT_EQ(merged->layer(1).q.storage(), WeightStorage::kQ4K);
  ASSERT_EQ(merged->layer(1).o.storage(), WeightStorage::kInt8Group);
  std::vector<float> before(256), after(256);
  for (int o = 0; o < 256; ++o) {
    model->layer(1).o.copy_row(o, before);
    merged->layer(1).o.copy_row(o, after);
    for (size_t k = 0; k < 256; ++k)
      ASSERT_NEAR(after[k], before[k] + (k == 3 ? 0.25f : 0.0f), 0.01f) << o << " " << k;
  }
}

}  // namespace
}  // namespace evalrun::engine
