// The default model (f32) against transformers in float32 on the exactly dequantised weights:
// intermediate values, logits, greedy tokens, perplexity. Tolerances: the reference's own two ways
// of computing the same (with KV cache or at once) differ by 1.1e-4 in a logit; float64 by 8e-5.
// 3e-4 is the bound for anything that adds the same numbers in another order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "engine/model/model.h"
#include "engine/sampling.h"
#include "engine/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/sample.h"

namespace evalrun::engine {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kTolerance = 3e-4;

std::string shared_folder() {
  const char* given = std::getenv("EVALRUN_SHARED");
  return std::string(given != nullptr ? given : EVALRUN_SOURCE_DIR "/../shared") +
         "/data/smollm2_golden/";
}

std::string model_path() {
  const char* home = std::getenv("EVALRUN_HOME");
  const std::string root =
      home != nullptr
          ? home
          : std::string(std::getenv("HOME") ? std::getenv("HOME") : "") + "/.cache/evalrun";
  return root + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

class SmolLM2 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!fs::exists(model_path()) || !fs::exists(shared_folder())) return;
    model_ = load_model(model_path());
    SessionOptions o;
    o.max_tokens = 4200;
    session_ = Session::create(model_, o);
  }
  static void TearDownTestSuite() {
    session_.reset();
    model_.reset();
  }
  void SetUp() override {
    if (!fs::exists(shared_folder())) GTEST_SKIP() << "no golden data at " << shared_folder();
    if (!fs::exists(model_path()))
      GTEST_SKIP() << "no model at " << model_path() << " (scripts/get-model)";
    session_->reset();
  }
  static Json read(const std::string& name) {
    return Json::parse(base::read_file(shared_folder() + name));
  }

  // Logits after each of `tokens`, appended to the committed text; calls f(index, logits).
  template <typename F>
  void score(const std::vector<int32_t>& tokens, const F& f) {
    for (size_t at = 0; at < tokens.size(); at += 128) {
      const size_t n = std::min<size_t>(128, tokens.size() - at);
      std::vector<Row> rows(n);
      std::vector<int> path(n);
      for (size_t i = 0; i < n; ++i)
        rows[i].token = tokens[at + i], rows[i].parent = static_cast<int>(i) - 1,
        path[i] = static_cast<int>(i);
      const ForwardResult r = session_->forward({.rows = rows});
      for (size_t i = 0; i < n; ++i) f(at + i, r.logits_row(static_cast<int>(i)));
      session_->commit(path);
    }
  }

  static inline std::shared_ptr<const Model> model_;
  static inline std::unique_ptr<Session> session_;
};

double log_probability(std::span<const float> logits, int32_t token) {
  double top = -INFINITY, sum = 0;
  for (const float x : logits) top = std::max(top, static_cast<double>(x));
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return static_cast<double>(logits[static_cast<size_t>(token)]) - top - std::log(sum);
}

void expect_trace(std::span<const float> got, const Json& want, const std::string& what) {
  double squares = 0;
  for (const float x : got) squares += static_cast<double>(x) * x;
  const double norm = want["norm2"];
  EXPECT_NEAR(std::sqrt(squares), norm, 3e-5 * norm + 1e-5) << what;  // written with 7 digits
  for (size_t i = 0; i < want["first8"].size(); ++i)
    EXPECT_NEAR(got[i], want["first8"][i].get<double>(), kTolerance) << what << " [" << i << "]";
}

