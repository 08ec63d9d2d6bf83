// Runs with too few units for an interval, or with as many strata as prompts: what is missing is
// named, and no figure is a number that is none.
#include <gmock/gmock.h>

#include <cmath>
#include <regex>

#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using ::testing::HasSubstr;

class FewUnitsTest : public ReportTest {
 protected:
  // Answers of different lengths, some scores of the method's other than plain decoding's.
  int64_t fill(int prompts) {
    run_.prompts_per_task = prompts;
    run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                     int) {
      if (a.role == "method") g.turns[0].decode_ns += 1'000'000 * (prompt * 7 % 5);
    };
    return tests::fill(store_, run_);
  }
  void other_scores() {
    store_.execute(
        "UPDATE score SET value = 1 - value WHERE generation_id IN (SELECT g.id FROM generation g "
        "JOIN arm a ON a.id = g.arm_id WHERE a.role = 'method' AND g.prompt_id % 3 = 0)");
  }
  // In every form: JSON would hide a NaN as null, so the figures are looked at, too.
  void expect_sound(int64_t id, const ReportOptions& options) {
    const Report r = build_report(store_, id, options);
    const auto sound = [](const std::optional<base::Interval>& i) {
      return !i || (std::isfinite(i->lo) && std::isfinite(i->hi) && i->lo <= i->hi);
    };
    for (const ReportRow& row : r.rows) {
      EXPECT_TRUE(row.speed.speedup && std::isfinite(*row.speed.speedup)) << row.arm.label;
      EXPECT_TRUE(std::isfinite(row.speed.n_eff) && std::isfinite(row.acceptance.tau_n_eff));
      EXPECT_TRUE(sound(row.speed.interval) && sound(row.speed.geo_interval) &&
                  sound(row.speed.request_interval) && sound(row.speed.first_token_interval) &&
                  sound(row.acceptance.tau_interval))
          << row.arm.label;
      if (row.ranking) {
        EXPECT_TRUE(std::isfinite(row.ranking->against_fastest));
        EXPECT_TRUE(sound(row.ranking->against_fastest_interval));
      }
      for (const auto& [name, q] : row.quality) {
        EXPECT_TRUE(std::isfinite(q.value)) << name;
        EXPECT_TRUE(sound(q.interval)) << name;
        if (!q.difference) continue;
        EXPECT_TRUE(std::isfinite(q.difference->value) && sound(q.difference->interval)) << name;
        EXPECT_EQ(q.difference->p.has_value(), q.difference->interval.has_value());
        const double p = q.difference->p.value_or(1);
        EXPECT_TRUE(p > 0 && p <= 1) << name;
      }
    }
    static const std::regex kNoNumber("(^|[^a-z])(nan|inf)([^a-z]|$)");
    for (const std::string& text : {to_text(r), to_markdown(r), to_latex(r), to_csv(r)})
      EXPECT_FALSE(std::regex_search(text, kNoNumber)) << text;
  }
  // All scopes, estimators and kinds of intervals.
  void expect_sound(int64_t id) {
    for (const Scope scope : {Scope::kSameKind, Scope::kNewKinds})
      for (const Estimator e :
           {Estimator::kSum, Estimator::kGeo, Estimator::kLegacy, Estimator::kLegacyDecode})
        for (const IntervalKind kind : {IntervalKind::kStudent, IntervalKind::kBootstrap})
          expect_sound(id, {.estimator = e, .interval = kind, .scope = scope});
  }
  const ReportRow& pld(const Report& r) { return row(r, "pld:k=4", "gsm8k"); }
};

TEST_F(FewUnitsTest, GroupsOfOneMemberAreAsNoGroups) {
  const int64_t id = fill(8);
  other_scores();
  const Report alone = build_report(store_, id);
  const std::string before = to_json(alone);
  store_.execute("UPDATE prompt SET group_name = 'group ' || id");
  expect_sound(id);
  EXPECT_EQ(to_json(build_report(store_, id)), before);
  ASSERT_TRUE(pld(alone).speed.interval);
}

TEST_F(FewUnitsTest, OneClusterHasNoIntervalAndIsNamed) {
  const int64_t id = fill(8);
  other_scores();
  store_.execute("UPDATE prompt SET group_name = 'the only one'");
  expect_sound(id);
  const Report r = build_report(store_, id);
  EXPECT_FALSE(pld(r).speed.interval);
  EXPECT_FALSE(pld(r).acceptance.tau_interval);
  EXPECT_FALSE(pld(r).ranking);
  const Quality& q = pld(r).quality.begin()->second;
  EXPECT_FALSE(q.interval);
  ASSERT_TRUE(q.difference);
  EXPECT_FALSE(q.difference->interval);
  EXPECT_THAT(to_text(r), HasSubstr("(one group of prompts)"));
  EXPECT_THAT(to_text(r), HasSubstr("No interval: all prompts here are of one group."));
  EXPECT_THAT(to_text(build_report(store_, id, {.scope = Scope::kNewKinds})),
              HasSubstr("No interval for new kinds"));
}

TEST_F(FewUnitsTest, StrataOfOnePromptArePooled) {
  const int64_t id = fill(8);
  other_scores();
  const Report alone = build_report(store_, id);
  store_.execute("UPDATE prompt SET category = 'kind ' || id");
  expect_sound(id);
  const Report r = build_report(store_, id);
  ASSERT_TRUE(pld(r).speed.interval && pld(alone).speed.interval);
  EXPECT_NEAR(pld(r).speed.interval->lo, pld(alone).speed.interval->lo, 1e-12)
      << "single prompts are one stratum";
  // One category of one prompt beside a larger one.
  store_.execute("UPDATE prompt SET category = CASE WHEN id = 1 THEN 'single' ELSE 'many' END");
  expect_sound(id);
  ASSERT_TRUE(pld(build_report(store_, id)).speed.interval);
}

TEST_F(FewUnitsTest, OnePrompt) {
  const int64_t id = fill(1);
  store_.execute(
      "UPDATE score SET value = 1 - value WHERE generation_id IN (SELECT g.id FROM generation g "
      "JOIN arm a ON a.id = g.arm_id WHERE a.role = 'method')");
  expect_sound(id);
  const Report r = build_report(store_, id);
  EXPECT_FALSE(pld(r).speed.interval);
  EXPECT_FALSE(pld(r).ranking);
  EXPECT_THAT(to_text(r), HasSubstr("(one prompt)"));
}

}  // namespace
}  // namespace evalrun::reports
