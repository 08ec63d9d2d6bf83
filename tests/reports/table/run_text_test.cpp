// What a report says of the run beside its figures: row costs, certificates, sizes of data sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reports/figures/report.h"
#include "results/certificates.h"
#include "results/regroup.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::SyntheticArm;

TEST_F(ReportTest, RowCostsOfTheRunAreShownWhenTheyAreThere) {
  const int64_t id = tests::fill(store_, run_);
  EXPECT_THAT(to_text(build_report(store_, id)), Not(HasSubstr("before the run")));
  store_.add_environment(
      id, "row_cost",
      R"({"context": 256, "rows": [{"rows": 1, "ratio": 1.0}, {"rows": 2, "ratio": 1.031},
          {"rows": 16, "ratio": 1.5}]})");
  EXPECT_THAT(to_text(build_report(store_, id)),
              HasSubstr("T(n)/T(1) before the run, context 256: 2 rows 1.03, 16 rows 1.50"));
  for (const char* broken : {"", "[]", "{\"rows\": 3}", "{\"rows\": [3, {\"rows\": \"2\"}]}"}) {
    store_.execute("UPDATE environment SET value = ? WHERE name = 'row_cost'",
                   {std::string(broken)});
    EXPECT_THAT(to_text(build_report(store_, id)), Not(HasSubstr("before the run"))) << broken;
  }
}

TEST_F(ReportTest, CertificatesStandBesideTheArmsTheyHoldFor) {
  const int64_t id = tests::fill(store_, run_);
  EXPECT_THAT(to_text(build_report(store_, id)), Not(HasSubstr("shown lossless")));
  EXPECT_TRUE(nlohmann::json::parse(to_json(build_report(store_, id)))[0]["certificate"].is_null());
  results::ArmRecord arm = tests::arm_record(run_, run_.arms[2]);
  const std::string commit = build_report(store_, id).run.commit;
  const auto put = [&](const std::string& build, const char* outcome, const char* proven) {
    results::put_certificate(
        store_, {results::certificate_key(arm, build), "2026-01-02", arm.label, outcome, proven,
                 nlohmann::json{{"grades", nlohmann::json::object()}, {"shown", proven}}.dump()});
  };
  // Of another build: not shown.
  put(commit + "x", "holds", "greedy: identical");
  EXPECT_THAT(to_text(build_report(store_, id)), Not(HasSubstr("shown lossless")));
  put(commit, "holds", "greedy: identical");
  const Report report = build_report(store_, id);
  for (const ReportRow& r : report.rows)
    EXPECT_EQ(r.arm.certificate.has_value(), r.arm.label == arm.label) << r.arm.label;
  for (const std::string& text : {to_text(report), to_markdown(report)}) {
    EXPECT_THAT(text, HasSubstr("shown lossless"));
    EXPECT_THAT(text, HasSubstr("greedy: identical"));
  }
  for (const nlohmann::json& row : nlohmann::json::parse(to_json(report))) {
    if (row["method"] == arm.label) {
      EXPECT_EQ(row["certificate"]["outcome"], "holds");
    }
  }
  EXPECT_THAT(to_csv(report), HasSubstr(",holds"));
  EXPECT_THAT(to_latex(report), HasSubstr(" & greedy: identical"));
  EXPECT_THAT(to_latex(report), HasSubstr("Shown lossless: by evalrun verify"));
  EXPECT_THAT(to_html(report, store_), HasSubstr("proven: greedy: identical"));
  // A report by category knows it, too.
  const auto parts = results::regrouped(store_, {results::Axis::kCategory});
  EXPECT_THAT(to_text(build_report(*parts, id)), HasSubstr("greedy: identical"));
  // A long one is wrapped where the table must be narrow.
  const char* long_one =
      "greedy: identical over 2,560 tokens; sampling T=1: decisions audited (2,113; would find "
      "0.0014)";
  put(commit, "holds", long_one);
  EXPECT_THAT(to_text(build_report(store_, id)), HasSubstr(long_one));
  EXPECT_THAT(render(document(build_report(store_, id)), Format::kText, {.width = 100}),
              Not(HasSubstr(long_one)));
  put(commit, "fails", "");
  EXPECT_THAT(to_text(build_report(store_, id)), HasSubstr("FAILS"));
  EXPECT_THAT(to_html(build_report(store_, id), store_), HasSubstr("fails verify"));
  EXPECT_THAT(to_latex(build_report(store_, id)), HasSubstr(" & FAILS"));
}

TEST_F(ReportTest, HeadingsSayHowManyOfTheOfficialPromptsWereMeasured) {
  const int64_t id = tests::fill(store_, run_);
  const std::string task = build_report(store_, id).rows.front().dataset;
  const std::string plain = to_text(build_report(store_, id));
  const auto n = plain.find(task + " (");
  ASSERT_NE(n, std::string::npos);
  EXPECT_THAT(plain, Not(HasSubstr("unverified")));
  store_.add_environment(id, "data." + task, R"({"official": 1319, "verification": "unverified"})");
  EXPECT_THAT(to_text(build_report(store_, id)), HasSubstr(" of 1319 prompts, unverified)"));
  for (const char* other : {R"({"official": 0, "verification": "official"})", "", "[1]",
                            R"({"official": "x", "verification": 3})"}) {
    store_.execute("UPDATE environment SET value = ? WHERE name = ?",
                   {std::string(other), "data." + task});
    EXPECT_EQ(to_text(build_report(store_, id)), plain) << other;
  }
}

TEST_F(ReportTest, LossyArmsStandApart) {
  SyntheticArm lossy = run_.arms[2];
  lossy.label = "typical";
  lossy.lossless = "none";
  run_.arms.insert(run_.arms.begin() + 1, lossy);
  const Report r = report();
  EXPECT_EQ(r.rows.back().arm.label, "typical");
  const std::string text = to_text(r);
  EXPECT_LT(text.find("pld:k=4"), text.find("Not lossless"));
  EXPECT_LT(text.find("Not lossless"), text.find("typical"));
}

TEST_F(ReportTest, OneIsNoPlural) {
  run_.threads = 1, run_.prompts_per_task = 1;
  EXPECT_THAT(to_text(report()),
              ::testing::AllOf(HasSubstr(" cpu, 1 thread · 1 prompt · "),
                               HasSubstr(" · 1 repeat · "), HasSubstr("gsm8k (1 prompt)")));
}

}  // namespace
}  // namespace evalrun::reports
