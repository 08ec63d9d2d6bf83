// The oracle gap: ways that are found by hand or by trying all of them, and bounds around drafters
// whose every token is known here.
#include "reports/predict/oracle.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "reports/predict/predict_report.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::StepRecord;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

StepRecord taken(int drafted, int accepted, int emitted) {
  StepRecord s;
  s.drafted = s.drafted_depth = drafted;
  s.rows = 1 + drafted;
  s.accepted = accepted, s.emitted = emitted;
  return s;
}

// Steps of a drafter that gets the tokens `right` right, wherever its drafts begin.
std::vector<StepRecord> drafted(const std::vector<bool>& right, int length) {
  std::vector<StepRecord> steps;
  const auto n = static_cast<int>(right.size());
  for (int place = 0; place < n; place += steps.back().emitted) {
    int accepted = 0;
    while (accepted < length && place + accepted < n &&
           right[static_cast<size_t>(place + accepted)])
      ++accepted;
    steps.push_back(taken(length, accepted, std::min(accepted + 1, n - place)));
  }
  return steps;
}

TEST(OracleKnowledge, ByHand) {
  // a a a b | a r | n: accepted, the target's own after a whole draft, refused, nothing drafted.
  const TracedTurn turn{.steps = {taken(3, 3, 4), taken(3, 1, 2), taken(0, 0, 1)}};
  const Knowledge text = knowledge_of(turn, 7, 3, true);
  EXPECT_THAT(text.least, ElementsAre(3, 2, 1, 0, 1, 0, 0));
  EXPECT_THAT(text.most, ElementsAre(3, 3, 3, 2, 1, 0, 1));
  const Knowledge other = knowledge_of(turn, 7, 3, false);
  EXPECT_THAT(other.least, ElementsAre(3, -1, -1, -1, 1, -1, -1));
}

TEST(OracleWay, ByHand) {
  // Five tokens; two may be had at the beginning, two from the third token on. A step costs 10, and
  // 1 for each draft token: two tokens at once, then two: 12 + 12.
  const StepTime time = [](int length) { return 10.0 + length; };
  const Way way = best_way(5, {{2, 1, 0, 2, 1}}, {time}, 10);
  EXPECT_EQ(way.steps, 2);
  EXPECT_EQ(way.ns, 23);  // the last draft token needs no draft: 12 + 11
  EXPECT_EQ(best_way(5, {}, {}, 10).steps, 5);
  EXPECT_EQ(best_way(0, {}, {}, 10).ns, 0);
  // A drafter that costs more than it gives is not asked.
  EXPECT_EQ(best_way(2, {{1, 1}}, {[](int) { return 21.0; }}, 10).ns, 20);
}

TEST(OracleWay, IsTheBestOfAll) {
  base::Rng rng(5);
  for (int round = 0; round < 200; ++round) {
    const int n = 1 + static_cast<int>(rng.below(9));
    std::vector<std::vector<int>> right(2, std::vector<int>(static_cast<size_t>(n)));
    for (auto& arm : right)
      for (int& r : arm) r = static_cast<int>(rng.below(5)) - 1;
    std::vector<double> cost(8);
    for (double& c : cost) c = 1 + rng.uniform();
    const std::vector<StepTime> times = {[&](int l) { return cost[static_cast<size_t>(l)]; },
                                         [&](int l) { return cost[static_cast<size_t>(l + 4)]; }};
    const std::function<Way(int)> best = [&](int place) -> Way {
      if (place >= n) return {};
      Way way = best(place + 1);
      way.steps += 1, way.ns += 1.5;
      for (size_t a = 0; a < 2; ++a)
        for (int l = 1; l <= right[a][static_cast<size_t>(place)]; ++l) {
          const Way rest = best(place + l + 1);
          way.steps = std::min(way.steps, 1 + rest.steps);
          way.ns = std::min(way.ns, times[a](l) + rest.ns);
        }
      return way;
    };
    const Way way = best_way(n, right, times, 1.5), expected = best(0);
    EXPECT_EQ(way.steps, expected.steps);
    EXPECT_NEAR(way.ns, expected.ns, 1e-12);
  }
}

