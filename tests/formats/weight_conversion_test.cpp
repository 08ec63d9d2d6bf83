// From a file's tensors to the weights of a format: every stored type in every format, byte for
// byte what single rows give, and values no format can hold.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "engine/formats/safetensors.h"
#include "tests/formats/weight_models.h"

namespace evalrun::engine {
namespace {

using testing::data_path;
using testing::expect_data_error;
using testing::matrices_of;
using testing::put_half_scale;
using testing::random_weights;
using testing::TempFolder;
using testing::weight_types;
using testing::write_gguf;

LoadOptions in_format(WeightFormat format) {
  LoadOptions options;
  options.format = format;
  options.need_tokenizer = false;
  return options;
}

std::vector<WeightFormat> all_formats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormatSpec& s : weight_formats()) formats.push_back(s.format);
  return formats;
}

// What a matrix must hold, made row by row from the stored bytes.
WeightMatrix expected_matrix(WeightStorage storage, DType type, int out, int in,
                             std::span<const uint8_t> bytes) {
  WeightMatrix m(storage, out, in);
  std::vector<float> row(static_cast<size_t>(in));
  const auto size = static_cast<size_t>(bytes_of(type, in));
  for (int o = 0; o < out; ++o) {
    const auto stored = bytes.subspan(static_cast<size_t>(o) * size, size);
    dequantize(type, stored, row);
    if (WeightMatrix::keeps_exactly(storage, type))
      m.set_row_exactly(o, type, stored);
    else
      m.set_row(o, row);
  }
  return m;
}

TEST(Conversion, EveryGgufTypeInEveryFormat) {
  const TempFolder folder;
  for (const DType type : weight_types()) {
    for (const bool tied : {true, false}) {
      // They differ in dequantize() alone.
      if (tied && block_length(type) == 256 && k_bits(type) == 0) continue;
      const std::string path =
          write_gguf(folder, "m.gguf", {.type = type, .tied = tied, .seed = 7});
      const GgufFile file(path);
      for (const WeightFormat format : all_formats()) {
        SCOPED_TRACE(fmt::format("{} as {}, tied {}", dtype_name(type), name_of(format), tied));
        const auto model = load_model(path, in_format(format));
        WeightFormatSpec spec = spec_of(format);
        if (format == WeightFormat::kStored)
          spec.layers = spec.head = spec.embedding = WeightMatrix::storage_of(type);
        if (format == WeightFormat::kQ4 && type == DType::kQ4_0)
          spec.layers = WeightStorage::kQ4Centred;
        EXPECT_EQ(model->format(), format);
        EXPECT_EQ(model->embedding().storage(), spec.embedding);
        EXPECT_EQ(model->head().storage(), spec.head);
        EXPECT_EQ(model->layer(1).down.storage(), spec.layers);
        EXPECT_EQ(&model->head() == &model->embedding(), tied && spec.head == spec.embedding);
        for (const auto& [name, m] : matrices_of(*model)) {
          const GgufTensor& t = file.tensors().at(name);
          EXPECT_TRUE(std::ranges::equal(
              expected_matrix(m->storage(), type, m->out(), m->in(), t.bytes).bytes(), m->bytes()))
              << name;
          EXPECT_EQ(reinterpret_cast<uintptr_t>(m->bytes().data()) % 64, 0u) << name;
        }
      }
    }
  }
}

TEST(Conversion, AutoKeepsKQuantsAndFourBitFilesAndRoundsOthersToEight) {
  const TempFolder folder;
  for (const DType type : weight_types()) {
    const std::string path = write_gguf(folder, "m.gguf", {.type = type});
    const WeightFormat rounded =
        type == DType::kQ4_0 || type == DType::kQ4_1 ? WeightFormat::kQ4 : WeightFormat::kInt8;
    const bool is_k = type == DType::kQ4_K || type == DType::kQ5_K || type == DType::kQ6_K;
    EXPECT_EQ(load_model(path, in_format(WeightFormat::kAuto))->format(),
              is_k ? WeightFormat::kStored : rounded)
        << dtype_name(type);
  }
  // A head alone changes nothing: llama.cpp gives most files one in Q6_K.
  const std::string path =
      write_gguf(folder, "m.gguf", {.type = DType::kQ4_0, .types = {{"token_embd", DType::kQ6_K}}});
  EXPECT_EQ(load_model(path, in_format(WeightFormat::kAuto))->format(), WeightFormat::kQ4);
}

