// A suite of several models, options with several values, runs side by side, and what a plan says
// about them.
#include <filesystem>

#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kPrompts = 4;

class Models : public CommandTest {
 protected:
  void SetUp() override {
    std::string prompts;
    for (int i = 0; i < kPrompts; ++i)
      prompts += json({{"id", fmt::format("p{}", i)},
                       {"prompt", fmt::format("the cat sat on the mat and the cat sat on {}", i)},
                       {"category", i % 2 == 0 ? "even" : "odd"},
                       {"chat", false}})
                     .dump() +
                 "\n";
    folder_.write("prompts.jsonl", prompts);
    write_suite({tiny_model(), other_vocabulary()});
  }
  void write_suite(const std::vector<std::string>& models) {
    folder_.write("two.json", json({{"name", "two"},
                                    {"models", models},
                                    {"methods", {"pld"}},
                                    {"tasks", {"jsonl:prompts.jsonl"}},
                                    {"max_new", 12},
                                    {"warmup", 0},
                                    {"ignore_eos", true}})
                                  .dump());
  }
  ProgramResult measure(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"run", "two.json", "--db",    "r.db",
                                          "-t",  "1",        "--dtype", "f32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::string value(const std::string& sql) { return query_value(folder_.file("r.db"), sql); }
};

TEST_F(Models, ARunPerModelAndATableOfBoth) {
  const ProgramResult first = measure({"-o", "json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const json grouped = json::parse(first.out);
  EXPECT_EQ(grouped["group_by"], "model");
  const json& speedup = grouped["tables"][0]["rows"][0];
  ASSERT_EQ(speedup["groups"].size(), 2u);
  EXPECT_EQ(speedup["groups"][0]["group"], "tiny-llama");
  EXPECT_EQ(speedup["groups"][1]["group"], "tiny-qwen3");
  EXPECT_TRUE(speedup["sd"].is_number());
  EXPECT_EQ(value("SELECT group_concat(label, ' ') FROM run"), "two@tiny-llama two@tiny-qwen3");
  EXPECT_EQ(
      value("SELECT count(*) FROM run r WHERE json_array_length(r.suite_json, '$.models') = 1"),
      "2");
  const int stored = count_stored(folder_.file("r.db"));
  // Again: nothing is measured twice. One model of them: a run of its own, as before.
  const ProgramResult again = measure();
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(count_stored(folder_.file("r.db")), stored);
  EXPECT_THAT(again.out, AllOf(HasSubstr("by model"), HasSubstr("mean ± sd")));
  ASSERT_EQ(measure({"-m", tiny_model()}).exit_code, 0);
  EXPECT_EQ(value("SELECT label FROM run WHERE id = 3"), "two");
  EXPECT_EQ(value("SELECT json_type(suite_json, '$.models') IS NULL FROM run WHERE id = 3"), "1");

  // The stored runs side by side, whole and by category.
  const auto report = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"report", "--db", "r.db"});
    return run(arguments);
  };
  EXPECT_THAT(report({"1", "2"}).out, HasSubstr("tiny-qwen3"));
  const json parts = json::parse(
      report({"two@tiny-llama", "2", "--columns-by", "model,category", "-o", "json"}).out);
  ASSERT_EQ(parts["tables"].size(), 3u);
  EXPECT_THAT(parts["tables"][0]["dataset"].get<std::string>(), HasSubstr(" / even"));
  const json categories = json::parse(report({"1", "--columns-by", "category", "-o", "json"}).out);
  EXPECT_EQ(categories["tables"][0]["rows"][0]["groups"][1]["group"], "odd");
  EXPECT_EQ(categories["tables"][0]["rows"][0]["groups"][1]["n_prompts"], kPrompts / 2);
  for (const char* format : {"text", "md", "csv", "latex"})
    EXPECT_THAT(report({"1", "--columns-by", "category", "-o", format}).out, HasSubstr("even"));
  expect_refused(report({"1", "--columns-by", "model"}), 2, "one run is one model");
  expect_refused(report({"1", "--columns-by", "language"}), 2, "language");
  expect_refused(report({"1", "2", "-o", "html"}), 2, "html");
  expect_refused(report({"1", "2", "--split-by", "category"}), 2, "--split-by");
  expect_refused(report({"1", "--columns-by", "colour"}), 2, "colour");
  expect_refused(report({"1", "9"}), 2, "no run '9'");

