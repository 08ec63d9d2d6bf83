// Answers against those of the baseline arm, on a store without an engine.
#include "runners/score/baseline_similarity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/results/synthetic.h"

namespace evalrun::runners {
namespace {

using results::GenerationRecord;
using results::ResultStore;
using results::Row;
using ::testing::HasSubstr;
using tests::SyntheticArm;

class BaselineSimilarity : public ::testing::Test {
 protected:
  BaselineSimilarity() : store_(folder_.file("a.db")) {
    run_.arms = tests::usual_arms();
    run_.prompts_per_task = 3;
    run_.samples = 2;
    // Plain decoding says the same twice, the method another word at the end and less in sample 1.
    run_.change = [](GenerationRecord& g, const SyntheticArm& a, int prompt, int, int sample) {
      g.texts = {fmt::format("the cat sat on mat {}", prompt)};
      if (a.role == "method")
        g.texts = {sample == 0 ? fmt::format("the cat sat on mat {}x", prompt) : "the cat sat"};
    };
  }
  SimilarityOutcome score(const std::vector<std::string>& names = {}) {
    std::vector<const evaluators::EvaluatorEntry*> judges;
    for (const std::string& name : names) judges.push_back(&evaluators::find_evaluator(name));
    if (judges.empty()) judges = similarity_evaluators();
    ScorePoolOptions pool;
    pool.workers = 3;
    return score_against_baseline(store_, run_id_, judges, clock_, pool);
  }
  void fill() { run_id_ = tests::fill(store_, run_); }
  std::string message(const std::vector<std::string>& names = {}) {
    try {
      score(names);
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kUsage);
      return std::string(e.what()) + " | " + e.hint();
    }
    return "no error";
  }
  tests::TempFolder folder_;
  ResultStore store_;
  tests::SyntheticRun run_;
  int64_t run_id_ = 0;
  base::SteadyClock clock_;
};

TEST_F(BaselineSimilarity, ComparesTheSamePromptAndSample) {
  run_.repeats = 2;  // the same text again: judged once
  fill();
  const SimilarityOutcome outcome = score({"rouge1@rouge_score-0.1.2", "bleu"});
  EXPECT_EQ(outcome.answers, 2 * 3 * 2);
  EXPECT_EQ(outcome.unpaired, 0);
  EXPECT_FALSE(outcome.stopped);
  ASSERT_EQ(outcome.scores.size(), 2u * 12);
  for (const SimilarityScore& s : outcome.scores) {
    EXPECT_EQ(s.repeat, 0);
    const bool bleu = s.score.evaluator == "bleu-vs-baseline";
    if (!bleu) {
      EXPECT_EQ(s.score.evaluator, "rouge1-vs-baseline");
      EXPECT_EQ(s.score.version, "rouge_score-0.1.2");
    }
    ASSERT_TRUE(s.score.value.has_value());
    if (s.arm == "ar (A/A)") {
      EXPECT_NEAR(*s.score.value, bleu ? 100 : 1, 1e-9);
    } else if (!bleu) {
      // 5 of 6 words on both sides; 3 of 3 against 6.
      EXPECT_NEAR(*s.score.value, s.sample == 0 ? 5.0 / 6 : 2.0 * 3 / 9, 1e-12);
    } else {
      EXPECT_LT(*s.score.value, 90);
    }
  }
}

TEST_F(BaselineSimilarity, ScoresAreStoredApartFromOthersAndReplaced) {
  fill();
  const auto rows = [&](const std::string& where) {
    int64_t n = 0;
    store_.query("SELECT count(*) FROM v_score WHERE " + where, {}, [&](const Row& r) {
      n = r.integer(0);
      return false;
    });
    return n;
  };
  const int64_t before = rows("1");
  for (int again = 0; again < 2; ++again) {
    std::vector<std::pair<int64_t, results::ScoreRecord>> stored;
    for (const SimilarityScore& s : score().scores) stored.emplace_back(s.generation_id, s.score);
    store_.put_scores(stored);
    EXPECT_EQ(rows("1"), before + 4 * 12);
    EXPECT_EQ(rows("evaluator LIKE '%-vs-baseline'"), 4 * 12);
    EXPECT_EQ(rows("evaluator = 'rougeL'"), 0);
  }
  store_.query(
      "SELECT value, n FROM v_quality q JOIN arm a ON a.id = q.arm_id "
      "WHERE a.role = 'method' AND evaluator = 'rouge1-vs-baseline'",
      {}, [](const Row& r) {
        EXPECT_NEAR(r.number(0), (5.0 / 6 + 2.0 / 3) / 2, 1e-12);
        EXPECT_EQ(r.integer(1), 6);
        return true;
      });
}

TEST_F(BaselineSimilarity, AnAnswerWithoutACounterpartIsCountedAndLeftOut) {
  const auto usual = run_.change;
  run_.change = [&](GenerationRecord& g, const SyntheticArm& a, int prompt, int repeat, int s) {
    usual(g, a, prompt, repeat, s);
    if (a.role == "baseline" && prompt == 1) g.status = "failed: context full";
    if (a.role == "method" && prompt == 2) g.status = "failed: context full";
  };
  fill();
  const SimilarityOutcome outcome = score({"bleu"});
  EXPECT_EQ(outcome.unpaired, 4);  // two samples of two arms
  EXPECT_EQ(outcome.answers, 12 - 4 - 2);
}

TEST_F(BaselineSimilarity, TheLastTurnCounts) {
  run_.change = [](GenerationRecord& g, const SyntheticArm& a, int, int, int) {
    g.turns.push_back(g.turns[0]);
    g.texts = {a.label, "the same words"};
  };
  fill();
  for (const SimilarityScore& s : score({"bleu"}).scores) EXPECT_NEAR(*s.score.value, 100, 1e-9);
}

TEST_F(BaselineSimilarity, RefusesWhatCannotBeCompared) {
  fill();
  EXPECT_THAT(message({"gsm8k"}), HasSubstr("gsm8k@evalrun does not measure how alike"));
  run_.key = "alone";
  run_.arms.resize(1);
  fill();
  EXPECT_THAT(message(), HasSubstr("no answer to compare"));
}

TEST_F(BaselineSimilarity, AStopKeepsWhatWasScored) {
  fill();
  ScorePoolOptions pool;
  pool.stop_requested = [] { return true; };
  const SimilarityOutcome outcome =
      score_against_baseline(store_, run_id_, similarity_evaluators(), clock_, pool);
  EXPECT_LE(outcome.scores.size(), 4u * 12);
  EXPECT_EQ(outcome.stopped, outcome.scores.size() < 4u * 12);
}

}  // namespace
}  // namespace evalrun::runners
