// The GGUF reader on well-formed files and on every way a header can lie.
#include "engine/formats/gguf.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/formats/gguf_types.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine {
namespace {

using testing::append;
using testing::append_text;
using testing::expect_data_error;
using testing::GgufBuilder;
using testing::TempFolder;

class Gguf : public ::testing::Test {
 protected:
  GgufFile open(const GgufBuilder& b) { return open(b.bytes()); }
  GgufFile open(const std::string& bytes) { return GgufFile(folder_.write("t.gguf", bytes)); }
  void refuse(const GgufBuilder& b, const std::vector<std::string>& parts) {
    refuse(b.bytes(), parts);
  }
  void refuse(const std::string& bytes, std::vector<std::string> parts) {
    parts.push_back("t.gguf");  // every message names the file
    expect_data_error([&] { open(bytes); }, parts);
  }
  TempFolder folder_;
};

GgufBuilder small() {
  GgufBuilder b;
  b.text("general.architecture", "x");
  b.tensor("a", {4, 2}, 0, 0).tensor("b", {32}, 8, 32).data(std::string(32 + 34, '\1'));
  return b;
}

TEST_F(Gguf, TensorsOfWholeNumbersHaveTheirTypes) {
  GgufBuilder b;
  b.tensor("i", {4}, 26, 0).tensor("l", {4}, 27, 32).data(std::string(64, '\1'));
  const GgufFile f = open(b);
  EXPECT_EQ(f.tensors().at("i").dtype, DType::kI32);
  EXPECT_EQ(f.tensors().at("l").dtype, DType::kI64);
}

TEST_F(Gguf, ReadsScalarsOfEveryType) {
  GgufBuilder b;
  b.scalar<uint8_t>("u8", GgufBuilder::kU8, 200).scalar<int8_t>("i8", GgufBuilder::kI8, -100);
  b.scalar<uint16_t>("u16", GgufBuilder::kU16, 60000)
      .scalar<int16_t>("i16", GgufBuilder::kI16, -30000);
  b.scalar<uint32_t>("u32", GgufBuilder::kU32, 4000000000u)
      .scalar<int32_t>("i32", GgufBuilder::kI32, -5);
  b.scalar<uint64_t>("u64", GgufBuilder::kU64, 1ull << 62)
      .scalar<int64_t>("i64", GgufBuilder::kI64, -7);
  b.scalar<float>("f32", GgufBuilder::kF32, 0.5f).scalar<double>("f64", GgufBuilder::kF64, 0.25);
  b.scalar<uint8_t>("yes", GgufBuilder::kBool, 1).text("s", "text");
  const GgufFile f = open(b);
  EXPECT_EQ(f.integer("u8"), 200);
  EXPECT_EQ(f.integer("i8"), -100);
  EXPECT_EQ(f.integer("u16"), 60000);
  EXPECT_EQ(f.integer("i16"), -30000);
  EXPECT_EQ(f.integer("u32"), 4000000000);
  EXPECT_EQ(f.integer("i32"), -5);
  EXPECT_EQ(f.integer("u64"), int64_t{1} << 62);
  EXPECT_EQ(f.integer("i64"), -7);
  EXPECT_EQ(f.number("f32"), 0.5);
  EXPECT_EQ(f.number("f64"), 0.25);
  EXPECT_EQ(f.number("i32"), -5.0);  // integers are numbers
  EXPECT_TRUE(f.boolean_or("yes", false));
  EXPECT_EQ(f.text("s"), "text");
  EXPECT_EQ(f.integer_or("none", 3), 3);
  EXPECT_EQ(f.text_or("none", "d"), "d");
}

TEST_F(Gguf, ReadsArrays) {
  std::string texts, numbers, floats;
  append_text(texts, "ab");
  append_text(texts, "");
  for (const int32_t v : {3, -1, 1}) append(numbers, v);
  append(floats, 1.5f);
  std::string unsigned_numbers;
  for (const uint64_t v : {7ull, 1ull << 40}) append(unsigned_numbers, v);
  GgufBuilder b;
  b.array("u", GgufBuilder::kU64, 2, unsigned_numbers);
  b.array("t", GgufBuilder::kString, 2, texts).array("n", GgufBuilder::kI32, 3, numbers);
  b.array("f", GgufBuilder::kF32, 1, floats).array("e", GgufBuilder::kU8, 0, "");
  const GgufFile f = open(b);
  EXPECT_EQ(f.texts("t"), (std::vector<std::string>{"ab", ""}));
  EXPECT_EQ(f.integers("n"), (std::vector<int64_t>{3, -1, 1}));
  EXPECT_EQ(f.integers("u"), (std::vector<int64_t>{7, 1ll << 40}));
  EXPECT_EQ(f.numbers("f"), (std::vector<double>{1.5}));
  EXPECT_TRUE(f.integers("e").empty());
}

TEST_F(Gguf, ReadsTensorsOfBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder b = small();
    b.version = version;
    const GgufFile f = open(b);
    ASSERT_EQ(f.tensors().size(), 2u);
    const GgufTensor& a = f.tensors().at("a");
    EXPECT_EQ(a.row_length(), 4);
    EXPECT_EQ(a.rows(), 2);
    EXPECT_EQ(a.bytes.size(), 32u);
    EXPECT_EQ(f.tensors().at("b").dtype, DType::kQ8_0);
    EXPECT_EQ(f.tensors().at("b").bytes.data() - a.bytes.data(), 32);
  }
}