// tiny-llama with its float32 values rounded to a 16-bit type.
std::string as_sixteen_bit(const TempFolder& folder, const std::string& type) {
  const SafeTensors source(data_path("tiny-llama/model.safetensors"));
  nlohmann::json header;
  std::string data;
  for (const auto& [name, t] : source.tensors()) {
    std::vector<float> values(t.bytes.size() / static_cast<size_t>(bytes_of(t.dtype, 1)));
    dequantize(t.dtype, t.bytes, values);
    const size_t begin = data.size();
    for (const float v : values)
      testing::append(data, type == "F16" ? float_to_half(v) : float_to_bfloat16(v));
    header[name] = {{"dtype", type}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  folder.write("config.json", base::read_file(data_path("tiny-llama/config.json")));
  folder.write("model.safetensors", testing::safetensors_bytes(header.dump(), data));
  return folder.path();
}

TEST(Conversion, SafetensorsOfSixteenBitsInEveryFormat) {
  for (const std::string type : {"F16", "BF16"}) {
    const TempFolder folder;
    const std::string path = as_sixteen_bit(folder, type);
    const SafeTensors source(path + "/model.safetensors");
    for (const WeightFormat format : all_formats()) {
      const auto model = load_model(path, in_format(format));
      const auto expect = [&](const std::string& name, const WeightMatrix& m) {
        const auto& t = source.tensors().at(name);
        EXPECT_TRUE(std::ranges::equal(
            expected_matrix(m.storage(), t.dtype, m.out(), m.in(), t.bytes).bytes(), m.bytes()))
            << type << " as " << name_of(format) << ": " << name;
      };
      expect("model.embed_tokens.weight", model->embedding());
      expect("model.embed_tokens.weight", model->head());
      expect("model.layers.2.mlp.down_proj.weight", model->layer(2).down);
      expect("model.layers.0.self_attn.q_proj.weight", model->layer(0).q);
    }
  }
}

// Real folders of every family: relative error of the matrices against float32.
TEST(Conversion, SharedTinyModelsInEveryFormat) {
  const char* shared = std::getenv("EVALRUN_SHARED");
  const std::string root =
      std::string(shared != nullptr ? shared : EVALRUN_SOURCE_DIR "/../shared") +
      "/data/tiny_models";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is not present (EVALRUN_SHARED)";
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    const auto exact = load_model(entry.path().string(), in_format(WeightFormat::kF32));
    for (const WeightFormat format : all_formats()) {
      SCOPED_TRACE(fmt::format("{} as {}", entry.path().string(), name_of(format)));
      const auto model = load_model(entry.path().string(), in_format(format));
      // Normal weights: a step is 2^-8, about 1/127 of 2 to 4 deviations, or 1/15 of 4 to 5.
      const double bound = format == WeightFormat::kF32    ? 0
                           : format == WeightFormat::kBf16 ? 0.004
                           : format == WeightFormat::kQ4   ? 0.12
                                                           : 0.012;
      const auto a = matrices_of(*exact), b = matrices_of(*model);
      for (size_t i = 0; i < a.size(); ++i) {
        std::vector<float> x(static_cast<size_t>(a[i].second->in())), y(x.size());
        double error = 0, size = 0;
        for (int o = 0; o < a[i].second->out(); ++o) {
          a[i].second->copy_row(o, x);
          b[i].second->copy_row(o, y);
          for (size_t k = 0; k < x.size(); ++k) {
            error += std::pow(static_cast<double>(x[k]) - static_cast<double>(y[k]), 2);
            size += std::pow(static_cast<double>(x[k]), 2);
          }
        }
        EXPECT_LE(std::sqrt(error / size), bound) << a[i].first;
      }
      EXPECT_EQ(model->final_norm(), exact->final_norm());
      EXPECT_EQ(model->first_layers(1)->layer(0).q.bytes().data(),
                model->layer(0).q.bytes().data());
    }
  }
}

std::string half_bytes(uint16_t h) { return {reinterpret_cast<const char*>(&h), 2}; }

TEST(Conversion, NumbersThatAreNoneAreNamedInEveryFormat) {
  const TempFolder folder;
  const std::string tensor = "blk.1.ffn_up.weight";
  const std::vector<std::pair<DType, std::string>> damages = {
      {DType::kF16, half_bytes(0x7C00)},
      {DType::kBF16, half_bytes(0x7FC0)},
      {DType::kF32, std::string("\x00\x00\x80\xFF", 4)},
      {DType::kQ8_0, half_bytes(0x7E00)},
      {DType::kQ4_0, half_bytes(0xFC00)},
      {DType::kQ4_1, half_bytes(0x7C00)},
      {DType::kQ4_1, half_bytes(0x2000) + half_bytes(0x7E00)},  // the offset
      {DType::kQ4_K, half_bytes(0x7C00)},
      {DType::kQ4_K, half_bytes(0x2000) + half_bytes(0x7E00)},  // the scale of the minima
      {DType::kQ5_K, half_bytes(0x7E00)},
      {DType::kQ5_K, half_bytes(0x1000) + half_bytes(0xFC00)},
      {DType::kQ6_K, std::string(208, '\x11') + half_bytes(0x7E00)},
      {DType::kMXFP4, "\xFF"},
      {DType::kNVFP4, "\x7F"}};
  for (const auto& [type, bytes] : damages) {
    const std::string path =
        write_gguf(folder, "m.gguf", {.type = type, .damaged = tensor, .damage = bytes});
    for (const WeightFormat format : all_formats()) {
      SCOPED_TRACE(fmt::format("{} as {}", dtype_name(type), name_of(format)));
      expect_data_error([&] { (void)load_model(path, in_format(format)); },
                        {path, tensor, "[0, 0]", "not a finite number"});
    }
  }
}

// Wherever a type has its scale, and in every quantised type.
TEST(Conversion, ScalesThatAreNoNumbersAreNamed) {
  const TempFolder folder;
  const std::string tensor = "blk.1.ffn_up.weight";
  for (const DType type : weight_types()) {
    if (block_length(type) == 1 || type == DType::kMXFP4 || type == DType::kNVFP4) continue;
    SCOPED_TRACE(dtype_name(type));
    base::Rng rng(5);
    std::string block = random_weights(type, block_length(type), rng);
    for (const uint16_t scale : {0x7C00, 0xFC00, 0x7E01}) {
      put_half_scale(type, block.data(), scale);
      const std::string path =
          write_gguf(folder, "m.gguf", {.type = type, .damaged = tensor, .damage = block});
      expect_data_error([&] { (void)load_model(path, in_format(WeightFormat::kAuto)); },
                        {path, tensor, "[0, ", "not a finite number"});
    }
  }
}

TEST(Conversion, ValuesTooLargeForAFormatAreNamed) {
  const TempFolder folder;
  const std::string tensor = "blk.0.attn_output.weight";
  const float huge = 1e9f;
  const std::string bytes(reinterpret_cast<const char*>(&huge), sizeof huge);
  const std::string path = write_gguf(folder, "m.gguf", {.damaged = tensor, .damage = bytes});
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kQ4})
    expect_data_error([&] { (void)load_model(path, in_format(format)); },
                      {path, tensor, "[0, 0], 1000000000", "too large", "--dtype bf16"});
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16})
    EXPECT_NEAR(load_model(path, in_format(format))->layer(0).o.at(0, 0), huge, 0.004f * huge);
  // Q4_0's scale alone can be too large for the offset it turns into.
  const std::string q4 = write_gguf(
      folder, "q4.gguf", {.type = DType::kQ4_0, .damaged = tensor, .damage = half_bytes(0x7BFF)});
  expect_data_error([&] { (void)load_model(q4, in_format(WeightFormat::kQ4)); },
                    {q4, tensor, "too large"});
}

}  // namespace
}  // namespace evalrun::engine
