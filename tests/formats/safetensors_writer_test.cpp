// What is written comes back through the reader, bit for bit.
#include "engine/formats/safetensors_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "engine/formats/safetensors.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine {
namespace {

using testing::expect_data_error;
using testing::TempFolder;

TEST(SafeTensorsWriter, RoundTrip) {
  const std::vector<uint8_t> bytes = {7, 0, 255};
  const std::vector<uint16_t> halves = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> ints = {-1, 2147483647};
  const std::vector<int64_t> longs = {-5, int64_t{1} << 40, 0};
  const std::vector<float> none;
  const std::vector<TensorToWrite> tensors = {
      {"u8", DType::kU8, {3}, bytes_of_values(bytes)},
      {"bf16", DType::kBF16, {2, 3}, bytes_of_values(halves)},
      {"i32", DType::kI32, {2, 1}, bytes_of_values(ints)},
      {"f32", DType::kF32, {0, 4}, bytes_of_values(none)},
      {"i64", DType::kI64, {3}, bytes_of_values(longs)}};
  const TempFolder folder;
  const std::string path = folder.file("t.safetensors");
  write_safetensors(path, tensors, {{"format", "x"}, {"quoted", "a \"b\"\n"}});
  const SafeTensors read(path);
  ASSERT_EQ(read.tensors().size(), tensors.size());
  const uint8_t* first = read.tensors().at("i64").bytes.data();  // the widest type
  EXPECT_EQ((first - read.files()[0]->bytes().data()) % 8, 0);
  for (const TensorToWrite& t : tensors) {
    const SafeTensor& r = read.tensors().at(t.name);
    EXPECT_EQ(r.dtype, t.dtype) << t.name;
    EXPECT_EQ(r.shape, t.shape) << t.name;
    ASSERT_EQ(r.bytes.size(), t.bytes.size()) << t.name;
    EXPECT_TRUE(std::equal(r.bytes.begin(), r.bytes.end(), t.bytes.begin())) << t.name;
    EXPECT_EQ((r.bytes.data() - first) % block_bytes(t.dtype), 0) << t.name << " is not aligned";
  }
  EXPECT_EQ(read.metadata(),
            (std::map<std::string, std::string>{{"format", "x"}, {"quoted", "a \"b\"\n"}}));
  // Nothing is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(SafeTensorsWriter, NothingAtAll) {
  const TempFolder folder;
  const std::string path = folder.file("t.safetensors");
  write_safetensors(path, {});
  const SafeTensors read(path);
  EXPECT_TRUE(read.tensors().empty());
  EXPECT_TRUE(read.metadata().empty());
}

TEST(SafeTensorsWriter, ReplacesAFileAsAWhole) {
  const TempFolder folder;
  const std::string path = folder.write("t.safetensors", std::string(100000, 'x'));
  const std::vector<float> values = {1.5f};
  const TensorToWrite t{"v", DType::kF32, {1}, bytes_of_values(values)};
  write_safetensors(path, {&t, 1});
  EXPECT_EQ(SafeTensors(path).tensors().at("v").shape, std::vector<int64_t>{1});
}

TEST(SafeTensorsWriter, RefusesWhatWouldNotBeAFile) {
  const TempFolder folder;
  const std::string path = folder.file("t.safetensors");
  const std::vector<float> values = {1, 2};
  const auto bytes = bytes_of_values(values);
  const auto refuse = [&](const std::vector<TensorToWrite>& tensors) {
    EXPECT_THROW(write_safetensors(path, tensors), base::InternalError);
    EXPECT_FALSE(std::filesystem::exists(path));
  };
  refuse({{"v", DType::kF32, {3}, bytes}});
  refuse({{"v", DType::kF32, {-2}, bytes}});
  refuse({{"v", DType::kF32, {2}, bytes}, {"v", DType::kF32, {2}, bytes}});
  refuse({{"__metadata__", DType::kF32, {2}, bytes}});
  refuse({{"v", DType::kQ8_0, {2}, bytes}});
}

TEST(SafeTensorsWriter, SaysWhereItCannotWrite) {
  const TempFolder folder;
  const std::vector<float> values = {1};
  const TensorToWrite t{"v", DType::kF32, {1}, bytes_of_values(values)};
  const std::string nowhere = folder.file("missing/t.safetensors");
  expect_data_error(
      [&] {
        write_safetensors(nowhere, {&t, 1});
      },
      {"missing/t.safetensors", "No such file"});
}

}  // namespace
}  // namespace evalrun::engine