TEST_F(Gguf, HonoursTheAlignmentKey) {
  GgufBuilder b;
  b.alignment = 128;
  b.scalar<uint32_t>("general.alignment", GgufBuilder::kU32, 128);
  b.tensor("a", {2}, 0, 0).tensor("b", {2}, 0, 128).data(std::string(136, '\2'));
  const GgufFile f = open(b);
  EXPECT_EQ((f.tensors().at("a").bytes.data() - f.file()->bytes().data()) % 128, 0);
  EXPECT_EQ(f.tensors().at("b").bytes.size(), 8u);
  for (const uint32_t bad : {0u, 3u, 1u << 30}) {
    GgufBuilder wrong = small();
    wrong.scalar<uint32_t>("general.alignment", GgufBuilder::kU32, bad);
    refuse(wrong, {"general.alignment"});
  }
}

TEST_F(Gguf, RefusesWhatIsNotGguf) {
  refuse(std::string(), {"magic"});
  refuse(std::string("GG"), {"magic"});
  GgufBuilder b = small();
  b.magic = 0x12345678;
  refuse(b, {"not a GGUF file"});
  b = small();
  b.version = 1;
  refuse(b, {"version 1"});
  b.version = 0x03000000;
  refuse(b, {"big-endian"});
  expect_data_error([&] { GgufFile(folder_.file("absent.gguf")); }, {"absent.gguf", "hint"});
  expect_data_error([&] { GgufFile(folder_.path()); }, {"folder"});
}

TEST_F(Gguf, RefusesCountsAndLengthsBeyondTheFile) {
  for (const int64_t lie : {int64_t{1000}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    GgufBuilder b = small();
    b.n_tensors = lie;
    refuse(b, {"number of tensors", "left in the file"});
    b = small();
    b.n_keys = lie;
    refuse(b, {"number of metadata keys", "left in the file"});
    b = small();
    b.array("many", GgufBuilder::kU32, static_cast<uint64_t>(lie), "");
    refuse(b, {"many", "left in the file"});
  }
  GgufBuilder b;
  std::string length;
  append<uint64_t>(length, ~0ull);
  b.array("s", GgufBuilder::kString, 1, length);
  refuse(b, {"'s'", "left in the file"});
}

TEST_F(Gguf, RefusesBadMetadata) {
  GgufBuilder b = small();
  b.text("general.architecture", "y");
  refuse(b, {"general.architecture", "twice"});
  b = small();
  b.scalar<uint32_t>("odd", 13, 0);
  refuse(b, {"odd", "unknown value type 13"});
  b = small();
  b.scalar<uint8_t>("flag", GgufBuilder::kBool, 2);
  refuse(b, {"flag", "0 or 1"});
  b = small();
  b.array("nested", GgufBuilder::kArray, 1, std::string(12, '\0'));
  refuse(b, {"nested", "array of arrays"});
  b = small();
  b.text("", "v");
  refuse(b, {"no name"});
}

TEST_F(Gguf, NamesAreMadePrintable) {
  GgufBuilder b = small();
  b.scalar<uint32_t>("bad\x1b[31m\xff" + std::string(500, 'k'), 99, 0);
  try {
    open(b);
    FAIL();
  } catch (const base::Error& error) {
    for (const char c : std::string(error.what()))
      EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7F)) << static_cast<int>(c);
  }
}

