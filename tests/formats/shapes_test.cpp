// Shapes of published models against what their pages say, config.json files as shapes, and the
// bytes of weights that follow from sizes alone.
#include "engine/model/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/model/model.h"
#include "engine/model/shape_model.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine {
namespace {

using nlohmann::json;
using testing::data_path;
using testing::expect_data_error;
using ::testing::HasSubstr;
using testing::TempFolder;

// "Model size" of the safetensors on each model's page on Hugging Face, in parameters.
const std::map<std::string, int64_t> kPublished = {
    {"smollm2-135m", 134515008},  {"smollm2-360m", 361821120},  {"tinyllama-1.1b", 1100048384},
    {"llama-3.2-1b", 1235814400}, {"qwen2.5-1.5b", 1543714304}, {"smollm2-1.7b", 1711376384},
    {"llama-3.2-3b", 3212749824}, {"qwen3-4b", 4022468096},     {"llama-2-7b", 6738415616},
    {"mistral-7b", 7248023552},   {"llama-3-8b", 8030261248},   {"llama-2-70b", 68976648192},
};

TEST(Shapes, HaveAsManyParametersAsPublished) {
  ASSERT_EQ(known_shapes().size(), kPublished.size());
  int64_t before = 0;
  for (const Shape& shape : known_shapes()) {
    SCOPED_TRACE(shape.name);
    const int64_t n = n_parameters(shape.config);
    EXPECT_EQ(n, kPublished.at(shape.name));
    EXPECT_GT(n, before) << "from small to large";
    before = n;
    EXPECT_THAT(shape.source, ::testing::MatchesRegex("https://huggingface.co/.*/config.json"));
    EXPECT_EQ(shape.config.name, "shape:" + shape.name);
    EXPECT_EQ(find_shape(shape.name).source, shape.source);
  }
}

TEST(Shapes, KnowWhatFamiliesDifferIn) {
  const ModelConfig qwen3 = find_shape("qwen3-4b").config,
                    qwen2 = find_shape("qwen2.5-1.5b").config,
                    llama = find_shape("llama-3.2-3b").config;
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias);
  EXPECT_EQ(qwen3.q_dim(), 4096) << "wider than the residual stream";
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.qk_norm);
  EXPECT_TRUE(llama.tied_head);
  EXPECT_EQ(llama.rope.scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(llama.rope.factor, 32);
  EXPECT_EQ(llama.rope.theta, 500000);
  EXPECT_FALSE(find_shape("llama-3-8b").config.tied_head);
}

TEST(Shapes, OfFilesAreNamedByTheirFolder) {
  const TempFolder folder;
  const std::string text = base::read_file(data_path("tiny-llama") + "/config.json");
  const std::string config = folder.write("Some-Model/config.json", text);
  EXPECT_EQ(find_shape(config).name, "Some-Model");
  EXPECT_EQ(find_shape(folder.file("Some-Model")).name, "Some-Model");
  EXPECT_EQ(find_shape(folder.file("Some-Model/")).name, "Some-Model");
  EXPECT_EQ(find_shape(config).source, config);
  const Shape other = find_shape(folder.write("my-7b.json", text));
  EXPECT_EQ(other.name, "my-7b");
  EXPECT_EQ(other.config.name, "shape:my-7b");
  EXPECT_EQ(other.config.d_ffn, load_model(data_path("tiny-llama"))->config().d_ffn);
}

// What transformers 4 and 5 wrote: dozens of keys that change no forward.
TEST(Shapes, TakeEveryFileThatLoadsAsAModel) {
  LoadOptions options;
  options.need_tokenizer = false;
  int n = 0;
  for (const auto& item : std::filesystem::directory_iterator(EVALRUN_TEST_DATA "/models")) {
    if (!std::filesystem::exists(item.path() / "config.json")) continue;
    const ModelConfig model = load_model(item.path().string(), options)->config();
    const ModelConfig shape = find_shape(item.path().string()).config;
    EXPECT_EQ(shape.architecture, model.architecture) << item.path();
    EXPECT_EQ(shape.windowed, model.windowed) << item.path();
    EXPECT_EQ(n_parameters(shape), n_parameters(model)) << item.path();
    ++n;
  }
  EXPECT_GE(n, 8);
}

