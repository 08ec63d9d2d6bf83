// `--estimator legacy` against the arithmetic of Spec-Bench's evaluation/speed.py, worked out here
// from the same answers as that script reads them: lists of new tokens and wall times per turn.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::GenerationRecord;
using results::StopReason;
using results::TurnRecord;

// One line of a file of answers.
struct Answer {
  std::vector<double> new_tokens;   // of a method: what its loop counted
  std::vector<double> text_tokens;  // of the baseline: its text, tokenized again
  std::vector<double> wall_time;    // seconds of the whole call
};

double sum(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

// The mean over answers of tokens per second.
double mean_speed(const std::vector<Answer>& answers, std::vector<double> Answer::*tokens) {
  double total = 0;
  for (const Answer& a : answers) total += sum(a.*tokens) / sum(a.wall_time);
  return total / static_cast<double>(answers.size());
}

class LegacyTest : public ReportTest {
 protected:
  // Answers of one to three turns, of different lengths, prefills and ends.
  int64_t fill_answers() {
    run_.prompts_per_task = 9;
    run_.change = [this](GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int, int) {
      const TurnRecord first = g.turns[0];
      for (int turn = 1; turn < 1 + prompt % 3; ++turn) {
        g.turns.push_back(first);
        g.texts.push_back("text");
      }
      Answer answer;
      for (size_t t = 0; t < g.turns.size(); ++t) {
        TurnRecord& turn = g.turns[t];
        turn.prefill_ns = 7'000'000 * (1 + prompt) + 3'000'000 * static_cast<int64_t>(t);
        turn.draft_prefill_ns = a.role == "method" ? 2'000'000 * (1 + prompt % 2) : 0;
        turn.decode_ns += 1'234'567 * prompt;
        turn.stop =
            (prompt + static_cast<int>(t)) % 2 == 0 ? StopReason::kStopToken : StopReason::kLimit;
        const auto n = static_cast<double>(turn.tokens.size());
        answer.new_tokens.push_back(n);
        answer.text_tokens.push_back(turn.stop == StopReason::kStopToken ? n - 1 : n);
        answer.wall_time.push_back(
            static_cast<double>(turn.prefill_ns + turn.draft_prefill_ns + turn.decode_ns) / 1e9);
      }
      answers_[a.label].push_back(answer);
    };
    return tests::fill(store_, run_);
  }
  double published(const std::string& label) {
    return mean_speed(answers_.at(label), &Answer::new_tokens) /
           mean_speed(answers_.at("ar"), &Answer::text_tokens);
  }
  std::map<std::string, std::vector<Answer>> answers_;  // by arm
};

TEST_F(LegacyTest, IsTheArithmeticOfThePublishedScript) {
  const Report r = build_report(store_, fill_answers(), {.estimator = Estimator::kLegacy});
  for (const char* label : {"pld:k=4", "ar (A/A)"}) {
    const SpeedFigures& speed = row(r, label, "gsm8k").speed;
    EXPECT_NEAR(*speed.speedup, published(label), 1e-12 * published(label)) << label;
    ASSERT_TRUE(speed.interval);
    EXPECT_LE(speed.interval->lo, *speed.speedup);
    EXPECT_GE(speed.interval->hi, *speed.speedup);
  }
  // Two rulers in one ratio: plain decoding measured twice is faster than itself.
  EXPECT_GT(*row(r, "ar (A/A)", "gsm8k").speed.speedup, 1);
}

TEST_F(LegacyTest, OtherEstimatorsSayOtherThings) {
  const int64_t id = fill_answers();
  const double expected = published("pld:k=4");
  for (const Estimator e : {Estimator::kSum, Estimator::kGeo, Estimator::kLegacyDecode}) {
    const Report r = build_report(store_, id, {.estimator = e});
    EXPECT_GT(std::abs(*row(r, "pld:k=4", "gsm8k").speed.speedup / expected - 1), 0.001)
        << to_string(e);
  }
}

// What the first line and the table of ranks say is in the same tokens and times as the column.
TEST_F(LegacyTest, RanksAreOfTheSameSpeeds) {
  const Report r = build_report(store_, fill_answers(), {.estimator = Estimator::kLegacy});
  const ReportRow &ar = row(r, "ar", "gsm8k"), &pld = row(r, "pld:k=4", "gsm8k");
  ASSERT_TRUE(ar.ranking && pld.ranking);
  ASSERT_TRUE(pld.ranking->fastest);
  EXPECT_NEAR(ar.ranking->against_fastest, 1 / *pld.speed.speedup, 1e-12);
}

}  // namespace
}  // namespace evalrun::reports
