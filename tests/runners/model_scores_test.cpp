// Scores that models give: likelihoods by hand, the mean of what is drawn as it should be, and
// whole runs against rows computed one by one.
#include "runners/measure/model_scores.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <span>

#include "engine/base/rng.h"
#include "engine/base/stats.h"
#include "results/generation_queries.h"
#include "runners/measure/runner.h"
#include "runners/measure/text_likelihood.h"
#include "tests/methods/support/fake_session.h"
#include "tests/runners/fakes.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

using Tokens = std::vector<int32_t>;

std::vector<double> softmax(std::span<const float> logits, double temperature) {
  const double best = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0;
  for (const float x : logits) {
    p.push_back(std::exp((static_cast<double>(x) - best) / temperature));
    sum += p.back();
  }
  for (double& x : p) x /= sum;
  return p;
}

double entropy_of(const std::vector<double>& p) {
  double entropy = 0;
  for (const double x : p) entropy -= x * std::log(x);
  return entropy;
}

engine::SamplingParams at(double temperature, double top_p = 1) {
  engine::SamplingParams sampling;
  sampling.temperature = temperature;
  sampling.top_p = top_p;
  return sampling;
}

TEST(TextLikelihood, ByHand) {
  const std::vector<double> p = {0.5, 0.3, 0.1995, 0.0005};
  tests::FakeSession session(4, 10, [&](std::span<const int32_t>, std::span<float> logits) {
    for (size_t i = 0; i < 4; ++i) logits[i] = static_cast<float>(std::log(p[i]));
  });
  const auto of = [&](int32_t token, const engine::SamplingParams& sampling) {
    return text_likelihood(session, Tokens{1, 2}, Tokens{token}, sampling);
  };
  double surprise = 0, rare = 0;  // expected
  for (int32_t t = 0; t < 4; ++t) {
    const double own = p[static_cast<size_t>(t)];
    const TextLikelihood found = of(t, at(1));
    EXPECT_EQ(found.tokens, 1);
    EXPECT_NEAR(found.nll, -std::log(own), 1e-6);
    EXPECT_NEAR(found.surprise, -std::log(own) - entropy_of(p), 1e-6);
    EXPECT_NEAR(found.rare, (t == 3 ? 1 : 0) - 0.0005, 1e-7);
    surprise += own * found.surprise;
    rare += own * found.rare;
    // Colder: what is drawn from is another distribution, the model is the same.
    const TextLikelihood cold = of(t, at(0.5));
    EXPECT_EQ(cold.nll, found.nll);
    const double squares = 0.25 + 0.09 + 0.1995 * 0.1995 + 0.0005 * 0.0005;
    std::vector<double> q;
    for (const double x : p) q.push_back(x * x / squares);
    EXPECT_NEAR(cold.surprise, -std::log(q[static_cast<size_t>(t)]) - entropy_of(q), 1e-5);
    const TextLikelihood greedy = of(t, {});
    EXPECT_EQ(greedy.nll, found.nll);
    EXPECT_EQ(greedy.surprise, 0);
    EXPECT_EQ(greedy.rare, 0);
    // 0.5 and 0.3 reach 0.7.
    const TextLikelihood cut = of(t, at(1, 0.7));
    EXPECT_EQ(cut.impossible, t < 2 ? 0 : 1);
    EXPECT_EQ(cut.nll, found.nll);
    if (t >= 2) {
      EXPECT_EQ(cut.surprise, 0);
    }
  }
  EXPECT_NEAR(surprise, 0, 1e-6);
  EXPECT_NEAR(rare, 0, 1e-7);
}

TEST(TextLikelihood, LongTextsAreReadInBlocks) {
  constexpr int kVocab = 7;
  tests::FakeSession session(
      kVocab, 1000, [](std::span<const int32_t> context, std::span<float> logits) {
        for (size_t i = 0; i < kVocab; ++i)
          logits[i] = static_cast<float>(
              (context.size() * 7 + static_cast<size_t>(context.back()) * 3 + i * 5) % 11);
      });
  base::Rng rng(1);
  Tokens text;
  for (int i = 0; i < 600; ++i) text.push_back(static_cast<int32_t>(rng.below(kVocab)));
  const Tokens prompt = {3, 1, 4};
  const TextLikelihood whole = text_likelihood(session, prompt, text, at(1));
  EXPECT_EQ(whole.tokens, 600);
  Tokens seen = prompt;
  seen.insert(seen.end(), text.begin(), text.end() - 1);
  EXPECT_EQ(session.committed(), seen);
  TextLikelihood sum;
  Tokens before = prompt;
  for (const int32_t token : text) {
    const TextLikelihood one = text_likelihood(session, before, Tokens{token}, at(1));
    sum.nll += one.nll;
    sum.surprise += one.surprise;
    sum.rare += one.rare;
    before.push_back(token);
  }
  EXPECT_NEAR(whole.nll, sum.nll, 1e-9);
  EXPECT_NEAR(whole.surprise, sum.surprise, 1e-9);
  EXPECT_NEAR(whole.rare, sum.rare, 1e-9);
}