// What stored steps say of a drafter holds for the drafter, whose every token is known here; and
// where a bound is called exact, it is what the drafter could have given.
TEST(OracleKnowledge, BoundsHoldTheTruth) {
  base::Rng rng(11);
  int exact = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<bool> right(40);
    const double share = rng.uniform();
    for (size_t i = 0; i < right.size(); ++i) right[i] = rng.uniform() < share;
    const int length = 1 + static_cast<int>(rng.below(6));
    const TracedTurn turn{.steps = drafted(right, length)};
    const Knowledge known = knowledge_of(turn, 40, length, true);
    std::vector<int> truth(40);
    for (size_t p = 40; p-- > 0;)
      truth[p] = right[p] ? std::min(length, 1 + (p + 1 < 40 ? truth[p + 1] : 0)) : 0;
    for (size_t p = 0; p < 40; ++p) {
      EXPECT_LE(known.least[p], truth[p]);
      EXPECT_GE(known.most[p], truth[p]);
    }
    const std::vector<StepTime> times = {[](int l) { return 10.0 + 3 * l; }};
    const double least = 1 / best_way(40, {known.least}, times, 10).ns;
    const double most = 1 / best_way(40, {known.most}, times, 10).ns;
    const double best = 1 / best_way(40, {truth}, times, 10).ns;
    EXPECT_LE(least, best);
    EXPECT_GE(most, best);
    const Bounds bounds{least, most};
    if (!bounds.exact()) continue;
    ++exact;
    EXPECT_NEAR(best, least, 1e-12);
  }
  EXPECT_GT(exact, 10);
}

class OracleReportTest : public ReportTest {
 protected:
  OracleReport oracle(const std::vector<tests::SyntheticArm>& arms, const RowTime& table = {}) {
    run_.arms = arms;
    const RunData data = load_run(store_, tests::fill(store_, run_));
    return oracle_report(store_, data, load_shared_answers(store_, data), {.one = table});
  }
  // The arm's steps are those of a drafter with these right tokens.
  void draft(const std::string& label, int length, uint64_t seed) {
    drafters_[label] = {length, seed};
    run_.change = [this](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt,
                         int, int) {
      const auto found = drafters_.find(a.label);
      if (found == drafters_.end()) return;
      base::Rng rng(found->second.second + static_cast<uint64_t>(prompt));
      std::vector<bool> right(g.turns[0].tokens.size() - 1);
      for (size_t i = 0; i < right.size(); ++i) right[i] = rng.uniform() < 0.7;
      g.turns[0].steps = drafted(right, found->second.first);
      g.turns[0].nodes.clear();
      g.turns[0].decode_ns = 0;
      for (StepRecord& s : g.turns[0].steps) {
        s.draft_ns = 100'000 * s.drafted, s.verify_ns = 10'000'000 + 1'000'000 * s.drafted;
        s.commit_ns = 0, s.other_ns = 100'000;
        g.turns[0].decode_ns += s.draft_ns + s.verify_ns + s.other_ns;
      }
    };
  }
  static tests::SyntheticArm arm(const std::string& label, const std::string& method) {
    tests::SyntheticArm a = tests::usual_arms().back();
    a.label = label, a.method = method;
    return a;
  }
  std::map<std::string, std::pair<int, uint64_t>> drafters_;
};

TEST_F(OracleReportTest, RowsNeededAndTheReport) {
  draft("sps:k=4", 4, 1);
  draft("pld:k=6", 6, 2);
  const std::vector<tests::SyntheticArm> usual = tests::usual_arms();
  const OracleReport r = oracle({usual[0], arm("sps:k=4", "sps"), arm("pld:k=6", "pld")});
  ASSERT_THAT(r.rows, SizeIs(3));
  EXPECT_EQ(r.answers, 4);
  EXPECT_EQ(r.left_out, 0);
  for (const OracleRow& row : r.rows) {
    EXPECT_GE(row.best_tau.least, row.tau - 1e-9) << row.arm;
    EXPECT_GT(row.best_speedup.least, row.speedup) << row.arm;
    EXPECT_LT(row.reached(), 1) << row.arm;
    EXPECT_GE(r.rows.back().best_speedup.least, row.best_speedup.least - 1e-9) << row.arm;
    // Of accepted tokens and the root alone. The last step of an answer may have no root's token.
    EXPECT_NEAR(row.rows_needed, row.tau, 0.15) << row.arm;
    EXPECT_GT(row.rows, row.rows_needed) << row.arm;
  }
  ASSERT_TRUE(r.rows[0].best_speedup.most);
  EXPECT_GE(*r.rows[0].best_speedup.most, r.rows[0].best_speedup.least);
  EXPECT_FALSE(r.rows[1].best_speedup.most) << "a look-up's drafts depend on where they begin";
  EXPECT_FALSE(r.rows[2].best_speedup.most);
  EXPECT_EQ(r.rows[2].arm, "");
}