TEST_F(Gguf, RefusesBadTensors) {
  const std::string data(64, '\0');
  const auto with = [&](const std::vector<uint64_t>& ne, uint32_t type, uint64_t offset) {
    GgufBuilder b;
    b.tensor("w", ne, type, offset).data(data);
    return b;
  };
  refuse(with({4}, 15, 0), {"'w'", "Q8_K", "not supported", "Q4_K", "IQ4_XS"});
  refuse(with({4}, 31, 0), {"'w'", "Q4_0_4_4", "not supported", "Q4_0"});
  refuse(with({4}, 77, 0), {"'w'", "unknown type 77"});
  refuse(with({4, 1, 1, 1, 1}, 0, 0), {"'w'", "dimensions"});
  refuse(with({0}, 0, 0), {"'w'", "impossible dimension"});
  refuse(with({1ull << 40, 1ull << 40}, 0, 0), {"'w'", "impossible dimension"});
  refuse(with({~0ull}, 0, 0), {"'w'", "impossible dimension"});
  refuse(with({33}, 8, 0), {"'w'", "multiple of 32", "quantise the model again"});
  refuse(with({17}, 0, 0), {"'w'", "beyond the end"});
  refuse(with({4}, 0, 96), {"'w'", "beyond the end"});
  refuse(with({4}, 0, 1ull << 63), {"'w'", "beyond the end"});
  refuse(with({4}, 0, 16), {"'w'", "multiple of 32"});
  GgufBuilder twice;
  twice.tensor("w", {4}, 0, 0).tensor("w", {4}, 0, 32).data(data);
  refuse(twice, {"'w'", "twice"});
  GgufBuilder overlap;
  overlap.tensor("w", {9}, 0, 0).tensor("v", {4}, 0, 32).data(data);
  refuse(overlap, {"'v'", "overlap", "'w'"});
  GgufBuilder nameless;
  nameless.tensor("", {4}, 0, 0).data(data);
  refuse(nameless, {"no name"});
}

TEST(GgufTypes, HaveTheNumbersOfGgml) {
  const std::vector<std::pair<uint32_t, std::string>> unread = {
      {4, "Q4_2"},        {5, "Q4_3"},        {9, "Q8_1"},       {15, "Q8_K"},     {24, "I8"},
      {25, "I16"},        {28, "F64"},        {31, "Q4_0_4_4"},  {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"},
      {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}};
  for (const auto& [id, name] : unread) {
    ASSERT_NE(gguf_type(id), nullptr) << id;
    EXPECT_EQ(gguf_type(id)->name, name);
    EXPECT_FALSE(gguf_type(id)->dtype) << name;
  }
  // The fixture holds the others under their numbers.
  ASSERT_NE(gguf_type(41), nullptr);
  EXPECT_EQ(gguf_type(41)->dtype, DType::kQ1_0);
  EXPECT_EQ(gguf_type(42), nullptr);
  EXPECT_EQ(gguf_types_read(),
            "supported: F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, "
            "IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_S, IQ4_XS, IQ1_M, BF16, TQ1_0, "
            "TQ2_0, MXFP4, NVFP4, Q1_0; quantise the model again to one of these");
}

// The last block a byte short, rows that are no whole blocks, and one value too many.
TEST_F(Gguf, QuantisedTensorsAreWholeBlocksInRows) {
  int types = 0;
  for (uint32_t id = 0; id < 64; ++id) {
    const GgufType* type = gguf_type(id);
    if (type == nullptr || !type->dtype || block_length(*type->dtype) == 1) continue;
    ++types;
    SCOPED_TRACE(type->name);
    EXPECT_EQ(type->name, dtype_name(*type->dtype));
    const auto length = static_cast<uint64_t>(block_length(*type->dtype));
    const auto bytes = static_cast<size_t>(3 * block_bytes(*type->dtype));
    const auto with = [&](const std::vector<uint64_t>& ne, size_t n) {
      GgufBuilder b;
      b.tensor("w", ne, id, 0).data(std::string(n, '\0'));
      return b;
    };
    EXPECT_EQ(open(with({length, 3}, bytes)).tensors().at("w").bytes.size(), bytes);
    refuse(with({length, 3}, bytes - 1), {"'w'", fmt::format("its {} bytes", bytes), "truncated"});
    const std::string what = fmt::format("not a multiple of {} as {} needs", length, type->name);
    refuse(with({length / 2, 6}, bytes), {"'w'", what, "quantise the model again"});
    refuse(with({length + 1, 3}, bytes), {"'w'", what});
  }
  EXPECT_EQ(types, 24);
}

TEST_F(Gguf, TypedAccessNamesTheKey) {
  GgufBuilder b = small();
  b.scalar<int32_t>("n", GgufBuilder::kI32, 4).scalar<uint64_t>("big", GgufBuilder::kU64, ~0ull);
  b.scalar<float>("f", GgufBuilder::kF32, 1.0f).array("a", GgufBuilder::kI32, 0, "");
  const GgufFile f = open(b);
  expect_data_error([&] { f.text("n"); }, {"n", "must be a text, not an integer"});
  expect_data_error([&] { f.integer("f"); }, {"f", "must be an integer, not a number"});
  expect_data_error([&] { f.integer("big"); }, {"big", "out of range"});
  expect_data_error([&] { f.integer_or("general.architecture", 1); }, {"must be an integer"});
  expect_data_error([&] { f.number("a"); }, {"must be a number, not an array of integers"});
  expect_data_error([&] { f.boolean_or("n", true); }, {"must be a boolean"});
  expect_data_error([&] { f.texts("a"); }, {"must be an array of texts"});
  expect_data_error([&] { f.integers("gone"); }, {"gone", "is missing"});
}

}  // namespace
}  // namespace evalrun::engine
