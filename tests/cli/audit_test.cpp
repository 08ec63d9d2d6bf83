// audit, and report --claims: files, options, formats and exit codes.
#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHeader =
    "paper,place,model,dataset,category,method,config,metric,value,sd,unit,hardware,note\n";

class Claims : public CommandTest {
 protected:
  // Paper "sound" holds together, "broken" is faster than its tokens per step allow.
  void SetUp() override {
    folder_.write("claims.csv",
                  std::string(kHeader) +
                      "sound,Table 1,m,d,,pld,greedy,speedup,2.10,,ratio,A100,\n"
                      "sound,Table 1,m,d,,pld,greedy,tau_with_bonus,2.90,,tokens/step,A100,\n"
                      "broken,Table 1,m,d,,pld,greedy,speedup,3.61,,ratio,A100,\n"
                      "broken,Table 1,m,d,,pld,greedy,tau_with_bonus,2.90,,tokens/step,A100,\n");
  }
};

TEST_F(Claims, AuditFindsAndFails) {
  const ProgramResult text = run({"audit", "claims.csv"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("speedup_tau, line 4  broken"));
  EXPECT_THAT(run({"audit", "claims.csv", "-o", "md"}).out, HasSubstr("| finding "));
  EXPECT_THAT(run({"audit", "claims.csv", "-o", "csv"}).out, HasSubstr("\nspeedup_tau,broken,"));
  const json all = json::parse(run({"audit", "claims.csv", "--json"}).out);
  EXPECT_EQ(all["findings"].size(), 1u);
  EXPECT_EQ(all["papers"].size(), 2u);
  const ProgramResult failed = run({"audit", "claims.csv", "--fail-on-findings", "--json"});
  EXPECT_EQ(failed.exit_code, 5);
  EXPECT_EQ(json::parse(failed.out), all) << "the findings are printed all the same";
  EXPECT_EQ(run({"audit", "claims.csv", "--fail-on-findings", "--paper", "sound"}).exit_code, 0);
}

TEST_F(Claims, AuditRefuses) {
  expect_refused(run({"audit"}), 2, "file");
  expect_refused(run({"audit", "claims.csv", "--paper", "sund"}), 2, "sound");
  expect_refused(run({"audit", "claims.csv", "-o", "pdf"}), 2, "pdf");
  expect_refused(run({"audit", "absent.csv"}), 7, "absent.csv");
  folder_.write("bad.csv", std::string(kHeader) + "p,t,,,,m,,speedup,fast,,,,\n");
  expect_refused(run({"audit", "bad.csv"}), 7, "bad.csv: line 2, column value: 'fast'");
}

TEST_F(Claims, ReportSetsThemBesideTheMeasured) {
  write_prompts(folder_, 2);
  ASSERT_EQ(run(run_arguments(8, {})).exit_code, 0);
  const auto report = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"report", "--db", "r.db"});
    return run(more);
  };
  const json plain = json::parse(report({"-o", "json"}).out);
  // The set of the run is named by its file: no table can know it. A row under that name can.
  const std::string dataset = plain[0]["dataset"];
  folder_.write("own.csv", std::string(kHeader) + "q,Table 1,big,\"" + dataset +
                               "\",,pld,greedy,tau_without_bonus,2.10,,,H100,\n");
  EXPECT_THAT(report({"--claims", "claims.csv"}).out, HasSubstr("no published figure"));
  for (const char* format : {"text", "md"}) {
    const ProgramResult result = report({"--claims", "own.csv", "-o", format});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("3.100 (2.10 + the bonus token)"));
  }
  EXPECT_THAT(report({"--claims", "own.csv", "-o", "html"}).out, HasSubstr("<td>3.100 ("));
  json with = json::parse(report({"--claims", "own.csv", "--json"}).out);
  ASSERT_EQ(with.size(), plain.size());
  int figures = 0;
  for (json& row : with) {
    figures += static_cast<int>(row["claims"].size());
    row.erase("claims");
  }
  EXPECT_EQ(figures, 1);
  EXPECT_EQ(with, plain) << "keys are only added";
  EXPECT_THAT(report({}).out, Not(HasSubstr("laimed")));
  expect_refused(report({"--claims", "own.csv", "-o", "csv"}), 2, "json");
  expect_refused(report({"--paper", "q"}), 2, "--claims");
  expect_refused(report({"--claims", "own.csv", "--paper", "r"}), 2, "'r'");
  expect_refused(report({"--claims", "absent.csv"}), 7, "absent.csv");
}

}  // namespace
}  // namespace evalrun::tests
