// A suite of several models, runs side by side, and what a plan says about them.
#include <filesystem>

#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::AllOf;
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
  // Again: nothing is measured twice. One model of them: a run of its own, as ever.
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

}  // namespace
}  // namespace evalrun::tests