TEST_F(SmolLM2, LayerTrace) {
  const Json t = read("layer_trace.json");
  const std::vector<int32_t> ids = t["ids"];
  const int n_layers = model_->config().n_layers;
  std::vector<int> layers;
  for (int l = 0; l <= n_layers; ++l) layers.push_back(l);
  std::vector<Row> rows(ids.size());
  for (size_t i = 0; i < ids.size(); ++i)
    rows[i].token = ids[i], rows[i].parent = static_cast<int>(i) - 1;
  rows.back().hidden = true;
  const ForwardResult r = session_->forward({.rows = rows, .residual_layers = layers});
  const int last = static_cast<int>(ids.size()) - 1;
  // hidden[l] is the residual stream after layer l, the last entry the state after the final norm.
  ASSERT_EQ(t["hidden"].size(), static_cast<size_t>(n_layers) + 1);
  for (size_t l = 0; l < static_cast<size_t>(n_layers); ++l)
    expect_trace(r.residual[l].row(last), t["hidden"][l], "hidden " + std::to_string(l));
  expect_trace(r.hidden_row(last), t["hidden"].back(), "final norm");
  for (const Json& pair : t["logits_top10"])
    EXPECT_NEAR(r.logits_row(last)[pair[0].get<size_t>()], pair[1].get<double>(), kTolerance);
  for (size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(r.logits_row(last)[i], t["logits_first8"][i].get<double>(), kTolerance);
  for (int i = 0; i <= last; ++i)
    EXPECT_EQ(argmax(r.logits_row(i)),
              t["argmax_all_positions"][static_cast<size_t>(i)].get<int32_t>());
  std::vector<int> path(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) path[i] = static_cast<int>(i);
  session_->commit(path);
  std::vector<float> k(192), v(192);
  session_->read_kv(0, last, 0, k, v);
  expect_trace(k, t["layer0"]["k_rope"], "k_rope");
  expect_trace(v, t["layer0"]["v_proj"], "v_proj");
}

// All prompts are tokenized. A quarter of them is continued, other ones in other runs: 192 tokens
// with their probabilities and margins, and the best five of 48. A prompt takes 8 s, and a forward
// that is wrong for one text is hardly right for two others.
TEST_F(SmolLM2, GreedyTokensLogitsAndMargins) {
  const std::vector<Json> cases = read("greedy.json")["cases"];
  ASSERT_EQ(cases.size(), 12u);
  for (const Json& c : cases)
    EXPECT_EQ(model_->tokenizer()->encode(c["prompt"].get<std::string>()),
              c["prompt_ids"].get<std::vector<int32_t>>())
        << c["id"];
  for (const Json& c : tests::sample(cases, 3)) {
    const std::string id = c["id"];
    const std::vector<int32_t> prompt = c["prompt_ids"], greedy = c["greedy_ids"];
    session_->reset();
    session_->prefill(std::span(prompt).first(prompt.size() - 1));
    int32_t token = prompt.back();
    for (size_t i = 0; i < greedy.size(); ++i) {
      const Row row{.token = token};
      const ForwardResult r = session_->forward({.rows = {&row, 1}});
      const auto logits = r.logits_row(0);
      // After the end token the texts are still valid argmaxes of the reference.
      ASSERT_EQ(argmax(logits), greedy[i]) << id << " token " << i;
      EXPECT_NEAR(log_probability(logits, greedy[i]), c["logprob"][i].get<double>(), kTolerance)
          << id << " " << i;
      for (const Json& pair : i < c["top5"].size() ? c["top5"][i] : Json::array())
        EXPECT_NEAR(logits[pair[0].get<size_t>()], pair[1].get<double>(), kTolerance)
            << id << " " << i;
      const auto best = top_k(logits, 2);
      EXPECT_NEAR(best[0].logit - best[1].logit, c["margin"][i].get<double>(), 2 * kTolerance)
          << id << " " << i;
      const int zero = 0;
      session_->commit({&zero, 1});
      token = greedy[i];
    }
  }
}

// The text of 512 tokens each time, token by token. The one of 4096 takes two minutes, and has one
// figure of the whole; what a long context adds is tested every time by parts: the angles of far
// positions (Rope.TablesOfPublishedModels), sums over many chunks of keys (bit identity of small
// models).
TEST_F(SmolLM2, Perplexity) {
  const Json p = read("perplexity.json");
  ASSERT_EQ(p["texts"].size(), 2u);
  for (const Json& text : p["texts"]) {
    const std::string file = text["file"];
    if (text["n_tokens"].get<int>() > 512 && !tests::test_everything()) continue;
    const auto ids = model_->tokenizer()->encode(base::read_file(shared_folder() + file));
    ASSERT_EQ(ids.size(), text["n_tokens"].get<size_t>()) << file;
    if (text.contains("ids")) {
      EXPECT_EQ(ids, text["ids"].get<std::vector<int32_t>>());
    }
    session_->reset();
    double sum = 0;
    score(ids, [&](size_t i, std::span<const float> logits) {
      if (i + 1 >= ids.size()) return;
      const double logprob = log_probability(logits, ids[i + 1]);
      sum += logprob;
      if (text.contains("logprob")) {
        EXPECT_NEAR(logprob, text["logprob"][i].get<double>(), kTolerance) << file << " " << i;
      }
    });
    const double perplexity = std::exp(-sum / static_cast<double>(ids.size() - 1));
    const double want = text["ppl_full_context"];
    EXPECT_NEAR(perplexity, want, 1e-4 * want) << file;  // 0.01 %
  }
}

}  // namespace
}  // namespace evalrun::engine