  // A plan knows how long these arms took.
  const json plan = json::parse(measure({"--plan", "--json", "--limit", "2"}).out);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0]["measured_in_run"], 3) << "the newest with these arms";
  EXPECT_EQ(plan[1]["measured_in_run"], 2);
  EXPECT_EQ(plan[0]["tasks"][0]["measured"], true);
  EXPECT_EQ(plan[0]["tasks"][0]["generations"], 6);
  EXPECT_EQ(plan[0]["detectable_effect"].size(), 1u) << "a measured deviation, no guesses";
  const std::string text = measure({"--plan"}).out;
  EXPECT_THAT(text, AllOf(HasSubstr("run 'two@tiny-qwen3'"), HasSubstr("3 arms: ar, ar (A/A), pld"),
                          HasSubstr("as measured in run 2 'two@tiny-qwen3'")));
  EXPECT_EQ(value("SELECT count(*) FROM run"), "3") << "a plan stores nothing";
}

TEST_F(Models, APlanWithoutHistoryGuessesAndSaysSo) {
  const json plan = json::parse(measure({"--plan", "--json", "-m", tiny_model()}).out);
  EXPECT_TRUE(plan["measured_in_run"].is_null());
  EXPECT_EQ(plan["detectable_effect"].size(), 2u);
  EXPECT_EQ(plan["tasks"][0]["measured"], false);
  const std::string text = measure({"--plan", "-m", tiny_model()}).out;
  EXPECT_THAT(text, AllOf(HasSubstr("time left: at most"), HasSubstr("not measured yet"),
                          Not(HasSubstr("as measured"))));
}

TEST_F(Models, APlanPricesStepsByWhatTheirRowsCostHere) {
  const std::string file = folder_.file("home/row-cost.json");
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"-m", tiny_model(), "--methods", "pld:k=5", "--plan"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return measure(arguments).out;
  };
  EXPECT_EQ(json::parse(plan({"--json"}))["largest_steps"].size(), 3u) << "measured for the plan";
  EXPECT_FALSE(std::filesystem::exists(file)) << "and not kept";
  // A run of other arms leaves a table. Ours says that n rows cost n times as much as one.
  ASSERT_EQ(measure({"-m", tiny_model()}).exit_code, 0);
  json home = json::parse(base::read_file(file));
  ASSERT_EQ(home["tables"].size(), 1u);
  for (json& table : home["tables"])
    for (json& row : table["rows"]) row["ms"] = row["rows"].get<double>();
  folder_.write("home/row-cost.json", home.dump());
  const json priced = json::parse(plan({"--json"}));
  const json& steps = priced["largest_steps"];
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0], json({{"arm", "ar"}, {"rows", 1}, {"plain_steps", 1.0}}));
  EXPECT_EQ(steps[2], json({{"arm", "pld:k=5"}, {"rows", 6}, {"plain_steps", 6.0}}));
  // Six tokens for six plain steps, if every draft token is accepted.
  ASSERT_EQ(priced["ceilings"].size(), 1u) << "plain decoding drafts nothing";
  const json& ceiling = priced["ceilings"][0];
  EXPECT_EQ(ceiling["arm"], "pld:k=5");
  EXPECT_EQ(ceiling["speedup"], 1.0);
  EXPECT_EQ(ceiling["break_even_tau"], 6.0);
  EXPECT_NEAR(ceiling["acceptance_needed"].get<double>(), 1, 1e-9);
  ASSERT_EQ(priced["warnings"].size(), 1u);
  EXPECT_THAT(priced["warnings"][0].get<std::string>(),
              HasSubstr("pld:k=5: unlikely to be faster than plain decoding"));
  // One arm of three pays five further steps for each of 12 tokens of 4 answers.
  const double further =
      priced["seconds_at_most"].get<double>() - priced["seconds_at_plain_speed"].get<double>();
  EXPECT_NEAR(further / (5 * 12 * kPrompts * priced["step_seconds"].get<double>()), 1, 1e-6);
  EXPECT_THAT(
      plan({}),
      AllOf(HasSubstr("at the speed of plain decoding)"), HasSubstr("no draft token accepted"),
            ContainsRegex("\nmethod +steps \\(rows\\)\n"), ContainsRegex("\nar +1 \\(1\\)\n"),
            ContainsRegex("\npld:k=5 +6 \\(6\\)\n"),
            HasSubstr("\nwarning: pld:k=5: unlikely to be faster")));
}