// A step of n rows in a batch of two is a part of a forward of 2 n: between the measured one and
// five rows the table's kink lies elsewhere.
TEST_F(OracleReportTest, ABatchHasTheTableAtTheRowsOfAllItsAnswers) {
  draft("sps:k=4", 4, 1);
  const RowTime kinked = [](int rows) { return rows <= 6 ? 10.0 : 10.0 + 4 * (rows - 6); };
  const auto best_of = [&](int batch, const RowTime& table) {
    std::vector<tests::SyntheticArm> arms = {tests::usual_arms()[0], arm("sps:k=4", "sps")};
    for (tests::SyntheticArm& a : arms) {
      a.batch = batch;
      if (batch > 1) a.settings["batch_mode"] = "static";
    }
    run_.key += "x";
    return oracle(arms, table).rows.at(0).best_speedup.least;
  };
  const double two = best_of(2, kinked);
  EXPECT_DOUBLE_EQ(two, best_of(1, [&](int rows) { return kinked(2 * rows); }));
  EXPECT_GT(std::abs(two - best_of(1, kinked)), 0.01);
}

TEST_F(OracleReportTest, AnswersThatArmsDoNotShareAreLeftOut) {
  const std::vector<tests::SyntheticArm> usual = tests::usual_arms();
  tests::SyntheticArm lossy = arm("medusa", "medusa");
  lossy.lossless = "none";
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                   int) {
    if (a.role == "method" && prompt == 1) g.turns[0].tokens[3] += 1;
  };
  const OracleReport r = oracle({usual[0], usual[2], lossy});
  ASSERT_THAT(r.rows, SizeIs(1));
  EXPECT_EQ(r.answers, 3);
  EXPECT_EQ(r.left_out, 1);
  EXPECT_THAT(r.notes, ElementsAre(HasSubstr("medusa does not promise")));
}

TEST_F(OracleReportTest, NothingShared) {
  EXPECT_THROW(oracle({tests::usual_arms()[0]}), base::Error);
}

TEST_F(OracleReportTest, EveryFormSaysWhatIsExact) {
  draft("sps:k=4", 4, 1);
  const OracleReport r = oracle({tests::usual_arms()[0], arm("sps:k=4", "sps"), arm("pld", "pld")});
  PredictReport report;
  report.oracle = r;
  for (const std::string& text : {to_text(report), to_markdown(report), to_latex(report)}) {
    EXPECT_THAT(text, HasSubstr("best of them at every step"));
    EXPECT_THAT(text, HasSubstr("answers that all arms share"));
  }
  EXPECT_THAT(to_text(report), HasSubstr(">= "));
  const Json parsed = Json::parse(to_json(report));
  EXPECT_EQ(parsed["oracle"]["rows"].size(), 3u);
  const Json bounds = parsed["oracle"]["rows"][0]["best_speedup"];
  EXPECT_EQ(bounds["exact"].get<bool>(),
            bounds["most"].get<double>() - bounds["least"].get<double>() < 1e-9);
  EXPECT_THAT(to_text(report), HasSubstr(bounds["exact"].get<bool>() ? "= " : " to "));
  EXPECT_EQ(parsed["oracle"]["rows"][1]["best_speedup"]["exact"], false);
  EXPECT_TRUE(parsed["oracle"]["rows"][1]["best_speedup"]["most"].is_null());
  EXPECT_TRUE(parsed["oracle"]["rows"][2]["method"].is_null());
  EXPECT_THAT(to_csv(report), HasSubstr("best_speedup_least"));
}

}  // namespace
}  // namespace evalrun::reports