// Texts that end with token 0, drawn by `distort(p)`: how many standard errors the mean lies off 0.
struct Deviates {
  double surprise = 0, rare = 0;
};
Deviates deviates(const std::function<void(std::vector<double>&)>& distort) {
  constexpr int kVocab = 50, kTexts = 2000, kLongest = 40;
  tests::FakeSession session(
      kVocab, 64, [](std::span<const int32_t> context, std::span<float> logits) {
        for (size_t i = 0; i < kVocab; ++i)
          logits[i] = -0.15f * static_cast<float>(
                                   (i * 7 + static_cast<size_t>(context.back()) * 3) % kVocab);
      });
  base::Rng rng(5);
  std::vector<double> surprise, rare;
  for (int n = 0; n < kTexts; ++n) {
    Tokens text;
    while (text.size() < kLongest && (text.empty() || text.back() != 0)) {
      std::vector<float> logits(kVocab);
      const size_t last = text.empty() ? 9 : static_cast<size_t>(text.back());
      for (size_t i = 0; i < kVocab; ++i)
        logits[i] = -0.15f * static_cast<float>((i * 7 + last * 3) % kVocab);
      std::vector<double> p = softmax(logits, 1);
      distort(p);
      double left = rng.uniform();
      size_t token = 0;
      while (token + 1 < p.size() && left >= p[token]) left -= p[token++];
      text.push_back(static_cast<int32_t>(token));
    }
    const TextLikelihood found = text_likelihood(session, Tokens{9}, text, at(1));
    surprise.push_back(found.surprise);
    rare.push_back(found.rare);
  }
  const auto off = [](const std::vector<double>& x) {
    return base::mean(x) / base::sample_sd(x) * std::sqrt(static_cast<double>(x.size()));
  };
  return {off(surprise), off(rare)};
}

void normalise(std::vector<double>& p) {
  double sum = 0;
  for (const double x : p) sum += x;
  for (double& x : p) x /= sum;
}

// However long the texts are, and whatever ends them.
TEST(TextLikelihood, WhatIsDrawnAsItShouldBeHasTheMeanZero) {
  const Deviates honest = deviates([](std::vector<double>&) {});
  EXPECT_LT(std::abs(honest.surprise), 4);
  EXPECT_LT(std::abs(honest.rare), 4);
  const Deviates colder = deviates([](std::vector<double>& p) {
    for (double& x : p) x = std::pow(x, 1.1);
    normalise(p);
  });
  EXPECT_LT(colder.surprise, -8);
  const Deviates without_a_tail = deviates([](std::vector<double>& p) {
    for (double& x : p) x = x < 1e-3 ? 0 : x;
    normalise(p);
  });
  EXPECT_LT(without_a_tail.rare, -8);
}

class ModelScores : public ::testing::Test {
 protected:
  ModelScores() : store_(folder_.file("run.db")) {
    std::ofstream(folder_.file("run.jsonl"))
        << R"({"id": "a", "turns": ["abcabcabcabc"], "reference": "xyz"})"
        << "\n"
        << R"({"id": "b", "turns": ["one", "and two"]})"
        << "\n";
    request_.suite.tasks = {{.task = "jsonl:" + folder_.file("run.jsonl")}};
    request_.suite.methods = {"pld"};
    request_.suite.aa = false;
    request_.suite.max_new = 6;
    request_.suite.warmup = 1;
    request_.suite.sampling.temperature = 1;
    request_.suite.evaluators = {"answer_nll", "reference_nll", "surprise", "rare_tokens",
                                 "repeats"};
    request_.target = tests::tiny_model(512);
    request_.session.n_threads = 1;
  }
  RunOutcome execute(const RunnerOptions& options = {}) {
    PlanRequest request = request_;
    complete_suite(request.suite, "test");
    return run_suite(request, store_, clock_, options);
  }
  int64_t count(const std::string& sql) {
    int64_t n = 0;
    store_.query(sql, {}, [&](const results::Row& row) {
      n = row.integer(0);
      return false;
    });
    return n;
  }
  // By evaluator, of a generation.
  std::map<std::string, results::ScoreRecord> scores(int64_t generation) {
    std::map<std::string, results::ScoreRecord> found;
    const auto stored = results::find_generation(store_, generation);
    for (const results::ScoreRecord& s : stored->scores) found[s.evaluator] = s;
    return found;
  }
  // Of a text after a prompt, from one row a forward.
  TextLikelihood one_by_one(const Tokens& prompt, const Tokens& text) {
    engine::SessionOptions options;
    options.n_threads = 1;
    options.max_tokens = 256;
    const auto session = engine::Session::create(request_.target, options);
    session->prefill(std::span(prompt).first(prompt.size() - 1));
    TextLikelihood sum;
    int32_t last = prompt.back();
    for (const int32_t token : text) {
      engine::Row row;
      row.token = last;
      engine::ForwardRequest request;
      request.rows = {&row, 1};
      const std::vector<double> p = softmax(session->forward(request).logits_row(0), 1);
      const int root = 0;
      session->commit({&root, 1});
      const double own = p[static_cast<size_t>(token)];
      ++sum.tokens;
      sum.nll -= std::log(own);
      sum.surprise += -std::log(own) - entropy_of(p);
      double tail = 0;
      for (const double x : p) tail += x < 1e-3 ? x : 0;
      sum.rare += (own < 1e-3 ? 1 : 0) - tail;
      last = token;
    }
    return sum;
  }