TEST_F(Models, APlanShowsBatchesAndWaves) {
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"-m", tiny_model(), "--plan"});
    return measure(more);
  };
  const json shown = json::parse(plan({"--batch", "2,1", "--json"}).out);
  EXPECT_EQ(shown["suite"]["batch"], json({1, 2}));
  EXPECT_EQ(shown["suite"]["batch_mode"], "static");
  EXPECT_EQ(shown["waves"], kPrompts / 2);
  EXPECT_EQ(shown["arms"],
            json({"ar", "ar (A/A)", "ar, batch 2", "ar, batch 2 (A/A)", "pld", "pld, batch 2"}));
  EXPECT_EQ(shown["largest_steps"].size(), 6u);
  EXPECT_EQ(shown["generations"], 6 * kPrompts);
  EXPECT_THAT(plan({"--batch", "2,1"}).out,
              AllOf(HasSubstr("batches of 1 and 2 (static), waves of 2 prompts, 2 of them"),
                    HasSubstr("6 arms: ar, ar (A/A), pld, each at batch 1, 2\n"),
                    HasSubstr("in steps of plain decoding of the same batch (in brackets: rows "),
                    ContainsRegex("\nmethod +batch 1 +batch 2\n"),
                    ContainsRegex("\nar +1 \\(1\\) +1 \\(1\\)\n"),
                    ContainsRegex("\nar \\(A/A\\) +1 \\(1\\) +1 \\(1\\)\n"),
                    ContainsRegex("\npld +[0-9.]+ \\([0-9]+\\) +[0-9.]+ \\([0-9]+\\)\n")));
  EXPECT_THAT(plan({"--batch", "2", "--batch-mode", "continuous", "--wave", "4"}).out,
              HasSubstr("batches of 2 (continuous), waves of 4 prompts, 1 of them"));
  EXPECT_THAT(plan({"--batch", "2", "--batch-mode", "continuous", "--wave", "4"}).out,
              HasSubstr("3 arms: ar, ar (A/A), pld, each at batch 2\n"))
      << "the mode is said once";
  const std::string alone = plan({}).out;
  EXPECT_THAT(alone, Not(HasSubstr("batch")));
  EXPECT_THAT(alone, Not(HasSubstr("wave")));
}

TEST_F(Models, BatchesOfTheSuiteGiveWayToTheCommandLine) {
  folder_.write("batches.json", json({{"methods", {"pld"}},
                                      {"tasks", {"jsonl:prompts.jsonl"}},
                                      {"max_new", 12},
                                      {"batch", {2, 4}},
                                      {"batch_mode", "continuous"},
                                      {"wave", 4}})
                                    .dump());
  const auto suite = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {"run",  "batches.json", "-m", tiny_model(), "--db",
                                     "r.db", "-t",           "1",  "--plan",     "--json"};
    line.insert(line.end(), more.begin(), more.end());
    return json::parse(run(line).out)["suite"];
  };
  EXPECT_EQ(suite({})["batch"], json({2, 4}));
  EXPECT_EQ(suite({"--batch", "2"})["batch"], json({2}));
  EXPECT_EQ(suite({"--batch", "2"})["batch_mode"], "continuous");
  EXPECT_EQ(suite({"--batch-mode", "static"})["batch_mode"], "static");
  EXPECT_FALSE(suite({"--wave", "0"}).contains("wave"));
  for (const char* field : {"batch", "batch_mode", "wave"})
    EXPECT_FALSE(suite({"--batch", "1"}).contains(field)) << field;
}

TEST_F(Models, BatchesThatCannotBeMeasuredAreRefused) {
  const auto refused = [&](std::vector<std::string> more, const std::string& named) {
    more.insert(more.begin(), {"-m", tiny_model()});
    expect_refused(measure(more), 2, named);
  };
  refused({"--batch", "8", "--plan"}, "has 4 prompts in this run, fewer than a batch of 8");
  refused({"--batch", "2,2", "--plan"}, "'batch' lists 2 twice");
  refused({"--batch", "2", "--replay", "--plan"}, "'replay' with batches of 2");
  refused({"--batch", "2", "--no-kv-cache", "--plan"}, "'kv_cache' with batches of 2");
  refused({"--batch-mode", "continuous", "--plan"}, "no batch is above 1");
  refused({"--batch", "2,4", "--wave", "2", "--plan"}, "no whole number of batches of 4");
  refused({"--batch", "65", "--plan"}, "--batch");
  refused({"--batch", "2", "--lock-step"}, "--lock-step with batches of 2");
}

