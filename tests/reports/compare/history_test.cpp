// What an earlier run tells a plan, worked out by hand from a synthetic one.
#include "reports/compare/history.h"

#include <cmath>

#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

class HistoryTest : public ReportTest {
 protected:
  std::optional<RunHistory> find(std::vector<std::string> labels) {
    for (std::string& label : labels) label = "arm-" + label;
    return find_history(store_, labels, "Some CPU");
  }
};

TEST_F(HistoryTest, TimesAndDeviationOfTheNewestRun) {
  run_.tasks = {"gsm8k", "xsum"};
  tests::fill(store_, run_);
  run_.key = "second";
  run_.label = "second";
  // The A/A arm's decode times are off by a factor of e^0.01 up and down.
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                   int) {
    g.total_ns = a.role == "method" ? 1'000'000'000 : 2'000'000'000;
    if (a.role == "aa")
      g.turns[0].decode_ns = std::llround(static_cast<double>(g.turns[0].decode_ns) *
                                          std::exp(prompt % 2 ? 0.01 : -0.01));
  };
  const int64_t id = tests::fill(store_, run_);
  const auto history = find({"ar", "ar (A/A)", "pld:k=4"});
  ASSERT_TRUE(history.has_value());
  EXPECT_EQ(history->run_id, id);
  EXPECT_EQ(history->label, "second");
  ASSERT_EQ(history->tasks.size(), 2u);
  EXPECT_DOUBLE_EQ(history->tasks.at("xsum").generation_s, (2.0 + 2.0 + 1.0) / 3);
  // Four prompts at +-0.01: variance 4 x 0.01^2 / 3; both runs of a comparison have that noise.
  EXPECT_NEAR(*history->tasks.at("gsm8k").deviation, std::sqrt(2.0 * 4 / 3) * 0.01, 1e-9);
  EXPECT_NEAR(*history->deviation, std::sqrt(2.0 * 8 / 7) * 0.01, 1e-9);
  // Of fewer arms, those count.
  EXPECT_DOUBLE_EQ(find({"ar", "pld:k=4"})->tasks.at("xsum").generation_s, 1.5);
}

TEST_F(HistoryTest, OtherArmsAndMachinesTellNothing) {
  run_.arms = {run_.arms[0], run_.arms[2]};
  const int64_t id = tests::fill(store_, run_);
  EXPECT_TRUE(find({"ar", "pld:k=4"}).has_value());
  EXPECT_FALSE(find({"ar", "pld:k=4"})->deviation.has_value()) << "no A/A arm";
  EXPECT_FALSE(find({"ar", "pld:k=5"}).has_value());
  EXPECT_FALSE(find_history(store_, {"arm-ar"}, "Another CPU").has_value());
  run_.key = "on a GPU";
  run_.environment["gpu"] = "Some GPU";
  const int64_t on_gpu = tests::fill(store_, run_);
  EXPECT_EQ(find({"ar", "pld:k=4"})->run_id, id) << "the newest on the processor alone";
  EXPECT_EQ(find_history(store_, {"arm-ar"}, "Some GPU")->run_id, on_gpu);
  store_.execute("UPDATE generation SET status = 'failed: x' WHERE run_id = ?", {id});
  EXPECT_FALSE(find({"ar", "pld:k=4"}).has_value()) << "nothing of it is finished";
}

}  // namespace
}  // namespace evalrun::reports
