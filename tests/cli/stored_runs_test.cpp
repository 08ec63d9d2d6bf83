// report, show, compare and baseline over one stored run.
#include <algorithm>
#include <filesystem>

#include "results/store.h"
#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"
#include "tests/results/synthetic.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

constexpr int kRunPrompts = 3, kMaxNew = 16;

class StoredRuns : public CommandTest {
 protected:
  void SetUp() override {
    write_prompts(folder_, kRunPrompts);
    const ProgramResult result = run(run_arguments(kMaxNew, {"--label", "first"}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  ProgramResult with_db(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--db", "r.db"});
    return run(std::move(arguments));
  }
  void execute(const std::string& sql) { change_stored(folder_.file("r.db"), sql); }
};

TEST_F(StoredRuns, AnOlderFileIsMigratedByTheCommandThatItsRefusalNames) {
  {
    results::ResultStore store(folder_.file("r.db"));
    to_version_5(store);
  }
  expect_refused(with_db({"report"}), 7, "the file has version 5");
  EXPECT_THAT(with_db({"report"}).err, HasSubstr("evalrun baseline save"));
  const ProgramResult saved = with_db({"baseline", "save", "main"});
  EXPECT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_EQ(with_db({"report"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_.file("r.db.bak-v5")));
}

// Whatever the table says of its speed, a lossless method with other tokens ends a run in red.
TEST_F(StoredRuns, RunEndsWithFiveWhereALosslessMethodsTokensDiffer) {
  const auto again = [&] { return run(run_arguments(kMaxNew, {"--label", "first"})); };
  ASSERT_EQ(again().exit_code, 0);  // all is stored; nothing is measured again
  execute(
      "UPDATE generation SET tokens_hash = 'x' WHERE id = (SELECT max(g.id) FROM generation g JOIN "
      "arm a ON a.id = g.arm_id WHERE a.method = 'pld')");
  const ProgramResult wrong = again();
  EXPECT_EQ(wrong.exit_code, 5) << wrong.err;
  EXPECT_THAT(wrong.err, HasSubstr("tokens differ from plain decoding"));
  EXPECT_THAT(wrong.err, HasSubstr("pld"));
}

// Sampled tokens are keyed by their positions, so they are promised as well.
TEST_F(StoredRuns, RunAndCheckEndWithFiveWherePromisedTokensDifferWhenSampled) {
  const auto again = [&] {
    return run(run_arguments(kMaxNew, {"--label", "sampled", "--temperature", "1"}));
  };
  const ProgramResult kept = again();
  ASSERT_EQ(kept.exit_code, 0) << kept.err;
  ASSERT_EQ(with_db({"baseline", "save", "main", "--from", "sampled"}).exit_code, 0);
  execute(
      "UPDATE generation SET tokens_hash = 'x' WHERE id = (SELECT max(g.id) FROM generation g JOIN "
      "arm a ON a.id = g.arm_id WHERE a.method = 'pld')");
  const ProgramResult wrong = again();
  EXPECT_EQ(wrong.exit_code, 5) << wrong.err;
  EXPECT_THAT(wrong.err, HasSubstr("pld: tokens differ from plain decoding on 1 of 3 prompts"));
  const ProgramResult checked = with_db({"check", "sampled"});
  EXPECT_EQ(checked.exit_code, 5) << checked.out << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("tokens differ from plain decoding on 1 of 3 prompts"));
  // An arm that promises the distribution alone may have other tokens.
  execute(
      "UPDATE arm SET settings = json_set(settings, '$.sampled', 'same distribution') WHERE method "
      "= 'pld' AND temperature > 0");
  const ProgramResult allowed = with_db({"check", "sampled"});
  EXPECT_NE(allowed.exit_code, 5) << allowed.out << allowed.err;
}

TEST_F(StoredRuns, CompareRefusesRunsOfDifferentSamplers) {
  for (const char* sampler : {"inverse", "gumbel"}) {
    const ProgramResult result = run(
        run_arguments(kMaxNew, {"--temperature", "1", "--sampler", sampler, "--label", sampler}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  expect_refused(with_db({"compare", "inverse", "gumbel"}), 3,
                 "ar: sampler is inverse in A, gumbel in B");
}

TEST_F(StoredRuns, ReportFormatsAndNames) {
  for (const char* name : {"", "1", "run:1", "first", "r.db", "r.db:first", "r.db:run:1"}) {
    SCOPED_TRACE(name);
    std::vector<std::string> arguments = {"report", "-o", "json"};
    if (*name != '\0') arguments.push_back(name);
    const ProgramResult result = with_db(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(json::parse(result.out).size(), 3u);
  }
  for (const char* format : {"text", "md", "csv", "latex", "html"})
    EXPECT_THAT(with_db({"report", "-o", format, "--why", "--estimator", "geo"}).out,
                HasSubstr("pld"));
  EXPECT_THAT(with_db({"report", "--estimator", "legacy", "--interval", "bootstrap"}).out,
              HasSubstr("speedup as Spec-Bench/EAGLE"));
  expect_refused(with_db({"report", "--interval", "z"}), 2, "z not in");
  expect_refused(with_db({"report", "-o", "pdf"}), 2, "pdf");
  expect_refused(with_db({"report", "-o", "page.pdf"}), 2, "page.pdf");
  // A file's name says its format, and is named.
  const ProgramResult page = with_db({"report", "-o", "page.html"});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_EQ(page.out, "");
  EXPECT_THAT(page.err, HasSubstr("wrote page.html"));
  EXPECT_TRUE(folder_.read("page.html").starts_with("<!DOCTYPE html>"));
  expect_refused(with_db({"report", "frist"}), 2, "first");
}

TEST_F(StoredRuns, ReportIntoAFile) {
  const std::string printed = with_db({"report", "-o", "html", "first"}).out;
  EXPECT_THAT(printed, HasSubstr("</html>"));
  for (const char* by : {"task", "category"}) {
    const ProgramResult result =
        with_db({"report", "-o", "html", "--split-by", by, "--out", "report.html"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(folder_.read("report.html"), printed) << "the prompts have no category";
  }
  expect_refused(with_db({"report", "--out", "missing/report.html"}), 7, "missing/report.html");
}

TEST_F(StoredRuns, ReportInThePapersForm) {
  // The run's data set is in no paper.
  expect_refused(with_db({"report", "--as", "falcon:table-1"}), 2, "evalrun run paper-falcon");
  execute("UPDATE prompt SET task = 'gsm8k'");
  for (const char* format : {"text", "md", "latex", "csv", "json"}) {
    const ProgramResult result = with_db({"report", "--as", "falcon:table-1", "-o", format});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("GSM8K"));
    EXPECT_THAT(result.out, HasSubstr("docs/measurement.md#speedup"));
  }
  folder_.write(
      "own.csv",
      "paper,place,model,dataset,category,method,config,metric,value,sd,unit,hardware,note\n"
      "falcon,Table 1,vicuna-7b,gsm8k,,pld,greedy,speedup,1.82,,ratio,,\n");
  for (const char* format : {"text", "md", "latex", "csv", "json"})
    EXPECT_THAT(
        with_db({"report", "--as", "falcon:table-1", "--claims", "own.csv", "-o", format}).out,
        HasSubstr("1.82"));
  expect_refused(with_db({"report", "--as", "eagle"}), 2, "space, bita, falcon, self_draft");
  expect_refused(with_db({"report", "--as", "falcon:table-7"}), 2, "table-1, table-2");
  expect_refused(with_db({"report", "--as", "falcon", "-o", "html"}), 2, "--as");
  expect_refused(with_db({"report", "--as", "falcon", "--split-by", "category"}), 2, "--split-by");
}

TEST_F(StoredRuns, AdaptersOfUnequalTrainingAreNoTable) {
  execute("UPDATE prompt SET task = 'mt_bench'");
  const auto becomes = [&](const std::string& arm, const std::string& adapter) {
    execute("UPDATE arm SET label = 'bita:adapter=" + adapter +
            ",tree=efficient:5,groups=all', role = 'method', settings = json_set(settings, "
            "'$.adapter', '" +
            adapter + "') WHERE label = '" + arm + "'");
  };
  becomes("ar (A/A)", "bita-none");
  becomes("pld", "bita-deep");
  const std::vector<std::string> report = {"report", "--as", "bita:table-8"};
  expect_refused(with_db(report), 2, "bita-deep,tree=efficient:5,groups=all: unknown");
  expect_refused(with_db(report), 2, "--unequal-budgets");
  const ProgramResult marked = with_db({"report", "--as", "bita:table-8", "--unequal-budgets"});
  EXPECT_EQ(marked.exit_code, 0) << marked.err;
  EXPECT_THAT(marked.out, HasSubstr("^: not trained like the others"));
  expect_refused(with_db({"report", "--unequal-budgets"}), 2, "--unequal-budgets");
}

TEST_F(StoredRuns, ATemplateOfATaskGivesWayToTheCommandLine) {
  folder_.write("templates.json", R"({"tasks": [{"task": "jsonl:prompts.jsonl", "limit": 1,
      "max_new": 2, "chat_template": "chatnl"}], "aa": false})");
  const std::vector<std::string> plan = {"run", "templates.json", "--plan", "-m", tiny_model()};
  expect_refused(with_db(plan), 2, "did you mean 'chatml'");
  auto with_option = plan;
  with_option.insert(with_option.end(), {"--chat-template", "chatml"});
  const ProgramResult result = with_db(with_option);
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(StoredRuns, ShowAddsUp) {
  const int n = count_stored(folder_.file("r.db"));
  ASSERT_EQ(n, 3 * kRunPrompts);
  for (int id = 1; id <= n; ++id) {
    const ProgramResult result = with_db({"show", std::to_string(id), "--diff", "AR", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json g = json::parse(result.out);
    EXPECT_EQ(g["diff"]["identical"], true);
    std::vector<int> tokens = {g["turns"][0]["tokens"][0]};
    for (const json& step : g["turns"][0]["steps"]) {
      EXPECT_EQ(step["tokens"].size(), step["emitted"].get<size_t>());
      for (const json& t : step["tokens"]) tokens.push_back(t);
    }
    EXPECT_EQ(json(tokens), g["turns"][0]["tokens"]) << "the steps hold the whole text";
  }
  const ProgramResult text = with_db({"show", "1", "-m", tiny_model(), "--diff", "pld"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("identical to generation"));
  // Without the run's model, ids.
  EXPECT_THAT(with_db({"show", "1"}).out, HasSubstr("shown as ids"));
  EXPECT_THAT(with_db({"show", "first"}).out, HasSubstr("peak memory"));
  EXPECT_EQ(json::parse(with_db({"show", "run:1", "--json"}).out)["arms"].size(), 3u);
}

TEST_F(StoredRuns, ShowCountsTheStepsWithoutADraft) {
  double steps = 0, undrafted = 0;
  for (int id = 1; id <= 3 * kRunPrompts; ++id) {
    const json g = json::parse(with_db({"show", std::to_string(id), "--json"}).out);
    if (!g["arm"].get<std::string>().starts_with("pld")) continue;
    for (const json& step : g["turns"][0]["steps"]) {
      ++steps;
      undrafted += step["drafted"] == 0 ? 1 : 0;
    }
  }
  ASSERT_GT(undrafted, 0);
  ASSERT_GT(steps, undrafted);
  const json shown = json::parse(with_db({"show", "run:1", "--json"}).out);
  ASSERT_EQ(shown["arms"].size(), 3u);
  for (const json& arm : shown["arms"])
    if (arm["role"] == "method")
      EXPECT_DOUBLE_EQ(arm["no_draft"].get<double>(), undrafted / steps);
    else
      EXPECT_TRUE(arm["no_draft"].is_null()) << arm;
}

TEST_F(StoredRuns, ShowSaysWhatBatchesDid) {
  const ProgramResult ran = run(run_arguments(kMaxNew, {"--label", "pairs", "--batch", "1,2"}));
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json shown = json::parse(with_db({"show", "pairs", "--json"}).out);
  ASSERT_EQ(shown["arms"].size(), 6u);  // at each size AR, A/A and PLD
  double least = 2;
  for (const json& arm : shown["arms"]) {
    const bool alone = arm["batch"] == 1;
    EXPECT_EQ(arm["batch_mode"], alone ? "" : "static") << arm;
    EXPECT_EQ(arm["batch_steps"].is_null(), alone) << arm;
    if (alone) continue;
    const json& steps = arm["batch_steps"];
    EXPECT_GT(steps["steps"].get<int64_t>(), 0);
    EXPECT_GT(steps["tok_s"].get<double>(), 0);
    EXPECT_GT(steps["step_ms"].get<double>(), 0);
    EXPECT_GE(steps["rows_per_step"].get<double>(), steps["members_per_step"].get<double>());
    EXPECT_LE(steps["members_per_step"].get<double>(), 2);
    least = std::min(least, steps["members_per_step"].get<double>());
  }
  EXPECT_GE(least, 1);
  EXPECT_THAT(with_db({"show", "pairs"}).out, HasSubstr("steps of batches"));
  EXPECT_THAT(with_db({"show", "first"}).out, ::testing::Not(HasSubstr("steps of batches")));
  int together = 0;
  for (int64_t id = shown["first_generation"].get<int64_t>();
       id <= shown["last_generation"].get<int64_t>(); ++id) {
    const json g = json::parse(with_db({"show", std::to_string(id), "--json"}).out);
    const bool in_batch = g["arm"].get<std::string>().find("batch 2") != std::string::npos;
    for (const json& turn : g["turns"]) {
      ASSERT_EQ(turn["batch"].is_null(), !in_batch) << g["arm"];
      if (!in_batch) continue;
      ++together;
      EXPECT_EQ(turn["batch"]["steps"].size(), turn["steps"].size());
      EXPECT_EQ(turn["batch"]["summary"]["steps"], turn["steps"].size());
      int64_t rows = 0;
      for (const json& step : turn["batch"]["steps"]) rows += step["rows"].get<int64_t>();
      EXPECT_NEAR(turn["batch"]["summary"]["rows_per_step"].get<double>() *
                      static_cast<double>(turn["steps"].size()),
                  static_cast<double>(rows), 1e-6);
    }
    const std::string text = with_db({"show", std::to_string(id)}).out;
    EXPECT_EQ(text.find("in batch call") != std::string::npos, in_batch);
  }
  EXPECT_GT(together, 0);
}

TEST_F(StoredRuns, ShowSaysWhatTheMachineDidAndWhereAReplayDiffered) {
  execute("DELETE FROM clock WHERE generation_id IN (1, 2)");
  execute("INSERT INTO clock VALUES (1, 2500, 4000000000, 3000000000, 500000000, 0, 7, NULL)");
  execute("INSERT INTO gpu VALUES (1, 61, NULL, 2500, 'power cap', 1000000, 0, 0, 5000000, 0, 2)");
  execute("UPDATE generation SET asked = 15, cycle = 40 WHERE id = 1");
  execute(
      "INSERT INTO divergence SELECT id, 2, 5, 6, 0.25, 0.03 FROM turn WHERE generation_id = 1");
  const std::string text = with_db({"show", "1", "-m", tiny_model()}).out;
  EXPECT_THAT(text, HasSubstr("3 s for this process, 500 ms for others"));
  EXPECT_THAT(text, HasSubstr("preempted 7 times; clock 2.50 GHz"));
  EXPECT_THAT(text, HasSubstr("5 ms verify"));
  EXPECT_THAT(text, HasSubstr("2 CUDA graphs made; 2.50 J; 61 C; clock held down by power"));
  EXPECT_THAT(text, HasSubstr("runs in a loop"));
  EXPECT_THAT(text, HasSubstr("of 15 places the method would have gone on otherwise at 1"));
  EXPECT_THAT(text, HasSubstr("logits 0.25 apart"));
  EXPECT_THAT(with_db({"show", "1"}).out, HasSubstr("\ntoken 2: 6 instead of 5, logits"));
  const json g = json::parse(with_db({"show", "1", "--json"}).out);
  EXPECT_EQ(g["clock"]["preempted"], 7);
  EXPECT_EQ(g["gpu"]["busy"]["verify_ns"], 5000000);
  EXPECT_TRUE(g["gpu"]["power_w"].is_null());
  EXPECT_EQ(g["degenerate"], true);
  EXPECT_EQ(g["turns"][0]["divergences"][0]["found"], 6);
  const json other = json::parse(with_db({"show", "2", "--json"}).out);
  EXPECT_TRUE(other["clock"].is_null() && other["gpu"].is_null() &&
              other["replay_asked"].is_null());
  EXPECT_EQ(other["degenerate"], false);
}

TEST_F(StoredRuns, ShowFindsTheFirstDifference) {
  // One token of a method's text is changed in the file: byte 4 * 5 of the blob.
  execute(
      "UPDATE turn SET tokens = CAST(substr(tokens, 1, 20) || x'09000000' || substr(tokens, 25) AS "
      "BLOB)"
      " WHERE generation_id = (SELECT max(g.id) FROM generation g JOIN arm a ON a.id = g.arm_id"
      " WHERE a.method = 'pld')");
  const std::string id = query_value(
      folder_.file("r.db"),
      "SELECT max(g.id) FROM generation g JOIN arm a ON a.id = g.arm_id WHERE a.method = 'pld'");
  const json diff = json::parse(with_db({"show", id, "--diff", "ar", "--json"}).out)["diff"];
  EXPECT_EQ(diff["identical"], false);
  EXPECT_EQ(diff["index"], 5);
  EXPECT_EQ(diff["token"], 9);
  EXPECT_THAT(with_db({"show", id, "--diff", "AR"}).out, HasSubstr("turn 1, token 5"));
}

TEST_F(StoredRuns, ShowRefuses) {
  expect_refused(with_db({"show", "999"}), 2, "999");
  expect_refused(with_db({"show", "99999999999999999999"}), 2, "99999999999999999999");
  expect_refused(with_db({"show", "1", "--diff", "medusa"}), 2, "medusa");
  expect_refused(run({"show", "1", "--db", "none.db"}), 7, "none.db");
}

TEST_F(StoredRuns, ScoreAgainstTheBaselineArm) {
  execute(
      "UPDATE turn SET text = 'one two three four five' WHERE generation_id IN (SELECT g.id FROM "
      "generation g JOIN arm a ON a.id = g.arm_id WHERE a.role <> 'method')");
  execute(
      "UPDATE turn SET text = 'one two three four six' WHERE generation_id IN (SELECT g.id FROM "
      "generation g JOIN arm a ON a.id = g.arm_id WHERE a.role = 'method')");
  for (const char* against : {"ar", "AR", "baseline"}) {
    const ProgramResult scored = with_db({"score", "first", "--against", against});
    ASSERT_EQ(scored.exit_code, 0) << scored.err;
    EXPECT_THAT(scored.out, HasSubstr(fmt::format("{} answers against", 2 * kRunPrompts)));
    EXPECT_THAT(scored.out, HasSubstr("rouge1-vs-baseline@rouge_score-0.1.2  0.8000"));
  }
  const json rows = json::parse(with_db({"report", "-o", "json"}).out);
  EXPECT_FALSE(rows[0]["quality"].contains("rouge1-vs-baseline@rouge_score-0.1.2"));
  for (const json& row : rows) {
    if (row["role"] == "baseline") continue;
    const json& quality = row["quality"]["rougeL-vs-baseline@rouge_score-0.1.2"];
    EXPECT_NEAR(quality["value"].get<double>(), row["role"] == "aa" ? 1 : 0.8, 1e-12);
    EXPECT_EQ(quality["n"], kRunPrompts);
  }
  const ProgramResult table = with_db({"report", "--explain"});
  EXPECT_THAT(table.out, HasSubstr("bleu-vs-baseline@sacrebleu-2.6.0"));
  EXPECT_THAT(table.out, HasSubstr("-vs-baseline: likeness to the baseline arm's answer"));
  const auto lines = parse_lines(
      with_db({"score", "--against", "ar", "--json", "--evaluator", "rougeL@pltrdy-1.0.1"}).out);
  ASSERT_EQ(lines.size(), 2u * kRunPrompts);
  EXPECT_EQ(lines[0]["evaluator"], "rougeL-vs-baseline@pltrdy-1.0.1");
  expect_refused(with_db({"score", "first"}), 2, "--against ar");
  expect_refused(with_db({"score", "first", "--against", "pld"}), 2, "baseline arm");
  expect_refused(with_db({"score", "frist", "--against", "ar"}), 2, "first");
  expect_refused(with_db({"score", "first", "--against", "ar", "--evaluator", "gsm8k"}), 2,
                 "how alike");
  expect_refused(with_db({"score", "--against", "ar", "--task", "gsm8k"}), 2, "baseline arm");
  expect_refused(with_db({"score"}), 2, "--task");
}

TEST_F(StoredRuns, CompareWithItself) {
  const ProgramResult result = with_db({"compare", "first", "r.db:run:1", "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json c = json::parse(result.out);
  EXPECT_EQ(c["confidence"], 0.95);
  const json less =
      json::parse(with_db({"compare", "1", "1", "--confidence", "0.8", "--format", "json"}).out);
  EXPECT_EQ(less["confidence"], 0.8);
  for (const char* format : {"text", "md"})
    EXPECT_THAT(with_db({"compare", "1", "1", "-o", format}).out, HasSubstr("pld"));
  expect_refused(with_db({"compare", "1", "none"}), 2, "none");
  expect_refused(with_db({"compare", "1"}), 2, "b is required");
  expect_refused(with_db({"compare", "1", "1", "--min-effect", "3 per cent"}), 2, "--min-effect");
}

TEST_F(StoredRuns, CompareSessions) {
  ASSERT_EQ(run(run_arguments(kMaxNew, {"--no-resume", "--label", "again"})).exit_code, 0);
  const ProgramResult result =
      with_db({"compare", "first,again", "first", "--adjust", "holm", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json c = json::parse(result.out);
  EXPECT_EQ(c["a"]["sessions"].size(), 2u);
  EXPECT_EQ(c["b"]["sessions"].size(), 1u);
  EXPECT_EQ(c["adjust"], "holm");
  EXPECT_EQ(c["scope"], "fixed-set");
  EXPECT_TRUE(c["arms"][0]["session_sd"].is_number());
  EXPECT_THAT(with_db({"compare", "1,2", "1", "--scope", "population"}).out,
              HasSubstr("A has 2 sessions"));
  expect_refused(with_db({"compare", "1,1", "1"}), 7, "is the same run");
  expect_refused(with_db({"compare", "1,", "1"}), 2, "without a name");
  expect_refused(with_db({"compare", "1", "1", "--adjust", "bonferroni"}), 2, "bonferroni");
}

TEST_F(StoredRuns, BaselineLife) {
  EXPECT_THAT(with_db({"baseline", "list"}).out, HasSubstr("no baselines yet"));
  ASSERT_EQ(with_db({"baseline", "save", "main", "--note", "as released"}).exit_code, 0);
  const json list = json::parse(with_db({"baseline", "list", "--json"}).out);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["run"], 1);
  EXPECT_EQ(list[0]["note"], "as released");
  EXPECT_THAT(with_db({"baseline", "show", "main"}).out, HasSubstr("as released"));
  EXPECT_EQ(with_db({"report", "main"}).exit_code, 0) << "a baseline names its run";
  expect_refused(with_db({"baseline", "rm", "mian"}), 3, "main");
  EXPECT_EQ(with_db({"baseline", "rm", "main"}).exit_code, 0);
  EXPECT_EQ(json::parse(with_db({"baseline", "list", "--json"}).out).size(), 0u);
  EXPECT_EQ(count_stored(folder_.file("r.db")), 3 * kRunPrompts) << "the run stays";
}

TEST_F(StoredRuns, BaselineAsAFile) {
  ASSERT_EQ(with_db({"baseline", "save", "main", "--note", "as released"}).exit_code, 0);
  const json written =
      json::parse(with_db({"baseline", "export", "main", "main.db", "--json"}).out);
  EXPECT_EQ(written["bytes"], std::filesystem::file_size(folder_.file("main.db")));
  EXPECT_EQ(check_integrity(folder_.file("main.db")), "ok");
  // After a run of another length, so that every number changes.
  const ProgramResult other =
      run({"run", "-m", tiny_model(), "--db", "other.db", "--tasks", "jsonl:prompts.jsonl",
           "--methods", "ar,pld", "-n", "8", "-w", "0", "-t", "1"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  const ProgramResult imported = run({"baseline", "import", "main.db", "--db", "other.db"});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("baseline 'main' = run 2 (first"));
  EXPECT_EQ(check_integrity(folder_.file("other.db")), "ok");
  // The two are one run to every reader.
  json here = json::parse(with_db({"report", "-o", "json", "main"}).out);
  json there = json::parse(run({"report", "-o", "json", "main", "--db", "other.db"}).out);
  for (json* rows : {&here, &there})
    for (json& row : *rows) row.erase("run");  // the number
  EXPECT_EQ(there, here);
  const json compared =
      json::parse(with_db({"compare", "main", "other.db:main", "--format", "json"}).out);
  EXPECT_FALSE(compared["arms"].empty());
  for (const json& row : compared["arms"])
    EXPECT_TRUE(row["ratio"] == 1.0 && row["identical_share"] == 1.0) << row;
  const ProgramResult gate = with_db({"check", "main", "--baseline", "main.db:main"});
  EXPECT_EQ(gate.exit_code, 0) << gate.out << gate.err;
  // Once more: the run is known, the name is taken.
  const std::vector<std::string> again = {"baseline", "import", "main.db", "--db", "other.db"};
  expect_refused(run(again), 2, "'main' already: run 2");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--force"}, {"--as", "released"}}) {
    std::vector<std::string> arguments = again;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("= run 2"));
  }
  EXPECT_EQ(query_value(folder_.file("other.db"), "SELECT count(*) FROM run"), "2");
  // Into a database that is not there yet, from one of several names.
  expect_refused(run({"baseline", "import", "other.db", "--db", "new.db"}), 2, "main, released");
  EXPECT_EQ(run({"baseline", "import", "other.db:released", "--db", "new.db"}).exit_code, 0);
  EXPECT_EQ(run({"report", "released", "--db", "new.db"}).exit_code, 0);
}

TEST_F(StoredRuns, BaselineFilesThatAreRefused) {
  expect_refused(with_db({"baseline", "export", "main", "main.db"}), 3, "main");
  expect_refused(run({"baseline", "import", "r.db", "--db", "new.db"}), 3, "holds no baseline");
  ASSERT_EQ(with_db({"baseline", "save", "main"}).exit_code, 0);
  expect_refused(with_db({"baseline", "export", "main", "r.db"}), 7, "exists already");
  ASSERT_EQ(with_db({"baseline", "export", "main", "main.db"}).exit_code, 0);
  expect_refused(run({"baseline", "import", "main.db:mian", "--db", "new.db"}), 3, "main");
  expect_refused(run({"baseline", "import", "none.db", "--db", "new.db"}), 7, "none.db");
  expect_refused(run({"baseline", "import", "prompts.jsonl", "--db", "new.db"}), 7,
                 "not an SQLite database");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("new.db")));
  execute("UPDATE meta SET value = '99' WHERE name = 'schema_version'");
  expect_refused(run({"baseline", "import", "r.db", "--db", "new.db"}), 7, "version 99");
  execute("UPDATE meta SET value = '4' WHERE name = 'schema_version'");
  expect_refused(run({"baseline", "import", "r.db", "--db", "new.db"}), 7, "migrated");
  execute(fmt::format("UPDATE meta SET value = '{}' WHERE name = 'schema_version'",
                      results::kSchemaVersion));
  execute("UPDATE generation SET fault = 'miscount' WHERE id = 2");
  expect_refused(run({"baseline", "import", "r.db", "--db", "new.db"}), 2, "planted fault");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("new.db")));
}

TEST_F(StoredRuns, UnfitBaselinesAreRefused) {
  expect_refused(with_db({"baseline", "save", "main", "--from", "none"}), 2, "none");
  execute("UPDATE generation SET fault = 'slow:10%' WHERE id = 2");
  expect_refused(with_db({"baseline", "save", "main"}), 2, "planted fault");
  execute("UPDATE generation SET fault = '', status = 'failed: x' WHERE id = 2");
  expect_refused(with_db({"baseline", "save", "main"}), 2, "failed");
  execute("UPDATE generation SET status = 'ok'; UPDATE run SET finished = NULL");
  expect_refused(with_db({"baseline", "save", "main"}), 2, "not finished");
  expect_refused(run({"baseline", "save", "main", "--db", "none.db"}), 7, "none.db");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("none.db")));
}

}  // namespace
}  // namespace evalrun::tests
