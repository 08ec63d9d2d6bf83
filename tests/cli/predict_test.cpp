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
  // A machine with other work must not decide.
  void every_step_takes_a_millisecond() {
    change_stored(folder_.file("r.db"),
                  "UPDATE step SET verify_ns = 1000000, draft_ns = 0, commit_ns = 0, other_ns = 0;"
                  "UPDATE turn SET verify_ns = 1000000 * n_steps, draft_ns = 0, commit_ns = 0,"
                  " other_ns = 0, decode_ns = 1000000 * n_steps;"
                  "DELETE FROM environment WHERE name = 'row_cost'");
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
  every_step_takes_a_millisecond();
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
  EXPECT_TRUE(predicted["shape"].is_null());
  EXPECT_THAT(json::parse(result.out)["notes"].dump(), HasSubstr("T(n)/T(1) is that of cost.json"));
  folder_.write("batch.json",
                R"({"context":256,"sequences":8,"bytes":1,"rounds":3,"rows":[)" + rows + "]}");
  const ProgramResult batch = with_db({"--cost", "batch.json"});
  expect_refused(batch, 7, "T(n) of 8 sequences together");
  folder_.write("broken.json", R"({"rows":[]})");
  expect_refused(with_db({"--cost", "broken.json"}), 7, "evalrun cost --json");
  expect_refused(with_db({"--cost", "nobody"}), 2, "nobody");
}

// tau measured here, T(n) of a larger model that nobody has downloaded: every row says so.
TEST_F(PredictCommand, AShapesCost) {
  folder_.write("big/config.json",
                R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
                    "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2,
                    "vocab_size": 300, "rms_norm_eps": 1e-6, "max_position_embeddings": 700})");
  const ProgramResult table = run({"cost", "--shape", "big", "--dtype", "q4", "--rows", "1,4,8",
                                   "--rounds", "2", "--prefill", "0", "-t", "1", "--json"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  folder_.write("shape.json", table.out);
  // Nobody stores such a table with a run; were it there, it would not be the run's own.
  change_stored(folder_.file("r.db"),
                "UPDATE environment SET value = replace(value, '{\"context\"',"
                " '{\"shape\":\"big\",\"context\"') WHERE name = 'row_cost'");
  expect_refused(with_db({"--cost", "r.db:first", "--arm", "pld:k=6"}), 7, "no T(n) table");

  every_step_takes_a_millisecond();
  const auto with = [&](const std::string& format) {
    return with_db({"--cost", "shape.json", "--arm", "pld:k=6", "--k", "1", "-o", format});
  };
  const ProgramResult result = with("json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json document = json::parse(result.out), measured = json::parse(table.out);
  for (const json& row : document["predictions"]) EXPECT_EQ(row["shape"], "big");
  EXPECT_THAT(
      document["notes"].dump(),
      HasSubstr("random weights in the shape of big (shape.json), and tau that of the model"));
  // One draft token: steps of one row and of two, which lie between one and four of the table.
  const double four = measured["rows"][1]["ratio"], t_ratio = document["predictions"][1]["t_ratio"];
  EXPECT_GE(t_ratio, std::min(1.0, four) - 1e-9);
  EXPECT_LE(t_ratio, std::max(1.0, four) + 1e-9);
  for (const char* format : {"csv", "md", "latex", "text"}) {
    const ProgramResult written = with(format);
    EXPECT_EQ(written.exit_code, 0) << written.err;
    EXPECT_THAT(written.out, HasSubstr("big")) << format;
  }
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
