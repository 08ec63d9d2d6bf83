// Loaders and forward together against transformers (float32, eager attention): logits of every
// position and 32 greedy tokens, for one small model per feature of a family. Our own fixtures are
// made by scripts/make-fixtures; the shared ones are checked where they are present.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/devices.h"
#include "engine/model/model.h"
#include "engine/sampling.h"
#include "engine/session.h"
#include "tests/formats/npy.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine {
namespace {

// Logits have a standard deviation of about 4. transformers itself is within 2e-5 of a float64 pass
// on such models; another summation order in float32 adds as much again per layer. Ten times that
// is far below what any mistake in a formula, a weight or a rotation leaves.
constexpr double kBound = 2e-4;

struct Case {
  std::string name;
  std::string model;   // file or folder
  std::string oracle;  // folder with expected.json and logits.npy
};

std::string shared_models() {
  const char* root = std::getenv("EVALRUN_SHARED");
  return std::string(root != nullptr ? root : EVALRUN_SOURCE_DIR "/../shared") +
         "/data/tiny_models";
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* name :
       {"tiny-llama", "tiny-draft", "tiny-qwen3", "tiny-qwen2-window", "tiny-mistral-window",
        "tiny-llama3-rope", "tiny-linear-rope", "tiny-yarn"})
    all.push_back({name, testing::data_path(name), testing::data_path(name)});
  for (const char* name : {"tiny-llama", "tiny-qwen3", "tiny-llama3-gguf"})
    all.push_back({std::string(name) + "-file", testing::data_path(name) + ".gguf",
                   testing::data_path(name)});
  for (const char* name : {"llama_gqa_untied", "llama_gqa_tied", "llama_bf16", "llama_sharded",
                           "qwen2_bias_tied", "mistral_window16"})
    all.push_back({std::string("shared-") + name, shared_models() + "/" + name,
                   shared_models() + "/" + name});
  return all;
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
class ModelLogits : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(GetParam().oracle))
      GTEST_SKIP() << GetParam().oracle << " is not present (set EVALRUN_SHARED)";
    LoadOptions options;
    options.need_tokenizer = false;
    model_ = load_model(GetParam().model, options);
    const std::string path = GetParam().oracle + "/expected.json";
    expected_ = nlohmann::json::parse(base::read_file(path));
    sequences_ = expected_.at("input_ids").get<std::vector<std::vector<int32_t>>>();
    ASSERT_FALSE(sequences_.empty());
  }
  std::unique_ptr<Session> session(const std::string& isa) const {
    SessionOptions options;
    options.max_tokens = static_cast<int>(sequences_[0].size()) + 40;
    options.n_threads = 2;
    options.isa = isa;
    return Session::create(model_, options);
  }
  std::shared_ptr<const Model> model_;
  nlohmann::json expected_;
  std::vector<std::vector<int32_t>> sequences_;
};

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= worst)) worst = d;  // NaN counts as a difference
  }
  return worst;
}

TEST_P(ModelLogits, EveryPositionOnEveryPath) {
  const testing::NpyArray logits = testing::read_npy(GetParam().oracle + "/logits.npy");
  const size_t length = sequences_[0].size();
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  ASSERT_EQ(logits.shape, (std::vector<size_t>{sequences_.size(), length, vocab}));
  for (const std::string& isa : available_isas()) {
    double worst = 0;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const auto one = session(isa);
      std::vector<Row> rows(length);
      for (size_t i = 0; i < length; ++i) {
        rows[i].token = sequences_[s][i];
        rows[i].parent = static_cast<int>(i) - 1;
      }
      ForwardRequest request;
      request.rows = rows;
      const ForwardResult result = one->forward(request);
      for (size_t i = 0; i < length; ++i)
        worst = std::max(
            worst, largest_difference(result.logits_row(static_cast<int>(i)),
                                      {logits.values.data() + (s * length + i) * vocab, vocab}));
    }
    EXPECT_LE(worst, kBound) << isa;
    RecordProperty("largest difference, " + isa, std::to_string(worst));
  }
}

TEST_P(ModelLogits, GreedyTokens) {
  const auto greedy = expected_.at("greedy_32").get<std::vector<std::vector<int32_t>>>();
  ASSERT_EQ(greedy.size(), sequences_.size());
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const auto one = session("");
    one->prefill(std::span(sequences_[s]).first(sequences_[s].size() - 1));
    std::vector<int32_t> text;
    int32_t token = sequences_[s].back();
    for (size_t i = 0; i < greedy[s].size(); ++i) {
      Row row;
      row.token = token;
      ForwardRequest request;
      request.rows = {&row, 1};
      token = argmax(one->forward(request).logits_row(0));
      const int path = 0;
      one->commit({&path, 1});
      text.push_back(token);
    }
    EXPECT_EQ(text, greedy[s]) << "sequence " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(AllModels, ModelLogits, ::testing::ValuesIn(cases()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace evalrun::engine
