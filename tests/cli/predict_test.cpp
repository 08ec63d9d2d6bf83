// predict over one stored run: lengths and trees of its drafts, other machines, confirmation.
#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

class PredictCommand : public CommandTest {
 protected:
  void SetUp() override {
    write_prompts(folder_, 3);
    const ProgramResult result =
        run(methods("ar,pld:k=6,pld:k=2,pld:adaptive=true,lookahead", "first"));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  static std::vector<std::string> methods(const std::string& list, const std::string& label) {
    std::vector<std::string> arguments = run_arguments(24, {"--label", label});
    *(std::find(arguments.begin(), arguments.end(), "--methods") + 1) = list;
    return arguments;
  }
  ProgramResult with_db(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "predict");
    arguments.insert(arguments.end(), {"--db", "r.db"});
    return run(std::move(arguments));
  }
};

TEST_F(PredictCommand, PredictsWhatWasStored) {
  const ProgramResult result = with_db({"first", "--arm", "pld:k=6", "--k", "1..2,6", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json rows = json::parse(result.out)["predictions"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["draft"], "as measured");
  EXPECT_EQ(rows[1]["draft"], "k=1");
  for (const char* field : {"tau", "rows", "t_ratio", "speedup"})
    EXPECT_NEAR(rows[0][field].get<double>(), rows[3][field].get<double>(), 1e-9)
        << field << ": the drafts that were measured, walked again";
  const json report = json::parse(run({"report", "-o", "json", "--db", "r.db"}).out);
  const auto own = std::find_if(report.begin(), report.end(),
                                [](const json& row) { return row["method"] == "pld:k=6"; });
  ASSERT_NE(own, report.end());
  EXPECT_NEAR((*own)["speedup"].get<double>(), rows[0]["speedup"].get<double>(), 1e-9);
  EXPECT_LE(rows[1]["rows"].get<double>(), 2);
}

TEST_F(PredictCommand, EveryFormatAndWhatIsLeftOut) {
  for (const char* format : {"text", "md"}) {
    ProgramResult result = with_db({"-o", format, "--batch", "1,4"});
    std::replace(result.out.begin(), result.out.end(), '\n', ' ');  // lines are wrapped
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("k=5"));
    EXPECT_THAT(result.out, HasSubstr("follows what became of those before it"));
    EXPECT_THAT(result.out, HasSubstr("lookahead: no other drafts: its steps compute rows beside"));
    EXPECT_THAT(result.out, HasSubstr("T(nB)/T(B)"));
  }
  EXPECT_THAT(with_db({"--nodes"}).out, HasSubstr("rank 0"));
  const ProgramResult confirmed = with_db({"--confirm", "first"});
  ASSERT_EQ(confirmed.exit_code, 0) << confirmed.err;
  EXPECT_THAT(confirmed.out, HasSubstr("over 1 configurations"));
}

TEST_F(PredictCommand, LooksBackAtTheSteps) {
  const ProgramResult result = with_db({"--acceptance", "--oracle", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json all = json::parse(result.out);
  ASSERT_EQ(all["acceptance"].size(), 4u);
  double first_depth = 0;
  for (const auto& [name, steps] : all["acceptance"][0]["depths"][0].items())
    first_depth += steps.get<double>();
  const json report = json::parse(run({"report", "-o", "json", "--db", "r.db"}).out);
  const auto own = std::find_if(report.begin(), report.end(),
                                [](const json& row) { return row["method"] == "pld:k=6"; });
  ASSERT_NE(own, report.end());
  EXPECT_EQ(first_depth, (*own)["steps"].get<double>()) << "every step is at depth 1";
  const json rows = all["oracle"]["rows"];
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(all["oracle"]["answers"], 3);
  EXPECT_NEAR(rows[0]["tau"].get<double>(), (*own)["tau"].get<double>(), 1e-9);
  for (const json& row : rows) {
    EXPECT_GE(row["best_tau"]["least"].get<double>(), row["tau"].get<double>() - 1e-9);
    EXPECT_GE(rows[4]["best_tau"]["least"].get<double>(),
              row["best_tau"]["least"].get<double>() - 1e-9);
  }
  for (const char* format : {"text", "md", "csv", "latex"})
    EXPECT_EQ(with_db({"--acceptance", "--oracle", "-o", format}).exit_code, 0) << format;
  EXPECT_EQ(with_db({"--acceptance", "--arm", "pld:k=2"}).exit_code, 0);
}

TEST_F(PredictCommand, AnotherDevice) {
  EXPECT_EQ(with_db({"--cost", "r.db:first", "--arm", "pld:k=6"}).exit_code, 0);
  // Every step a millisecond here: a machine with other work must not decide.
  change_stored(folder_.file("r.db"),
                "UPDATE step SET verify_ns = 1000000, draft_ns = 0, commit_ns = 0, other_ns = 0;"
                "UPDATE turn SET verify_ns = 1000000 * n_steps, draft_ns = 0, commit_ns = 0,"
                " other_ns = 0, decode_ns = 1000000 * n_steps;"
                "DELETE FROM environment WHERE name = 'row_cost'");
  std::string rows;
  for (const int n : {1, 2, 8})
    rows += fmt::format(
        R"({}{{"rows":{},"ms":{},"q1_ms":1,"q3_ms":1,"phases":{{"weights":1,"attention":0,"norms":0,"head":0,"waits":0}}}})",
        rows.empty() ? "" : ",", n, 2.0 * n);
  folder_.write("cost.json", R"({"context":256,"bytes":1,"rounds":3,"rows":[)" + rows + "]}");
  const ProgramResult result =
      with_db({"--cost", "cost.json", "--arm", "pld:k=6", "--k", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json predicted = json::parse(result.out)["predictions"][1];
  // There a row costs as much as a step.
  EXPECT_NEAR(predicted["t_ratio"].get<double>(), predicted["rows"].get<double>(), 0.01);
  folder_.write("broken.json", R"({"rows":[]})");
  expect_refused(with_db({"--cost", "broken.json"}), 7, "evalrun cost --json");
  expect_refused(with_db({"--cost", "nobody"}), 2, "nobody");
}

TEST_F(PredictCommand, Refuses) {
  expect_refused(with_db({"--arm", "pld:k=7"}), 2, "pld:k=6");
  expect_refused(with_db({"--arm", "ar"}), 2, "ar drafts nothing");
  expect_refused(with_db({"--arm", "pld:k=6", "--k", "9"}), 2, "at most 6");
  expect_refused(with_db({"--arm", "pld:k=6", "--k", "x"}), 2, "'x'");
  expect_refused(with_db({"--arm", "pld:k=6", "--k", "0"}), 2, "'0'");
  expect_refused(with_db({"--arm", "pld:k=6", "--k", "4..2"}), 2, "'4..2'");
  expect_refused(with_db({"--arm", "pld:k=6", "--k", "1..1001"}), 2, "more than 1000");
  expect_refused(with_db({"--arm", "pld:k=6", "--tree", "0+1"}), 2, "tested at 1");
  expect_refused(with_db({"--arm", "pld:k=6", "--tree", "00"}), 2, "--tree");
  expect_refused(with_db({"--arm", "lookahead", "--k", "2"}), 2, "rows beside the draft");
  expect_refused(with_db({"--confirm", "frist"}), 2, "first");
  expect_refused(with_db({"--confirm", "first", "--batch", "2"}), 2, "--batch");
  expect_refused(with_db({"--nodes", "--k", "2"}), 2, "--k");
  expect_refused(with_db({"--oracle", "--k", "2"}), 2, "--k");
  expect_refused(with_db({"--oracle", "--arm", "pld:k=2"}), 2, "--arm");
  expect_refused(with_db({"--acceptance", "--nodes"}), 2, "--nodes");
  ASSERT_EQ(run(methods("ar", "plain")).exit_code, 0);
  expect_refused(with_db({"plain", "--oracle"}), 2, "no answer that its arms share");
  expect_refused(with_db({"plain"}), 2, "no arm that drafts");
}

}  // namespace
}  // namespace evalrun::tests
