// Every tensor of the default model: type, shape, place, sums and the SHA-256 of its float32
// values, and the packed weights the engine gets.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "engine/formats/gguf.h"
#include "engine/model/model.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::engine {
namespace {

std::string environment(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

class DefaultModel : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = environment("EVALRUN_HOME", environment("HOME", "") + "/.cache/evalrun") +
             "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    golden_ = environment("EVALRUN_SHARED", EVALRUN_SOURCE_DIR "/../shared") +
              "/data/smollm2_golden/tensors.json";
    for (const std::string& path : {model_, golden_})
      if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not present";
  }
  std::string model_, golden_;
};

TEST_F(DefaultModel, TensorsEqualTheGolden) {
  const GgufFile file(model_);
  const nlohmann::json golden = nlohmann::json::parse(base::read_file(golden_));
  ASSERT_EQ(golden.at("tensors").size(), 272u);
  ASSERT_EQ(file.tensors().size(), 272u);
  std::vector<float> values;
  for (const nlohmann::json& expected : golden.at("tensors")) {
    const auto name = expected.at("name").get<std::string>();
    SCOPED_TRACE(name);
    ASSERT_TRUE(file.tensors().contains(name));
    const GgufTensor& t = file.tensors().at(name);
    EXPECT_EQ(dtype_name(t.dtype), expected.at("type").get<std::string>());
    EXPECT_EQ(t.ne, expected.at("ne").get<std::vector<int64_t>>());
    EXPECT_EQ(t.bytes.data() - file.file()->bytes().data(), expected.at("offset").get<int64_t>());
    EXPECT_EQ(t.bytes.size(), expected.at("bytes").get<size_t>());
    values.resize(static_cast<size_t>(t.rows() * t.row_length()));
    dequantize(t.dtype, t.bytes, values);
    EXPECT_EQ(base::sha256_hex(
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}),
              expected.at("sha256_f32").get<std::string>());
    // The hash says it all; the sums tell what is wrong when it differs.
    double sum = 0, abs_sum = 0;
    for (const float v : values) {
      sum += static_cast<double>(v);
      abs_sum += std::abs(static_cast<double>(v));
    }
    EXPECT_NEAR(sum, expected.at("sum").get<double>(), 1e-9 * abs_sum);  // order of float64 sums
    EXPECT_NEAR(abs_sum, expected.at("abs_sum").get<double>(), 1e-9 * abs_sum);
    const auto first = expected.at("first4").get<std::vector<float>>();
    EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 4), first);
  }
}

TEST_F(DefaultModel, LoadsAsPublished) {
  const auto model = load_model(model_);
  const ModelConfig& c = model->config();
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.name, "SmolLM2-135M-Instruct.Q4_1");
  EXPECT_EQ(c.n_layers, 30);
  EXPECT_EQ(c.d_model, 576);
  EXPECT_EQ(c.n_heads, 9);
  EXPECT_EQ(c.n_kv_heads, 3);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.d_ffn, 1536);
  EXPECT_EQ(c.vocab_size, 49152);
  EXPECT_EQ(c.max_context, 8192);
  EXPECT_EQ(c.rope.theta, 100000.0);
  EXPECT_TRUE(c.tied_head);
  EXPECT_EQ(model->hash(), "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53");
  EXPECT_EQ(model->n_parameters(), 134515008);  // the published count
  ASSERT_NE(model->tokenizer(), nullptr);
  EXPECT_NE(model->chat_template(), nullptr) << model->chat_template_error();

  // q and k rows are half-split: stored row 2i + j of a head is row j * 32 + i.
  const GgufFile file(model_);
  const GgufTensor& stored = file.tensors().at("blk.3.attn_k.weight");
  std::vector<float> values(static_cast<size_t>(stored.rows() * stored.row_length())), row(576);
  dequantize(stored.dtype, stored.bytes, values);
  for (int head = 0; head < 3; ++head) {
    for (int i = 0; i < 32; ++i) {
      for (int j = 0; j < 2; ++j) {
        model->layer(3).k.copy_row(head * 64 + j * 32 + i, row);
        const auto from = values.begin() + (head * 64 + 2 * i + j) * 576;
        ASSERT_TRUE(std::equal(row.begin(), row.end(), from)) << head << " " << i << " " << j;
      }
    }
  }
}

}  // namespace
}  // namespace evalrun::engine
