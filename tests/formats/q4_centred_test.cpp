// Codes of 4 bits whose offsets follow from their scales, as in files of Q4_0: the documented
// layout, its bytes, which tensors get it, and results that are those of stored offsets, to the
// bit, on every path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/prepared_rows.h"
#include "engine/cpu/reference_products.h"
#include "engine/model/weight_matrix.h"
#include "tests/engine/random_models.h"
#include "tests/formats/weight_models.h"

namespace evalrun::engine::testing {
namespace {

constexpr size_t kQ40Block = 18, kQ41Block = 20;

std::span<const uint8_t> unsigned_bytes(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

// Rows of Q4_0 with scales of either sign.
std::string q4_0_rows(int64_t n, uint64_t seed) {
  base::Rng rng(seed);
  std::string rows = random_weights(DType::kQ4_0, n, rng);
  for (size_t at = 0; at < rows.size(); at += kQ40Block)
    if (rng.below(2) == 0) rows[at + 1] = static_cast<char>(rows[at + 1] ^ 0x80);
  return rows;
}

// The same with scales at the ends of float16 here and there: both zeros, subnormal ones, the
// largest with an offset, and one whose offset would be infinite, over weights that are all zero.
std::string odd_q4_0_rows(int64_t n, uint64_t seed) {
  constexpr uint16_t kHuge = 0x7BFF;
  constexpr uint16_t kOdd[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x6FFF, 0xEFFF, kHuge};
  base::Rng rng(seed + 1000);
  std::string rows = q4_0_rows(n, seed);
  for (size_t at = 0; at < rows.size(); at += kQ40Block) {
    if (rng.below(3) != 0) continue;
    const uint16_t d = kOdd[static_cast<size_t>(rng.below(std::size(kOdd)))];
    std::memcpy(&rows[at], &d, sizeof d);
    if (d == kHuge) rows.replace(at + 2, 16, 16, '\x88');
  }
  return rows;
}

// The same weights as Q4_1, with -8 times the scale as offset.
std::string as_q4_1(const std::string& q4_0) {
  std::string rows;
  for (size_t at = 0; at < q4_0.size(); at += kQ40Block) {
    uint16_t d;
    std::memcpy(&d, &q4_0[at], sizeof d);
    append<uint16_t>(rows, d);
    append<uint16_t>(rows, float_to_half(-8.0f * half_to_float(d)));
    rows.append(q4_0, at + 2, 16);
  }
  return rows;
}

WeightMatrix matrix_of_rows(WeightStorage storage, DType type, int out, int in,
                            const std::string& rows) {
  WeightMatrix m(storage, out, in);
  const auto size = static_cast<size_t>(bytes_of(type, in));
  for (int o = 0; o < out; ++o)
    m.set_row_exactly(o, type, unsigned_bytes(rows).subspan(static_cast<size_t>(o) * size, size));
  return m;
}

constexpr std::pair<int, int> kQ4Shapes[] = {{1, 32}, {16, 64}, {19, 96}, {33, 320}};

TEST(Q4Centred, HasTheDocumentedLayoutAndTheFilesWeights) {
  for (const auto& [out, in] : kQ4Shapes) {
    const std::string rows = odd_q4_0_rows(int64_t{out} * in, static_cast<uint64_t>(out + in));
    const WeightMatrix m = matrix_of_rows(WeightStorage::kQ4Centred, DType::kQ4_0, out, in, rows);
    const WeightMatrix stored =
        matrix_of_rows(WeightStorage::kQ4Group, DType::kQ4_0, out, in, rows);
    std::vector<float> want(static_cast<size_t>(in)), got(want.size());
    const auto size = static_cast<size_t>(bytes_of(DType::kQ4_0, in));
    for (int o = 0; o < out; ++o) {
      const size_t c = static_cast<size_t>(o % 16);
      dequantize(DType::kQ4_0, unsigned_bytes(rows).subspan(static_cast<size_t>(o) * size, size),
                 want);
      m.copy_row(o, got);
      ASSERT_EQ(got, want) << "row " << o << " of " << out << " x " << in;
      for (int k = 0; k < in; ++k) {
        const size_t i = static_cast<size_t>(k % 64);
        const auto* block = reinterpret_cast<const uint8_t*>(m.panel(o / 16)) +
                            static_cast<size_t>(k / 64) * (512 + 64);
        uint16_t d;
        std::memcpy(&d, block + 512 + (i / 32 * 16 + c) * 2, sizeof d);
        const uint8_t both = block[(i % 32 / 4 * 16 + c) * 4 + i % 4];
        const int code = i < 32 ? both & 15 : both >> 4;
        const float weight = half_to_float(d) * static_cast<float>(code) + -8.0f * half_to_float(d);
        ASSERT_EQ(weight, want[static_cast<size_t>(k)]) << o << " " << k;
        ASSERT_EQ(m.at(o, k), weight) << o << " " << k;
        ASSERT_EQ(m.code(o, k), stored.code(o, k)) << o << " " << k;
        ASSERT_EQ(m.group_scale(o, k / 32), stored.group_scale(o, k / 32)) << o << " " << k;
        ASSERT_EQ(m.group_offset(o, k / 32), stored.group_offset(o, k / 32)) << o << " " << k;
      }
    }
  }
}

TEST(Q4Centred, TakesTheBytesOfTheFile) {
  for (const auto& [out, in] : {std::pair{16, 64}, {576, 1536}, {3072, 8192}}) {
    const size_t bytes = WeightMatrix::bytes_for(WeightStorage::kQ4Centred, out, in);
    EXPECT_EQ(bytes, static_cast<size_t>(bytes_of(DType::kQ4_0, int64_t{out} * in)));
    EXPECT_EQ(bytes / 9 * 10, WeightMatrix::bytes_for(WeightStorage::kQ4Group, out, in));
    EXPECT_EQ(bytes % 64, 0u);
    EXPECT_EQ(WeightMatrix(WeightStorage::kQ4Centred, out, in).size(), bytes);
  }
}

TEST(Q4Centred, RowsAreIndependentAndClearedOnesAreZero) {
  const std::string rows = q4_0_rows(19 * 96, 3);
  const auto size = static_cast<size_t>(bytes_of(DType::kQ4_0, 96));
  WeightMatrix m(WeightStorage::kQ4Centred, 19, 96);
  const std::vector<std::byte> cleared(m.bytes().begin(), m.bytes().end());
  m.set_row_exactly(17, DType::kQ4_0, unsigned_bytes(rows).subspan(17 * size, size));
  std::vector<float> got(96), want(96);
  dequantize(DType::kQ4_0, unsigned_bytes(rows).subspan(17 * size, size), want);
  for (int o = 0; o < 19; ++o) {
    m.copy_row(o, got);
    EXPECT_EQ(got, o == 17 ? want : std::vector<float>(96, 0.0f)) << o;
  }
  m.clear_panel(1);
  EXPECT_TRUE(std::ranges::equal(m.bytes(), cleared));
}

TEST(Q4Centred, IsForTensorsWhoseEveryOffsetFollows) {
  using enum WeightStorage;
  const std::string rows = q4_0_rows(16 * 64, 5);
  EXPECT_EQ(WeightMatrix::storage_of(DType::kQ4_0), kQ4Centred);
  EXPECT_EQ(WeightMatrix::storage_of(DType::kQ4_0, unsigned_bytes(rows)), kQ4Centred);
  EXPECT_EQ(WeightMatrix::storage_of(DType::kQ4_1), kQ4Group);
  const std::string centred = as_q4_1(rows);
  EXPECT_EQ(WeightMatrix::storage_of(DType::kQ4_1, unsigned_bytes(centred)), kQ4Centred);
  // One bit of one offset.
  for (const size_t block : {size_t{0}, size_t{13}, centred.size() / kQ41Block - 1}) {
    std::string other = centred;
    char& low = other[block * kQ41Block + 2];
    low = static_cast<char>(low ^ 1);
    EXPECT_EQ(WeightMatrix::storage_of(DType::kQ4_1, unsigned_bytes(other)), kQ4Group) << block;
    EXPECT_THROW((void)matrix_of_rows(kQ4Centred, DType::kQ4_1, 16, 64, other),
                 base::InternalError);
  }
  const WeightMatrix a = matrix_of_rows(kQ4Centred, DType::kQ4_0, 16, 64, rows),
                     b = matrix_of_rows(kQ4Centred, DType::kQ4_1, 16, 64, centred);
  EXPECT_TRUE(std::ranges::equal(a.bytes(), b.bytes()));
}

TEST(Q4Centred, TakesNoValuesAndConverts) {
  using enum WeightStorage;
  const std::string rows = q4_0_rows(48 * 128, 7);
  WeightMatrix m = matrix_of_rows(kQ4Centred, DType::kQ4_0, 48, 128, rows);
  const WeightMatrix stored = matrix_of_rows(kQ4Group, DType::kQ4_0, 48, 128, rows);
  EXPECT_TRUE(std::ranges::equal(m.converted(kQ4Group).bytes(), stored.bytes()));
  for (const WeightStorage s : {kF32, kBf16, kInt8Channel, kInt8Group})
    EXPECT_TRUE(std::ranges::equal(m.converted(s).bytes(), stored.converted(s).bytes()));
  EXPECT_THROW(m.set_row(0, std::vector<float>(128)), base::InternalError);
  EXPECT_THROW(m.set_row_exactly(0, DType::kQ8_0, std::vector<uint8_t>(136)), base::InternalError);
  EXPECT_EQ(WeightMatrix::storage_for_values(kQ4Centred), kQ4Group);
  EXPECT_EQ(WeightMatrix::largest(kQ4Centred), WeightMatrix::largest(kQ4Group));
  // Copies, those for NUMA nodes among them, are of the same storage and size.
  const WeightMatrix* const one[] = {&m};
  const std::vector<WeightMatrix> room = allocate_like(one);
  EXPECT_EQ(room[0].storage(), kQ4Centred);
  EXPECT_EQ(room[0].size(), m.size());
  EXPECT_TRUE(std::ranges::equal(m.first_rows(16).bytes(), m.bytes().first(m.panel_bytes())));
}

LoadOptions as_format(WeightFormat format) {
  LoadOptions options;
  options.format = format;
  options.need_tokenizer = false;
  return options;
}

TEST(Q4Centred, FilesOfQ40AreReadInAsManyBytes) {
  const TempFolder folder;
  const std::string path = write_gguf(folder, "m.gguf", {.type = DType::kQ4_0, .vocabulary = 48});
  const GgufFile file(path);
  for (const WeightFormat format :
       {WeightFormat::kAuto, WeightFormat::kQ4, WeightFormat::kStored}) {
    const auto model = load_model(path, as_format(format));
    for (const auto& [name, m] : matrices_of(*model)) {
      if (model->format() == WeightFormat::kQ4 && name == "token_embd.weight") {
        EXPECT_EQ(m->storage(), WeightStorage::kInt8Group);
        continue;
      }
      EXPECT_EQ(m->storage(), WeightStorage::kQ4Centred) << name;
      EXPECT_EQ(m->size(), file.tensors().at(name).bytes.size()) << name;
    }
  }
}

// Tensor by tensor: of a file of Q4_1 one has no offsets of its own; then one of these is another.
TEST(Q4Centred, OneOtherOffsetKeepsAllOfItsTensor) {
  const TempFolder folder;
  const std::string name = "blk.1.ffn_up.weight";
  for (const bool differs : {false, true}) {
    std::string tensor = as_q4_1(q4_0_rows(512 * 256, 9));
    char& low = tensor[tensor.size() - kQ41Block + 2];
    if (differs) low = static_cast<char>(low ^ 1);
    const std::string path =
        write_gguf(folder, "m.gguf", {.type = DType::kQ4_1, .damaged = name, .damage = tensor});
    const auto model = load_model(path, as_format(WeightFormat::kQ4));
    EXPECT_EQ(model->layer(0).up.storage(), WeightStorage::kQ4Group);
    EXPECT_EQ(model->layer(1).gate.storage(), WeightStorage::kQ4Group);
    const WeightMatrix& up = model->layer(1).up;
    ASSERT_EQ(up.out(), 512);
    ASSERT_EQ(up.in(), 256);
    EXPECT_EQ(up.storage(), differs ? WeightStorage::kQ4Group : WeightStorage::kQ4Centred);
    EXPECT_EQ(up.size(), differs ? tensor.size() : tensor.size() / kQ41Block * kQ40Block);
    std::vector<float> got(256), want(256);
    const auto size = static_cast<size_t>(bytes_of(DType::kQ4_1, 256));
    for (int o = 0; o < 512; ++o) {
      up.copy_row(o, got);
      dequantize(DType::kQ4_1, unsigned_bytes(tensor).subspan(static_cast<size_t>(o) * size, size),
                 want);
      ASSERT_EQ(got, want) << o;
    }
  }
}

class Q4CentredKernels : public ::testing::TestWithParam<cpu::Kernels> {};

std::vector<float> product_of(const cpu::Kernels& k, const WeightMatrix& w,
                              const cpu::PreparedRows& in, int rows, bool one_stream) {
  base::AlignedVector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(w.out()));
  cpu::multiply(k, w.storage(),
                {in.view(w), rows, w.panel(0), w.panel_bytes(), w.panels(), w.in(), w.out(),
                 y.data(), w.out(), one_stream});
  return {y.begin(), y.end()};
}

TEST_P(Q4CentredKernels, ProductsHaveTheBitsOfStoredOffsets) {
  const cpu::Kernels& k = GetParam();
  constexpr int kRows = 32;
  // 27 panels, the last partial; inputs that end in a block, and that do not fill one.
  for (const auto& [out, in] : {std::pair{27 * 16 - 5, 192}, {13 * 16, 96}, {7, 320}}) {
    const std::string rows = odd_q4_0_rows(int64_t{out} * in, static_cast<uint64_t>(in));
    const WeightMatrix centred =
        matrix_of_rows(WeightStorage::kQ4Centred, DType::kQ4_0, out, in, rows);
    const WeightMatrix stored =
        matrix_of_rows(WeightStorage::kQ4Group, DType::kQ4_0, out, in, rows);
    cpu::PreparedRows prepared;
    prepared.ensure(k, centred.storage(), kRows, in);
    std::vector<float> reference;
    int n_wide = 0;
    for (int r = 0; r < kRows; ++r) {
      const std::vector<float> x = random_floats(in, static_cast<uint64_t>(r));
      prepared.set(static_cast<size_t>(r), centred, x.data());
      n_wide += prepared.view(centred).headers[r].n_wide;
      const std::vector<float> y = cpu::reference_product(centred, x);
      ASSERT_TRUE(same_bits(y, cpu::reference_product(stored, x))) << r;
      reference.insert(reference.end(), y.begin(), y.end());
    }
    EXPECT_GT(n_wide, 0);
    for (int n = 1; n <= kRows; ++n)
      for (const bool one_stream : {false, true}) {
        if (one_stream && n > 2) continue;  // of no matter to more rows
        const std::vector<float> y = product_of(k, centred, prepared, n, one_stream);
        ASSERT_TRUE(same_bits(y, product_of(k, stored, prepared, n, one_stream)))
            << out << " x " << in << ", " << n << " rows";
        ASSERT_TRUE(same_bits(y, {reference.data(), y.size()}))
            << out << " x " << in << ", " << n << " rows";
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Q4CentredKernels,
                         ::testing::ValuesIn(cpu::available_kernels().begin(),
                                             cpu::available_kernels().end()),
                         [](const auto& path) { return as_test_name(path.param.name); });

class Q4CentredModel : public ::testing::TestWithParam<std::string> {};

TEST_P(Q4CentredModel, HasTheBitsOfStoredOffsets) {
  const TempFolder folder;
  constexpr int kVocabulary = 101;
  const auto model = load_model(
      write_gguf(folder, "m.gguf", {.type = DType::kQ4_0, .vocabulary = kVocabulary, .seed = 4}),
      as_format(WeightFormat::kQ4));
  const auto stored = convert_model(*model, WeightFormat::kQ4);
  ASSERT_EQ(model->layer(1).down.storage(), WeightStorage::kQ4Centred);
  ASSERT_EQ(stored->layer(1).down.storage(), WeightStorage::kQ4Group);
  const auto prompt = random_tokens(30, kVocabulary, 11);
  auto reference = open(stored, "reference", 1, 64);
  reference->prefill(prompt);
  for (const int rows : {1, 32}) {
    const auto tree = random_tree(rows, kVocabulary, 5);
    const ForwardResult want = reference->forward({.rows = tree});
    for (const auto& m : {model, stored}) {
      auto session = open(m, GetParam(), 2, 64);
      session->prefill(prompt);
      const ForwardResult got = session->forward({.rows = tree});
      for (int i = 0; i < rows; ++i) {
        ASSERT_TRUE(same_bits(got.logits_row(i), want.logits_row(i))) << i << " of " << rows;
        ASSERT_TRUE(same_bits(got.hidden_row(i), want.hidden_row(i))) << i << " of " << rows;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Q4CentredModel, ::testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return as_test_name(isa.param); });

}  // namespace
}  // namespace evalrun::engine::testing