TEST(Shapes, FilesThatAreNoShapes) {
  const TempFolder folder;
  const json good = json::parse(base::read_file(data_path("tiny-llama") + "/config.json"));
  const auto refuse = [&](const std::string& key, const json& value,
                          const std::vector<std::string>& parts) {
    json config = good;
    config[key] = value;
    const std::string path = folder.write("config.json", config.dump());
    expect_data_error([&] { (void)find_shape(path); }, parts);
  };
  refuse("model_type", "mixtral", {"config.json", "unknown architecture 'mixtral'", "mistral"});
  refuse("num_key_value_head", 2,
         {"config.json", "'num_key_value_head'", "did you mean 'num_key_value_heads'?",
          "Remove it from the file"});
  refuse("num_local_experts", 8,
         {"unknown field 'num_local_experts'", "this engine cannot compute such a model"});
  refuse("hidden_size", "64", {"hidden_size", "integer"});
  refuse("num_attention_heads", 7, {"heads"});
  refuse("num_hidden_layers", 0, {"number of layers"});
  refuse("quantization_config", {{"quant_method", "awq"}}, {"quantization_config"});
  folder.write("config.json", "{\"model_type\": \"llama\",\n");
  expect_data_error([&] { (void)find_shape(folder.path()); }, {"config.json", "line 2", "JSON"});
  folder.write("config.json", "[]");
  expect_data_error([&] { (void)find_shape(folder.path()); }, {"config.json", "object"});
  folder.write("empty/notes.txt", "");
  expect_data_error([&] { (void)find_shape(folder.file("empty")); }, {"holds no config.json"});
}

TEST(Shapes, WhatIsNoShapeAtAll) {
  const auto refuse = [](const std::string& text, const std::vector<std::string>& parts) {
    try {
      (void)find_shape(text);
      ADD_FAILURE() << text;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.code(), base::ExitCode::kUsage);
      for (const std::string& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
    }
  };
  refuse("llama-3.2-2b",
         {"--shape", "'llama-3.2-2b'", "did you mean 'llama-3.2-1b'", "qwen3-4b", "config.json"});
  refuse("nowhere/config.json", {"no such file"});
  refuse(data_path("tiny-llama.gguf"), {"holds weights", "-m "});
}

ModelConfig odd_config(const std::string& architecture) {
  ModelConfig c;
  c.architecture = architecture, c.name = "odd";
  c.n_layers = 5, c.d_model = 72, c.n_heads = 4, c.n_kv_heads = 2, c.head_dim = 24;
  c.d_ffn = 100, c.vocab_size = 133, c.max_context = 512;  // no multiples of a panel or a block
  c.qkv_bias = architecture == "qwen2";
  c.qk_norm = architecture == "qwen3";
  c.tied_head = architecture != "llama";
  return c;
}

TEST(ShapeBytes, AreThoseOfAModel) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    EXPECT_EQ(n_parameters(odd_config(architecture)),
              make_random_model(odd_config(architecture), 1)->n_parameters());
    for (const WeightFormatSpec& spec : rounded_formats()) {
      SCOPED_TRACE(std::string(architecture) + " " + std::string(spec.name));
      const ModelConfig c = odd_config(architecture);
      const auto model = make_random_model(c, 1, spec.format);
      const WeightBytes bytes = weight_bytes(c, spec.format);
      EXPECT_EQ(bytes.with_layers(c.n_layers), static_cast<int64_t>(model->weight_bytes()));
      EXPECT_EQ(bytes.with_layers(2) - bytes.with_layers(1), bytes.layer);
      EXPECT_EQ(make_shape_model(c, {.format = spec.format})->weight_bytes(), model->weight_bytes())
          << "shared layers count fully: so much the model itself would take";
    }
  }
}

TEST(ShapeBytes, WeightsAsStoredAreNobodysWithoutAFile) {
  const ModelConfig c = odd_config("llama");
  EXPECT_THROW((void)weight_bytes(c, WeightFormat::kStored), base::InternalError);
  EXPECT_THROW((void)make_shape_model(c, {.format = WeightFormat::kStored}), base::InternalError);
  EXPECT_THROW((void)make_random_model(c, 1, WeightFormat::kStored), base::InternalError);
}

TEST(ShapeBytes, DistinctLayersHoldWhatIsAsked) {
  const ModelConfig c = odd_config("llama");
  const int64_t layer = weight_bytes(c, WeightFormat::kQ4).layer;
  const auto distinct = [&](int64_t least) { return distinct_layers(c, WeightFormat::kQ4, least); };
  EXPECT_EQ(distinct(0), 1);
  EXPECT_EQ(distinct(1), 1);
  EXPECT_EQ(distinct(layer), 1);
  EXPECT_EQ(distinct(layer + 1), 2);
  EXPECT_EQ(distinct(3 * layer), 3);
  EXPECT_EQ(distinct(int64_t{1} << 60), c.n_layers) << "no more than there are";
}

}  // namespace
}  // namespace evalrun::engine