  tests::TempFolder folder_;
  results::ResultStore store_;
  base::SteadyClock clock_;
  PlanRequest request_;
};

TEST_F(ModelScores, AreThoseOfPlainDecoding) {
  const RunOutcome outcome = execute();
  ASSERT_EQ(outcome.status, RunStatus::kComplete);
  EXPECT_EQ(outcome.scored, 4 * 4) << "two prompts, two arms, four evaluators";
  const Conversation conversation(*request_.target);
  datasets::Prompt prompts[2];
  prompts[0].turns = {"abcabcabcabc"};
  prompts[1].turns = {"one", "and two"};
  for (int64_t id = 1; id <= 4; ++id) {
    const auto generation = results::find_generation(store_, id);
    ASSERT_TRUE(generation.has_value());
    const datasets::Prompt& prompt = prompts[generation->turns.size() - 1];
    std::vector<std::string> earlier;
    for (size_t i = 0; i + 1 < generation->turns.size(); ++i)
      earlier.push_back(generation->turns[i].text);
    const Tokens ids = conversation.encode(prompt, conversation.render(prompt, earlier));
    const TextLikelihood want = one_by_one(ids, generation->turns.back().tokens);
    auto found = scores(id);
    EXPECT_NEAR(*found["answer_nll"].value, want.nll / static_cast<double>(want.tokens), 1e-9);
    EXPECT_NEAR(*found["surprise"].value, want.surprise, 1e-9);
    EXPECT_NEAR(*found["rare_tokens"].value, want.rare, 1e-9);
    EXPECT_EQ(found["answer_nll"].facts, fmt::format(R"({{"tokens":{}}})", want.tokens));
    EXPECT_TRUE(found.contains("repeats")) << "needs no reference";
    if (earlier.empty()) {
      const TextLikelihood reference = one_by_one(ids, {'x', 'y', 'z'});
      EXPECT_NEAR(*found["reference_nll"].value, reference.nll / 3, 1e-9);
    } else {
      EXPECT_EQ(found["reference_nll"].status, "no reference");
      EXPECT_FALSE(found["reference_nll"].value);
    }
  }
}

TEST_F(ModelScores, AreTakenWhenTheRunIsResumed) {
  execute();
  const double before = *scores(3)["surprise"].value;
  store_.execute("DELETE FROM score WHERE evaluator = 'surprise'");
  store_.execute("UPDATE run SET finished = NULL");
  // The shell is wanted back.
  RunnerOptions hurry;
  hurry.stop = [] { return true; };
  const RunOutcome stopped = execute(hurry);
  EXPECT_EQ(stopped.status, RunStatus::kInterrupted);
  EXPECT_EQ(count("SELECT count(*) FROM score WHERE evaluator = 'surprise'"), 0);
  const RunOutcome resumed = execute();
  EXPECT_EQ(resumed.status, RunStatus::kComplete);
  EXPECT_EQ(resumed.measured, 0);
  EXPECT_EQ(resumed.scored, 4);
  EXPECT_EQ(*scores(3)["surprise"].value, before);
  EXPECT_EQ(count("SELECT count(*) FROM run WHERE finished IS NOT NULL"), 1);
  EXPECT_EQ(execute().scored, 0);
}

TEST_F(ModelScores, GreedyAnswersAreNotDrawn) {
  request_.suite.sampling.temperature = 0;
  execute();
  auto found = scores(1);
  EXPECT_TRUE(found["answer_nll"].value);
  for (const char* name : {"surprise", "rare_tokens"}) {
    EXPECT_EQ(found[name].status, "greedy");
    EXPECT_FALSE(found[name].value);
  }
}

// A reference may be longer than any answer.
TEST_F(ModelScores, WhatDoesNotFitIsSaid) {
  std::ofstream(folder_.file("run.jsonl"))
      << R"({"id": "a", "turns": ["abc"], "reference": ")" << std::string(4000, 'x') << "\"}\n";
  request_.suite.evaluators = {"reference_nll"};
  const RunOutcome outcome = execute();
  EXPECT_EQ(outcome.status, RunStatus::kComplete);
  EXPECT_EQ(scores(1)["reference_nll"].status, "too long");
  EXPECT_FALSE(scores(1)["reference_nll"].value);
}

}  // namespace
}  // namespace evalrun::runners