TEST_F(Models, APlanKnowsTheWarmUp) {
  const auto warmup = [&](const std::string& value) {
    const ProgramResult plan = measure({"--plan", "-m", tiny_model(), "-w", value});
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    const size_t at = plan.out.find("warm-up up to");
    return plan.out.substr(at, plan.out.find(';', at) - at);
  };
  EXPECT_EQ(warmup("auto"), "warm-up up to 10 s");
  EXPECT_EQ(warmup("3"), "warm-up up to 0 s");
  expect_refused(measure({"-w", "none"}), 2, "'none' is neither auto nor a count");
}

TEST_F(Models, WhatCannotWorkIsRefusedBeforeAnythingIsMeasured) {
  write_suite({tiny_model(), "no-such-model"});
  expect_refused(measure(), 7, "no-such-model");
  expect_refused(run({"validate", "two.json"}), 7, "no-such-model");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("r.db")));
  // A draft model fits one of the two vocabularies only.
  write_suite({tiny_model(), other_vocabulary()});
  expect_refused(measure({"--methods", "sps:k=2", "--draft", tiny_model()}), 2, "tiny-qwen3");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("r.db")));
  expect_refused(run({"check", "--self-test", "--suite", "two.json"}), 2, "-m");
  write_suite({tiny_model(), tiny_model()});
  expect_refused(measure(), 2, "twice");
}

// One reads the same folder again as a second model, the other as a copy of its own.
TEST_F(Models, ADraftHasAFormatOfItsOwn) {
  const ProgramResult result =
      measure({"-m", tiny_model(), "--draft", tiny_model(), "--draft-dtype", "int8", "--methods",
               "sps,sps:draft=self", "--limit", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(value("SELECT group_concat(dtype || ' ' || json_extract(settings, '$.draft_dtype') || "
                  "' ' || (draft_hash = '') || ' ' || (extra_parameter_bytes > 0), '; ') FROM "
                  "(SELECT * FROM arm WHERE method = 'sps' ORDER BY label)"),
            "f32 int8 0 1; f32 q4 1 1");
  const auto warning = [&](const std::string& of_target, const std::string& of_draft) {
    return run({"run", "two.json", "--db", "r.db", "-m", tiny_model(), "--draft", tiny_model(),
                "--dtype", of_target, "--draft-dtype", of_draft, "--methods", "sps", "--plan"})
        .err;
  };
  EXPECT_THAT(warning("int8", "bf16"),
              HasSubstr("computed in bf16, wider than the target's int8: --draft-dtype int8"));
  EXPECT_THAT(warning("bf16", "int8"), Not(HasSubstr("wider")));
  expect_refused(measure({"-m", tiny_model(), "--draft-dtype", "q4"}), 2, "--draft");
  expect_refused(run({"run", "two.json", "--db", "r.db", "-m", tiny_model(), "--dtype", "q4",
                      "--methods", "sps:draft=self", "--plan"}),
                 2, "draft_dtype=q4 is not narrower than the target's q4");
}

// Every combination is a run with a label of its own, and one table shows them.
TEST_F(Models, OptionsWithSeveralValuesMultiply) {
  const std::vector<std::string> line = {"run",       "--tasks",  "jsonl:prompts.jsonl",
                                         "--methods", "pld",      "--db",
                                         "r.db",      "--model",  tiny_model(),
                                         "--dtype",   "f32,bf16", "-t",
                                         "1",         "-n",       "8,12",
                                         "-w",        "0",        "--label",
                                         "mine",      "--json"};
  const ProgramResult first = run(line);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(value("SELECT group_concat(label, ' ') FROM (SELECT label FROM run ORDER BY id)"),
            "mine@dtype=f32,max-new=8 mine@dtype=f32,max-new=12 mine@dtype=bf16,max-new=8 "
            "mine@dtype=bf16,max-new=12");
  EXPECT_EQ(value("SELECT count(*) FROM run JOIN arm ON arm.run_id = run.id WHERE "
                  "arm.dtype = 'bf16' AND arm.max_new = 8 AND run.label LIKE '%bf16,max-new=8'"),
            "3");
  const json grouped = json::parse(first.out);
  EXPECT_EQ(grouped["group_by"], "setting");
  const json& rows = grouped["tables"][0]["rows"];
  EXPECT_EQ(rows[0]["groups"][2]["group"], "dtype=bf16, max-new=8");
  EXPECT_EQ(rows[1]["figure"], "tok_s");
  EXPECT_EQ(rows[1]["method"], "ar");
  EXPECT_GT(rows[1]["groups"][3]["value"].get<double>(), 0);
  const ProgramResult again = run(line);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.out, first.out) << "all was stored already";
}

// A sweep over what the weights have nothing to do with reads them once, for checking the plans of
// all runs and for measuring them.
TEST_F(Models, RunsOfTheSameModelShareIt) {
  const auto loads = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"-v", "--no-resume"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = measure(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::vector<std::string> lines = base::split(result.err, '\n');
    return std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
      return line.starts_with("debug: loading ");
    });
  };
  EXPECT_EQ(loads({"-m", tiny_model()}), 1);
  EXPECT_EQ(loads({"-m", tiny_model(), "--temperature", "0,0.5", "-n", "4,8"}), 1);
  EXPECT_EQ(loads({"-m", tiny_model(), "--temperature", "0,0.5", "--plan"}), 1);
  EXPECT_EQ(loads({"-n", "4,8"}), 4) << "of two models one is in memory at a time";
}

