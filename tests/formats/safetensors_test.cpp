// The safetensors reader on well-formed files, lying headers and broken indexes.
#include "engine/formats/safetensors.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/formats/test_files.h"

namespace evalrun::engine {
namespace {

using testing::append;
using testing::expect_data_error;
using testing::safetensors_bytes;
using testing::TempFolder;

constexpr const char* kGood =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";

class Safe : public ::testing::Test {
 protected:
  void refuse(const std::string& header, size_t data_bytes, const std::vector<std::string>& parts) {
    refuse_bytes(safetensors_bytes(header, std::string(data_bytes, '\0')), parts);
  }
  void refuse_bytes(const std::string& bytes, std::vector<std::string> parts) {
    const std::string path = folder_.write("m.safetensors", bytes);
    parts.push_back("m.safetensors");
    expect_data_error([&] { SafeTensors{path}; }, parts);
  }
  TempFolder folder_;
};

std::string one(const std::string& entry) { return R"({"w":)" + entry + "}"; }

TEST_F(Safe, ReadsTensorsAndMetadata) {
  const SafeTensors file(
      folder_.write("m.safetensors", safetensors_bytes(kGood, std::string(22, '\3'))));
  ASSERT_EQ(file.tensors().size(), 2u);
  const SafeTensor& a = file.tensors().at("a");
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(a.bytes.size(), 16u);
  EXPECT_EQ(file.tensors().at("b").bytes.data() - a.bytes.data(), 16);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST_F(Safe, RefusesBadHeaders) {
  refuse_bytes("", {"too short"});
  refuse_bytes("1234567", {"too short"});
  for (const uint64_t lie : {uint64_t{100}, uint64_t{1} << 40, ~uint64_t{0}}) {
    std::string bytes;
    append(bytes, lie);
    refuse_bytes(bytes + "{}", {"header is said to have"});
  }
  refuse("{", 0, {"not valid JSON"});
  refuse("{\"w\":1e999}", 0, {"number out of range"});
  refuse("[]", 0, {"not a JSON object"});
  refuse(std::string(20000, '['), 0, {"not valid JSON"});
  refuse("{\"w\":\"\xff\"}", 0, {"not valid JSON"});
  refuse(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
         R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
         4, {"\"w\"", "twice"});
  refuse(R"({"__metadata__":{"n":1}})", 0, {"__metadata__", "texts"});
}

TEST_F(Safe, RefusesBadTensors) {
  refuse(one("3"), 0, {"\"w\"", "must be an object"});
  refuse(one(R"({"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]})"), 4,
         {"F8_E4M3", "not supported", "BF16"});
  refuse(one(R"({"shape":[1],"data_offsets":[0,4]})"), 4, {"dtype", "missing"});
  refuse(one(R"({"dtype":"F32","data_offsets":[0,4]})"), 4, {"needs a shape"});
  refuse(one(R"({"dtype":"F32","shape":[1]})"), 4, {"data_offsets"});
  refuse(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), 4, {"data_offsets"});
  refuse(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,-4]})"), 4, {"data_offsets"});
  refuse(one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), 4, {"not inside the file"});
  refuse(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 4, {"not inside the file"});
  refuse(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), 4, {"4 bytes", "needs 8"});
  refuse(one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), 4, {"impossible shape"});
  refuse(one(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})"), 4, {"impossible shape"});
  refuse(one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})"), 4,
         {"impossible shape"});
  refuse(one(R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]})"), 4,
         {"impossible shape"});
  refuse(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":1})"), 4, {"extra"});
}

TEST_F(Safe, RefusesOverlapsAndHoles) {
  refuse(R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
         R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
         8, {"\"w\"", "overlap"});
  refuse(R"({"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
         R"("w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
         12, {"\"w\"", "unused bytes"});
  refuse(kGood, 30, {"8 bytes after the last tensor"});
  refuse("{}", 5, {"after the last tensor"});
}

class Index : public Safe {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b"})
      folder_.write(std::string(name) + ".safetensors",
                    safetensors_bytes(std::string("{\"") + name +
                                          R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                                      "abcd"));
  }
  void write_index(const std::string& text) { folder_.write("model.safetensors.index.json", text); }
  void refuse_index(const std::string& text, const std::vector<std::string>& parts) {
    write_index(text);
    expect_data_error([&] { SafeTensors{folder_.path()}; }, parts);
  }
};

TEST_F(Index, ReadsAllShards) {
  write_index(
      R"({"metadata":{"total_size":8},"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})");
  const SafeTensors file(folder_.path());
  EXPECT_EQ(file.files().size(), 2u);
  EXPECT_EQ(file.tensors().size(), 2u);
  EXPECT_THAT(file.tensors().at("b").file, ::testing::EndsWith("b.safetensors"));
}

TEST_F(Index, RefusesWhatDoesNotFit) {
  refuse_index("{", {"index.json"});
  refuse_index("[1]", {"weight_map"});
  refuse_index(R"({"weight_map":{}})", {"weight_map", "empty"});
  refuse_index(R"({"weight_map":{"a":3}})", {"\"a\"", "file name"});
  refuse_index(R"({"weight_map":{"a":"../a.safetensors"}})", {"\"a\"", "not a plain file name"});
  refuse_index(R"({"weight_map":{"a":"/etc/passwd"}})", {"\"a\"", "not a plain file name"});
  refuse_index(R"({"weight_map":{"a":".."}})", {"not a plain file name"});
  refuse_index(R"({"weight_map":{"a":"gone.safetensors"}})", {"gone.safetensors"});
  refuse_index(R"({"weight_map":{"a":"a.safetensors","c":"b.safetensors"}})",
               {"\"b\"", "not in the index"});
  refuse_index(R"({"weight_map":{"a":"a.safetensors","c":"a.safetensors"}})",
               {"\"c\"", "not in \"a.safetensors\""});
  refuse_index(R"({"weight_map":{"a":"b.safetensors","b":"b.safetensors"}})",
               {"\"a\"", "not in \"b.safetensors\""});
}

TEST_F(Index, SaysWhatAFolderLacks) {
  TempFolder empty;
  expect_data_error([&] { SafeTensors{empty.path()}; }, {"model.safetensors", "hint"});
  empty.write("pytorch_model.bin", "x");
  expect_data_error([&] { SafeTensors{empty.path()}; }, {"pickled", "safe_serialization"});
}

}  // namespace
}  // namespace evalrun::engine
