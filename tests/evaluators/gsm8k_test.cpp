// GSM8K judges against lm-evaluation-harness itself: tests/data/gsm8k_cases.jsonl holds what its
// code (0.4.8, task version 3.0) extracts and decides; make_gsm8k_cases.py writes it.
#include "evaluators/gsm8k.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "evaluators/self_test.h"

namespace evalrun::evaluators {
namespace {

datasets::Prompt prompt_with(const std::string& reference) {
  datasets::Prompt prompt;
  prompt.id = "p";
  prompt.turns = {"question"};
  prompt.reference = reference;
  return prompt;
}

TEST(Gsm8kGolden, AgreesWithTheHarness) {
  int n_cases = 0, n_right = 0;
  for (const std::string& line :
       base::split(base::read_file(EVALRUN_TEST_DATA "/gsm8k_cases.jsonl"), '\n')) {
    if (line.empty()) continue;
    const auto row = nlohmann::json::parse(line);
    const datasets::Prompt prompt = prompt_with(row["reference"]);
    const std::vector<std::string> texts{row["text"]};
    for (const char* kind : {"strict", "flexible"}) {
      const auto& judge = find_evaluator(std::string("gsm8k_") + kind);
      const results::ScoreRecord score = judge.score(prompt, texts, {});
      SCOPED_TRACE(
          fmt::format("{}, {}: {}", row["name"].get<std::string>(), kind, row["text"].dump()));
      EXPECT_EQ(score.extracted, row[kind]["extracted"].get<std::string>());
      EXPECT_EQ(score.value, row[kind]["score"].get<double>());
      EXPECT_EQ(score.status, "ok");
      n_right += row[kind]["score"].get<int>();
    }
    ++n_cases;
  }
  EXPECT_GE(n_cases, 800);
  EXPECT_GE(n_right, 200) << "the cases must not all be failures";
}

TEST(Gsm8k, JudgesTheLastTurnAndNamesItself) {
  const auto& judge = find_evaluator("gsm8k_flexible");
  const auto score = judge.score(prompt_with("#### 3"), {"first 1", "then 3"}, {});
  EXPECT_EQ(score.value, 1);
  EXPECT_EQ(score.evaluator, "gsm8k_flexible");
  EXPECT_EQ(score.version, "lm-eval-3");
}

TEST(Gsm8k, NoReferenceOrAnswerIsAStatus) {
  datasets::Prompt prompt = prompt_with("#### 3");
  const auto& judge = find_evaluator("gsm8k_strict");
  EXPECT_EQ(judge.score(prompt, {}, {}).status, "no answer");
  prompt.reference.reset();
  EXPECT_EQ(judge.score(prompt, {"#### 3"}, {}).status, "no reference");
}

TEST(Gsm8k, OddBytesAreJudgedLikeAnyText) {
  const std::string text = std::string("\xff\xfe so 1") + '\0' + "8\x80 #### 42\xc3";
  EXPECT_EQ(extract_gsm8k_strict(text), "42");
  EXPECT_EQ(extract_gsm8k_flexible(text), "42");
  EXPECT_TRUE(gsm8k_equal("42", std::string("\xff") + "#### 42"));
}

TEST(Gsm8k, LongTextIsLinear) {
  // A backtracking matcher, or one that rescans, would not finish: 4 MB of candidates.
  std::string text;
  for (int i = 0; i < 500000; ++i) text += "#### a1 ";
  text += "#### 77";
  EXPECT_EQ(extract_gsm8k_strict(text), "77");
  EXPECT_EQ(extract_gsm8k_flexible(text), "77");
}

TEST(EvaluatorRegistry, ListsWhatDataSetsAskFor) {
  for (const auto& [name, set] : datasets::dataset_registry().entries())
    for (const std::string& evaluator : set.info.evaluators)
      EXPECT_NE(evaluator_registry().find(evaluator), nullptr) << name << ": " << evaluator;
  for (const auto& [id, entry] : evaluator_registry().entries()) {
    EXPECT_EQ(id, entry.info.id());
    EXPECT_FALSE(entry.info.version.empty());
    EXPECT_FALSE(entry.info.summary.empty());
    EXPECT_FALSE(entry.info.unit.empty());
  }
  EXPECT_THROW(find_evaluator("gsm8k_stric"), base::Error);
}

TEST(EvaluatorRegistry, PassesItsSelfTest) {
  const SelfTestResult result = self_test();
  EXPECT_THAT(result.problems, ::testing::IsEmpty());
  EXPECT_GE(result.n_evaluators, 11);
  EXPECT_GE(result.n_vectors, 3 * result.n_evaluators);
}

}  // namespace
}  // namespace evalrun::evaluators
