// What arms took of a GPU, and their energy, against sums by hand.
#include "reports/figures/gpu_use.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Plain decoding: 9.9 of 10 ms a step on the GPU. pld: of 12 ms a step 0.05 drafting, 11, 0.1. It
// takes 60 % of the energy that plain decoding takes for a token, on odd prompts 50 %.
class GpuUseTest : public ReportTest {
 protected:
  GpuUseTest() {
    for (tests::SyntheticArm& a : run_.arms) a.device = "cuda:0";
    run_.isa = "sm_90";
    run_.environment["gpu"] = "Some GPU";
    run_.change = [this](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt,
                         int, int) {
      const bool pld = a.method == "pld";
      const auto steps = static_cast<int64_t>(g.turns[0].steps.size());
      const auto tokens = static_cast<int64_t>(g.turns[0].tokens.size());
      results::GpuRecord gpu;
      gpu.energy_mj = tokens * (!pld ? 1000 : prompt % 2 == 1 ? 500 : 600);
      gpu.busy = results::GpuBusy{.prefill_ns = 1,
                                  .draft_ns = pld ? 50'000 * steps : 0,
                                  .verify_ns = (pld ? 11'000'000 : 9'800'000) * steps,
                                  .commit_ns = 100'000 * steps};
      tokens_[prompt] = static_cast<double>(tokens);
      if (forget_ && pld && prompt == 1) forget_(gpu);
      g.gpu = gpu;
    };
  }
  std::map<int, double> tokens_;  // of a prompt
  std::function<void(results::GpuRecord&)> forget_;
};

TEST_F(GpuUseTest, TimesOfAStep) {
  const Report r = report();
  const std::string all = r.rows.back().dataset;
  const GpuUse ar = *row(r, "ar", all).gpu, pld = *row(r, "pld:k=4", all).gpu;
  EXPECT_DOUBLE_EQ(*ar.draft_ms, 0);
  EXPECT_DOUBLE_EQ(*ar.verify_ms, 9.8);
  EXPECT_DOUBLE_EQ(*ar.commit_ms, 0.1);
  EXPECT_NEAR(*ar.host_ms, 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(*ar.busy, 0.99);
  EXPECT_DOUBLE_EQ(*pld.draft_ms, 0.05);
  EXPECT_DOUBLE_EQ(*pld.verify_ms, 11);
  EXPECT_NEAR(*pld.host_ms, 12 - 11.15, 1e-12);
}

TEST_F(GpuUseTest, EnergyOfAToken) {
  const Report r = report();
  const std::string all = r.rows.back().dataset;
  const EnergyUse ar = *row(r, "ar", all).energy, pld = *row(r, "pld:k=4", all).energy;
  EXPECT_DOUBLE_EQ(ar.joules_per_token->value, 1);
  EXPECT_FALSE(ar.gain) << "it is its own reference";
  double tokens = 0, joules = 0;
  for (const auto& [prompt, n] : tokens_) tokens += n, joules += n * (prompt % 2 == 1 ? 0.5 : 0.6);
  EXPECT_NEAR(pld.joules_per_token->value, joules / tokens, 1e-12);
  EXPECT_NEAR(pld.gain->value, tokens / joules, 1e-12);
  ASSERT_TRUE(pld.gain->interval);
  EXPECT_LT(pld.gain->interval->lo, tokens / joules);
  EXPECT_GT(pld.gain->interval->hi, tokens / joules);
}

TEST_F(GpuUseTest, WhatWasNotMeasuredIsAbsentNotZero) {
  forget_ = [](results::GpuRecord& g) { g.busy.reset(); };
  const Report r = report();
  EXPECT_FALSE(row(r, "pld:k=4", r.rows.back().dataset).gpu->busy);
  EXPECT_TRUE(row(r, "ar", r.rows.back().dataset).gpu->busy);
}

// A generation whose energy is unknown takes its prompt out, its tokens too.
TEST_F(GpuUseTest, EnergyIsOverThePromptsThatHaveIt) {
  forget_ = [](results::GpuRecord& g) { g.energy_mj.reset(); };
  const Report r = report();
  const EnergyUse pld = *row(r, "pld:k=4", r.rows.back().dataset).energy;
  double tokens = 0, joules = 0;
  for (const auto& [prompt, n] : tokens_)
    if (prompt != 1) tokens += n, joules += n * (prompt % 2 == 1 ? 0.5 : 0.6);
  EXPECT_NEAR(pld.joules_per_token->value, joules / tokens, 1e-12);
  EXPECT_NEAR(pld.gain->value, tokens / joules, 1e-12);
}

TEST_F(GpuUseTest, WhatDisturbedTheTimesIsSaid) {
  EXPECT_THAT(gpu_remarks(report().gpu_disturbances), IsEmpty());
  run_.key = "another";
  forget_ = [](results::GpuRecord& g) { g.slowed_by = "power cap", g.busy->graph_misses = 3; };
  const Report r = report();
  const auto steps =
      static_cast<int64_t>(row(r, "pld:k=4", r.rows.back().dataset).acceptance.steps);
  EXPECT_THAT(to_text(r), HasSubstr("at the end of 1 of 12 generations (power cap 1)."));
  EXPECT_THAT(
      gpu_remarks(r.gpu_disturbances),
      ElementsAre(HasSubstr("clock"), HasSubstr(fmt::format("pld:k=4 3 in {} steps", steps))));
}

TEST_F(GpuUseTest, EveryFormatHasIt) {
  const Report r = report();
  EXPECT_THAT(to_text(r), HasSubstr("energy gain"));
  // The GPU by name; the number of threads means nothing.
  EXPECT_THAT(to_text(r),
              AllOf(HasSubstr("sm_90 · cuda:0, Some GPU · "), Not(HasSubstr("threads"))));
  EXPECT_THAT(to_latex(r), HasSubstr("cuda:0 (sm\\_90), Some GPU, greedy"));
  EXPECT_THAT(to_html(r, store_), HasSubstr("Some CPU · cuda:0 (sm_90), Some GPU · weights"));
  EXPECT_THAT(to_markdown(r), HasSubstr("docs/measurement.md#gpu"));
  EXPECT_THAT(to_latex(r), HasSubstr("tab:evalrun-gpu"));
  EXPECT_THAT(to_latex(r), HasSubstr("tab:evalrun-energy"));
  EXPECT_THAT(to_markdown(r), HasSubstr("docs/measurement.md#energy"));
  EXPECT_THAT(to_text(r), HasSubstr("energy of the GPU's board"));
  EXPECT_THAT(to_html(r, store_), HasSubstr("<summary>GPU</summary>"));
  const nlohmann::json rows = nlohmann::json::parse(to_json(r));
  EXPECT_DOUBLE_EQ(rows[0]["gpu_verify_ms"].get<double>(), 9.8);
  EXPECT_TRUE(rows[0]["energy_gain"].is_null());
  EXPECT_THAT(to_csv(r), HasSubstr("energy_gain_lo"));
}

TEST_F(GpuUseTest, ARunOnTheCpuHasNone) {
  for (tests::SyntheticArm& a : run_.arms) a.device = "cpu";
  run_.environment.erase("gpu");
  const Report r = report();
  EXPECT_FALSE(r.rows[0].gpu);
  EXPECT_FALSE(r.rows[0].energy);
  EXPECT_THAT(to_text(r), AllOf(Not(HasSubstr("GPU")), Not(HasSubstr("J/token"))));
  EXPECT_THAT(to_html(r, store_), Not(HasSubstr("<summary>GPU")));
  EXPECT_TRUE(nlohmann::json::parse(to_json(r))[0]["gpu_busy"].is_null());
}

// 2 J a token of plain decoding, half of it with pld.
TEST_F(GpuUseTest, OnTheCpuItIsTheProcessorsEnergy) {
  for (tests::SyntheticArm& a : run_.arms) a.device = "cpu";
  run_.environment.erase("gpu");
  run_.environment["energy_domains"] = "intel-rapl:0";
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
    if (!g.clock) g.clock.emplace();
    g.clock->energy_mj =
        static_cast<int64_t>(g.turns[0].tokens.size()) * (a.method == "pld" ? 1000 : 2000);
  };
  const Report r = report();
  EXPECT_FALSE(r.rows[0].gpu);
  const std::string all = r.rows.back().dataset;
  EXPECT_DOUBLE_EQ(row(r, "ar", all).energy->joules_per_token->value, 2);
  EXPECT_DOUBLE_EQ(row(r, "pld:k=4", all).energy->joules_per_token->value, 1);
  EXPECT_DOUBLE_EQ(row(r, "pld:k=4", all).energy->gain->value, 2);
  EXPECT_THAT(to_text(r), HasSubstr("energy of the processor and its memory"));
  EXPECT_THAT(to_html(r, store_), HasSubstr("<summary>energy</summary>"));
  const nlohmann::json rows = nlohmann::json::parse(to_json(r));
  EXPECT_DOUBLE_EQ(rows[0]["joules_per_token"].get<double>(), 2);
}

}  // namespace
}  // namespace evalrun::reports
