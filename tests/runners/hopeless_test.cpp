// Warnings before runs that cannot pay, from made-up row costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/clock.h"
#include "runners/measure/runner.h"
#include "runners/plan/estimate.h"
#include "tests/runners/small_plans.h"

namespace evalrun::runners {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// T(n)/T(1) = 1 + (n - 1) `slope`.
engine::RowCostTable rows_of_slope(double slope) {
  engine::RowCostTable table;
  const double ms = 10 * (1 + 15 * slope);
  table.rows = {{1, 10, 10, 10, {}}, {16, ms, ms, ms, {}}};
  return table;
}
StepPrice price_at(const methods::LargestStep& step, double slope) {
  return price_of(step, rows_of_slope(slope));
}

TEST(Hopeless, TheCeilingIsOfEveryDraftTokenAccepted) {
  EXPECT_DOUBLE_EQ(price_at({.rows = 11}, 0.1).ceiling, 11 / 2.0);
  EXPECT_DOUBLE_EQ(price_at({.rows = 11}, 1).ceiling, 1);
  // Four forwards of a draft model half as large: 5 / (1.4 + 4 / 2).
  EXPECT_DOUBLE_EQ(
      price_at({.rows = 5, .draft_cost = 0.5, .draft_rows = {1, 1, 1, 1}}, 0.1).ceiling, 5 / 3.4);
  EXPECT_EQ(price_at({.rows = 1}, 0.1).ceiling, 0) << "nothing is drafted";
  EXPECT_EQ(price_at({}, 0.1).ceiling, 0) << "not known";
  EXPECT_EQ(price_at({.rows = 11, .limit = 1.03}, 2).ceiling, 0) << "only what pays is drafted";
}

TEST(Hopeless, TheAcceptanceThatBreaksEven) {
  // Tokens of a step of three rows at 0.6: 1 + 0.6 + 0.36.
  EXPECT_NEAR(acceptance_needed({.rows = 3, .plain_steps = 1.96, .ceiling = 3 / 1.96}).value(), 0.6,
              1e-9);
  EXPECT_NEAR(acceptance_needed({.rows = 3, .plain_steps = 1, .ceiling = 3}).value(), 0, 1e-9);
  EXPECT_NEAR(acceptance_needed({.rows = 3, .plain_steps = 3, .ceiling = 1}).value(), 1, 1e-9);
  EXPECT_FALSE(acceptance_needed({.rows = 3, .plain_steps = 3.1, .ceiling = 3 / 3.1}).has_value());
  EXPECT_FALSE(acceptance_needed({}).has_value());
}

TEST(Hopeless, ATextForArmsThatCannotPayAndNoOther) {
  EXPECT_EQ(hopeless_text("pld", price_at({.rows = 11}, 0.1)), "");
  EXPECT_EQ(hopeless_text("pld", price_at({.rows = 11, .limit = 1.03}, 2)), "");
  EXPECT_EQ(hopeless_text("ar", price_at({.rows = 1}, 2)), "");
  EXPECT_THAT(hopeless_text("pld", price_at({.rows = 11}, 1.25)),
              AllOf(HasSubstr("pld: cannot be faster than plain decoding"),
                    HasSubstr("a step of 11 rows costs 13.5 plain steps"), HasSubstr("0.81x")));
  // 1 + a + ... + a^10 = 9.5 at 0.970.
  EXPECT_THAT(hopeless_text("pld", price_at({.rows = 11}, 0.85)),
              AllOf(HasSubstr("pld: unlikely to be faster"), HasSubstr("needs tau 9.5"),
                    HasSubstr("97.0 %"), HasSubstr("1.16x if all are")));
  // Just below and above the limit: 1 + 0.9 = 1.9 plain steps.
  EXPECT_EQ(hopeless_text("sps", price_at({.rows = 2}, 0.89)), "");
  EXPECT_NE(hopeless_text("sps", price_at({.rows = 2}, 0.91)), "");
}

struct HopelessHeard final : ProgressSink {
  std::vector<std::string> said;
  void hopeless(const std::string& why) override { said.push_back(why); }
  void warming_up(const std::string&) override { said.emplace_back("warming up"); }
};

TEST(Hopeless, ARunSaysSoBeforeItMeasures) {
  const auto heard = [](double slope) {
    PlanRequest request = request_for(two_prompts());
    // Of steps that follow row costs or carried text, the largest is not the usual one.
    request.suite.methods = {"pld", "pld:adaptive=true", "hybrid:drafts=pld+pia",
                             "recycling:tree=auto", "suffix:state=warm"};
    request.suite.max_new = 4;
    request.suite.warmup = 1;
    request.suite.aa = false;
    complete_suite(request.suite, "test");
    const RunPlan plan = make_plan(request);
    plan.row_cost->table = rows_of_slope(slope);
    results::ResultStore store(folder().file(fmt::format("hopeless-{}.db", slope)));
    base::SteadyClock clock;
    HopelessHeard sink;
    RunnerOptions options;
    options.progress = &sink;
    run_plan(request, plan, store, clock, options);
    return sink.said;
  };
  std::vector<std::string> usual(6, "warming up");  // a line an arm
  EXPECT_EQ(heard(0.1), usual);
  const std::vector<std::string> dear = heard(2);
  EXPECT_THAT(dear.front(), HasSubstr("pld: cannot be faster"));
  EXPECT_EQ(std::vector<std::string>(dear.begin() + 1, dear.end()), usual);
}

}  // namespace
}  // namespace evalrun::runners
