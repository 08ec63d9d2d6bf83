// Rotary tables against transformers' LlamaRotaryEmbedding for the settings of published models
// (scripts/make-fixtures, "rope"), and what configurations must not say.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "engine/model/config.h"
#include "tests/formats/npy.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine {
namespace {

using Scaling = RopeConfig::Scaling;
using testing::data_path;
using testing::expect_data_error;

constexpr int kPositions[] = {0, 1, 2, 77, 1023, 4096, 8191, 32767, 131071};

ModelConfig valid_config() {
  ModelConfig c;
  c.architecture = "llama";
  c.n_layers = 2;
  c.d_model = 64;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 16;
  c.d_ffn = 96;
  c.vocab_size = 100;
  c.max_context = 256;
  return c;
}

struct Expected {
  const char* name;
  int head_dim;
  RopeConfig rope;
};

std::vector<Expected> published() {
  Expected smollm2{"smollm2", 64, {}}, vicuna{"vicuna-16k", 128, {}}, llama{"llama-3.1", 128, {}},
      qwen{"qwen2.5-yarn", 128, {}};
  smollm2.rope.theta = 100000;
  vicuna.rope.scaling = Scaling::kLinear;
  vicuna.rope.factor = 4;
  llama.rope.theta = 500000;
  llama.rope.scaling = Scaling::kLlama3;
  llama.rope.factor = 8;
  llama.rope.original_context = 8192;
  qwen.rope.theta = 1000000;
  qwen.rope.scaling = Scaling::kYarn;
  qwen.rope.factor = 4;
  qwen.rope.original_context = 32768;
  return {smollm2, vicuna, llama, qwen};
}

TEST(Rope, TablesOfPublishedModels) {
  for (const Expected& e : published()) {
    SCOPED_TRACE(e.name);
    ModelConfig config = valid_config();
    config.head_dim = e.head_dim;
    config.rope = e.rope;
    const RopeTable table = make_rope_table(config, 131072);
    const testing::NpyArray oracle = testing::read_npy(data_path("rope/") + e.name + ".npy");
    const auto half = static_cast<size_t>(e.head_dim / 2);
    ASSERT_EQ(oracle.shape, (std::vector<size_t>{2, std::size(kPositions), half}));
    size_t at = 0, different = 0;
    for (const std::vector<float>* values : {&table.cos, &table.sin}) {
      for (const int position : kPositions) {
        for (size_t i = 0; i < half; ++i, ++at) {
          const float ours = (*values)[static_cast<size_t>(position) * half + i];
          const float theirs = oracle.values[at];
          different += ours != theirs ? 1 : 0;
          // powf and cosf of another library may each be off by one unit in the last place. In the
          // frequency that is 6e-8 of the angle, which is what grows with the position.
          const double frequency =
              std::pow(e.rope.theta, -2.0 * static_cast<double>(i) / e.head_dim);
          const double bound = 1.5e-7 + 2 * 6e-8 * position * frequency;
          ASSERT_NEAR(static_cast<double>(ours), static_cast<double>(theirs), bound)
              << "position " << position << " frequency " << i;
        }
      }
    }
    RecordProperty(e.name, static_cast<int>(different));
  }
}

TEST(Rope, FactorsDivideTheFrequencies) {
  ModelConfig config = valid_config();
  config.rope.factors.assign(8, 1.0f);
  config.rope.factors[3] = 4.0f;
  const RopeTable with = make_rope_table(config, 64);
  config.rope.factors.clear();
  const RopeTable without = make_rope_table(config, 64);
  for (size_t p = 0; p < 16; ++p) {
    EXPECT_EQ(with.cos[4 * p * 8 + 3], without.cos[p * 8 + 3]);  // 4 is exact in float32
    EXPECT_EQ(with.sin[p * 8 + 2], without.sin[p * 8 + 2]);
  }
}

TEST(Rope, YarnMagnitudeCanBeGiven) {
  ModelConfig config = valid_config();
  config.rope.scaling = Scaling::kYarn;
  config.rope.factor = 4;
  config.rope.original_context = 64;
  EXPECT_FLOAT_EQ(make_rope_table(config, 1).cos[0], static_cast<float>(0.1 * std::log(4.0) + 1.0));
  config.rope.attention_factor = 1.25;
  EXPECT_EQ(make_rope_table(config, 1).cos[0], 1.25f);
}

TEST(Config, ValidateNamesTheField) {
  EXPECT_NO_THROW(valid_config().validate("f"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<const char*, std::function<void(ModelConfig&)>>> wrong = {
      {"number of layers", [](auto& c) { c.n_layers = 0; }},
      {"number of layers", [](auto& c) { c.n_layers = 1 << 30; }},
      {"hidden size", [](auto& c) { c.d_model = -1; }},
      {"number of heads", [](auto& c) { c.n_heads = 0; }},
      {"key/value heads", [](auto& c) { c.n_kv_heads = 3; }},
      {"key/value heads", [](auto& c) { c.n_kv_heads = 8; }},
      {"head size", [](auto& c) { c.head_dim = 15; }},
      {"feed-forward size", [](auto& c) { c.d_ffn = 0; }},
      {"vocabulary size", [](auto& c) { c.vocab_size = 0; }},
      {"context length", [](auto& c) { c.max_context = 0; }},
      {"norm epsilon", [](auto& c) { c.norm_eps = 0; }},
      {"sliding window", [](auto& c) { c.sliding_window = -1; }},
      {"sliding window", [](auto& c) { c.windowed = {true}; }},
      {"rope theta", [&](auto& c) { c.rope.theta = nan; }},
      {"rope theta", [](auto& c) { c.rope.theta = 1; }},
      {"rope factors", [](auto& c) { c.rope.factors = {1}; }},
      {"rope factors", [](auto& c) { c.rope.factors.assign(8, 0.0f); }},
      {"factor",
       [](auto& c) {
         c.rope.scaling = Scaling::kLinear;
         c.rope.factor = 0;
       }},
      {"original context", [](auto& c) { c.rope.scaling = Scaling::kLlama3; }},
      {"low_freq_factor",
       [](auto& c) {
         c.rope.scaling = Scaling::kLlama3;
         c.rope.original_context = 64;
         c.rope.low_freq_factor = 4;
       }},
      {"beta_fast",
       [&](auto& c) {
         c.rope.scaling = Scaling::kYarn;
         c.rope.original_context = 64;
         c.rope.beta_fast = nan;
       }},
  };
  for (const auto& [field, change] : wrong) {
    ModelConfig config = valid_config();
    change(config);
    expect_data_error([&] { config.validate("model.gguf"); }, {"model.gguf", field});
  }
}

}  // namespace
}  // namespace evalrun::engine