// Of several temperatures, 0 has no sampler: that run is the one without --sampler.
TEST_F(Models, AGreedyRunBesideSampledOnesTakesNoSampler) {
  const auto plans = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--plan", "--json", "-m", tiny_model(), "--temperature", "0,1"});
    return json::parse(measure(more).out);
  };
  const json with = plans({"--sampler", "gumbel"}), without = plans({});
  ASSERT_EQ(with.size(), 2u);
  EXPECT_FALSE(with[0]["suite"].contains("sampler"));
  EXPECT_EQ(with[0]["run_key"], without[0]["run_key"]);
  EXPECT_EQ(with[1]["suite"]["sampler"], "gumbel");
  EXPECT_NE(with[1]["run_key"], without[1]["run_key"]);
  expect_refused(measure({"-m", tiny_model(), "--plan", "--sampler", "gumbel"}), 2,
                 "'sampler' is 'gumbel' with temperature 0: greedy decoding draws nothing "
                 "(--sampler)");
}

TEST_F(Models, SeveralModelsOnTheCommandLine) {
  const ProgramResult both = run({"run",
                                  "--tasks",
                                  "jsonl:prompts.jsonl",
                                  "--methods",
                                  "pld",
                                  "--db",
                                  "r.db",
                                  "-m",
                                  tiny_model(),
                                  "-m",
                                  other_vocabulary(),
                                  "-t",
                                  "1",
                                  "-n",
                                  "4",
                                  "-w",
                                  "0",
                                  "--dtype",
                                  "f32",
                                  "--json"});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(json::parse(both.out)["group_by"], "model");
  EXPECT_EQ(value("SELECT group_concat(label, ' ') FROM run"),
            "custom@tiny-llama custom@tiny-qwen3");
}

TEST_F(Models, WrongListsAreRefusedBeforeAnythingIsMeasured) {
  const auto refused = [&](std::vector<std::string> more, const std::string& named) {
    more.insert(more.begin(), {"run", "two.json", "--db", "r.db", "-m", tiny_model()});
    expect_refused(run(more), 2, named);
    EXPECT_FALSE(std::filesystem::exists(folder_.file("r.db")));
  };
  refused({"--dtype", "f32,f32"}, "--dtype names f32 twice");
  refused({"--dtype", "f32,nope"}, "nope");
  refused({"-t", "1,2,many"}, "many");
  refused({"--max-new", "1,2,3,4,5,6,7,8,9", "-t", "1,2,3,4,5,6,7,8"}, "72 runs, more than 64");
}

TEST_F(Models, NamedListsOfMethods) {
  const auto labels = [&](const std::string& methods) {
    std::filesystem::remove(folder_.file("r.db"));
    const ProgramResult r =
        run({"run", "--tasks", "jsonl:prompts.jsonl", "--methods", methods, "--db", "r.db", "-m",
             tiny_model(), "-t", "1", "-n", "2", "-w", "0", "--no-aa", "--limit", "1"});
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return value("SELECT group_concat(DISTINCT method) FROM (SELECT method FROM arm ORDER BY id)");
  };
  EXPECT_EQ(labels("fast"), "ar,pld,lookahead,self_draft");
  const std::string all = labels("all");
  for (const char* method : {"pld", "lookahead", "self_draft", "self_spec"})
    EXPECT_THAT(all, HasSubstr(method));
  EXPECT_THAT(all, Not(HasSubstr("medusa"))) << "nobody trained one for this model";
  expect_refused(run({"verify", "--methods", "all", "-m", tiny_model()}), 2,
                 "the list 'all' holds methods that need a draft model or a file");
}

}  // namespace
}  // namespace evalrun::tests
