// A model once more in another format: where its weights come from, who shares it, how long it
// lives.
#include "engine/model/format_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/formats/weight_models.h"

namespace evalrun::engine {
namespace {

using testing::expect_data_error;
using testing::matrices_of;
using testing::TempFolder;
using testing::write_gguf;

std::shared_ptr<const Model> loaded_as(const std::string& path, WeightFormat format) {
  LoadOptions options;
  options.format = format;
  options.need_tokenizer = false;
  return load_model(path, options);
}

void expect_same_weights(const Model& a, const Model& b) {
  const auto first = matrices_of(a), second = matrices_of(b);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(first[i].second->bytes(), second[i].second->bytes()))
        << first[i].first;
}

TEST(FormatCopy, ComesFromTheFileAndIsOneForAll) {
  const TempFolder folder;
  const std::string path = write_gguf(folder, "m.gguf", {.type = DType::kQ4_1});
  auto target = loaded_as(path, WeightFormat::kBf16);
  auto copy = copy_in_format(*target, WeightFormat::kQ4, 1);
  EXPECT_EQ(copy->format(), WeightFormat::kQ4);
  EXPECT_EQ(copy->hash(), target->hash());
  EXPECT_EQ(copy->config().name, "m[q4]");
  // What the file has, which bfloat16 does not: those weights were never rounded to it.
  expect_same_weights(*copy, *loaded_as(path, WeightFormat::kQ4));
  EXPECT_EQ(copy_in_format(*target, WeightFormat::kQ4, 1), copy);
  EXPECT_NE(copy_in_format(*target, WeightFormat::kInt8, 1), copy);
  const std::weak_ptr<const Model> kept = copy;
  copy = nullptr;
  EXPECT_FALSE(kept.expired()) << "kept for the next who asks";
  target = nullptr;
  EXPECT_TRUE(kept.expired()) << "nobody can ask any more";
}

TEST(FormatCopy, RefusesAFileThatWasReplaced) {
  const TempFolder folder;
  const std::string path = write_gguf(folder, "m.gguf", {.type = DType::kF16});
  const auto target = loaded_as(path, WeightFormat::kBf16);
  write_gguf(folder, "m.gguf", {.type = DType::kF16, .seed = 2});
  for (int i = 0; i < 2; ++i)
    expect_data_error([&] { (void)copy_in_format(*target, WeightFormat::kQ4, 1); },
                      {"m.gguf", "is not the file any more", "start again"});
}

TEST(FormatCopy, OfAModelWithoutAFileIsRounded) {
  ModelConfig config;
  config.architecture = "llama";
  config.name = "made up";
  config.n_layers = 1;
  config.d_model = 32;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.head_dim = 16;
  config.d_ffn = 32;
  config.vocab_size = 20;
  config.max_context = 64;
  const auto target = make_random_model(config, 3);
  expect_same_weights(*copy_in_format(*target, WeightFormat::kInt8, 1),
                      *convert_model(*target, WeightFormat::kInt8));
}

TEST(FormatCopy, BitsAreThoseOfTheLayers) {
  EXPECT_EQ(weight_bits(WeightFormat::kF32), 32);
  EXPECT_EQ(weight_bits(WeightFormat::kBf16), 16);
  EXPECT_EQ(weight_bits(WeightFormat::kInt8), 8);
  EXPECT_EQ(weight_bits(WeightFormat::kInt8Fast), 8);
  EXPECT_EQ(weight_bits(WeightFormat::kQ4), 4);
  const TempFolder folder;
  for (const auto& [type, bits] :
       {std::pair{DType::kQ4_1, 4}, {DType::kQ4_K, 4}, {DType::kQ6_K, 6}, {DType::kQ8_0, 8}}) {
    // Of an embedding in another type nothing depends.
    const std::string path =
        write_gguf(folder, "m.gguf", {.type = type, .types = {{"token_embd", DType::kF16}}});
    const auto stored = loaded_as(path, WeightFormat::kStored);
    EXPECT_EQ(stored->stored_bits(), bits) << dtype_name(type);
    EXPECT_EQ(weight_bits(*stored), bits) << dtype_name(type);
    const auto wide = loaded_as(path, WeightFormat::kBf16);
    EXPECT_EQ(wide->stored_bits(), bits) << dtype_name(type);
    EXPECT_EQ(weight_bits(*wide), 16) << dtype_name(type);
  }
}

}  // namespace
}  // namespace evalrun::engine
