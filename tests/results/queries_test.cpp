// Named queries, against what was written and against SQL by hand.
#include "results/queries.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "engine/base/text.h"
#include "results/generation_queries.h"
#include "tests/results/store_queries.h"

namespace evalrun::results {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class Queries : public ::testing::Test {
 protected:
  Queries() : store_(folder_.file("a.db")) {}
  tests::TempFolder folder_;
  ResultStore store_;
};

TEST_F(Queries, ARunAndItsEnvironment) {
  tests::SyntheticRun first = usual();
  first.environment = {{"cpu", "Some CPU"}, {"memory", "7"}};
  const int64_t run = tests::fill(store_, first);
  RunRecord open = run_record("open", "not finished");
  open.suite_json = "{}";
  const int64_t other = store_.add_run(open);
  const auto row = find_run_row(store_, run);
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->id, run);
  EXPECT_EQ(row->key, first.key);
  EXPECT_EQ(row->label, first.label);
  EXPECT_EQ(row->commit, first.commit);
  EXPECT_EQ(row->finished, text(store_, "SELECT finished FROM run WHERE id = 1"));
  EXPECT_EQ(find_run_row(store_, other)->suite_json, "{}");
  EXPECT_EQ(find_run_row(store_, other)->finished, "");
  EXPECT_FALSE(find_run_row(store_, 99).has_value());
  EXPECT_THAT(environment(store_, run), ElementsAre(Pair("cpu", "Some CPU"), Pair("memory", "7")));
  EXPECT_THAT(environment(store_, other), ElementsAre());
  const auto newest = newest_runs(store_, 1);
  ASSERT_EQ(newest.size(), 1u);
  EXPECT_EQ(newest[0].id, other);
}

TEST_F(Queries, ArmsAsTheyWereAdded) {
  const int64_t run = store_.add_run(run_record("k"));
  ArmRecord arm;
  arm.key = "key", arm.label = "pld:k=3", arm.method = "pld", arm.params = "k=3";
  arm.method_version = "2", arm.role = "method", arm.lossless = "greedy", arm.model = "m";
  arm.model_hash = "mh", arm.draft = "d", arm.draft_hash = "dh", arm.dtype = "q4";
  arm.isa = "avx2", arm.device = "cuda:1", arm.threads = 3, arm.batch = 4, arm.kv_cache = false;
  arm.temperature = 0.5, arm.top_p = 0.25, arm.top_k = 7, arm.max_new = 9, arm.ignore_eos = true;
  arm.settings = {{"bits", "one-isa"}, {"kv_dtype", "int8"}};
  arm.weight_bytes = 11, arm.extra_parameter_bytes = 12, arm.kv_bytes = 13, arm.peak_bytes = 14;
  const int64_t id = store_.add_arm(run, arm);
  const std::vector<ArmRow> all = arms(store_, run);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].id, id);
  const ArmRecord& a = all[0].record;
  EXPECT_THAT((std::vector{a.key, a.label, a.method, a.params, a.method_version, a.role, a.lossless,
                           a.model, a.model_hash, a.draft, a.draft_hash, a.dtype, a.isa, a.device}),
              ElementsAre("key", "pld:k=3", "pld", "k=3", "2", "method", "greedy", "m", "mh", "d",
                          "dh", "q4", "avx2", "cuda:1"));
  EXPECT_THAT((std::vector{a.temperature, a.top_p}), ElementsAre(0.5, 0.25));
  EXPECT_THAT(
      (std::vector<int64_t>{a.threads, a.batch, a.kv_cache, a.top_k, a.max_new, a.ignore_eos,
                            a.weight_bytes, a.extra_parameter_bytes, a.kv_bytes, a.peak_bytes}),
      ElementsAre(3, 4, 0, 7, 9, 1, 11, 12, 13, 14));
  EXPECT_EQ(a.settings, arm.settings);
}

TEST_F(Queries, CountsOfGenerations) {
  tests::SyntheticRun run = usual();
  run.change = [](GenerationRecord& g, const tests::SyntheticArm& arm, int prompt, int, int) {
    if (arm.method == "pld" && prompt == 0) g.status = "failed: x";
    if (arm.method == "pld" && prompt == 1) g.fault = "slow:5%";
  };
  const int64_t id = tests::fill(store_, run);
  const GenerationCounts all = count_generations(store_, id);
  EXPECT_EQ(all.stored, 12) << "three arms, four prompts";
  EXPECT_EQ(all.failed, 1);
  EXPECT_EQ(all.planted, 1);
  const auto by_arm = count_by_arm(store_, id);
  ASSERT_EQ(by_arm.size(), 3u);
  EXPECT_EQ(by_arm.begin()->second.failed, 0);
  EXPECT_EQ(by_arm.rbegin()->second.stored, 4);
  EXPECT_EQ(by_arm.rbegin()->second.failed, 1);
  EXPECT_EQ(planned_generations(store_, id), 12);
  EXPECT_EQ(planned_generations(store_, 99), 0);
  store_.execute(R"(UPDATE run SET suite_json = '{"repeats": 2, "samples": 5}')");
  EXPECT_EQ(planned_generations(store_, id), 120);
  EXPECT_EQ(count_of_key(store_, run.key), 12);
  EXPECT_EQ(count_of_key(store_, "other"), 0);
  EXPECT_EQ(generation_ids(store_, id).first, integer(store_, "SELECT min(id) FROM generation"));
  EXPECT_EQ(generation_ids(store_, id).last, integer(store_, "SELECT max(id) FROM generation"));
  EXPECT_EQ(generation_ids(store_, 99).first, 0);
  EXPECT_THAT(tasks(store_, id), ElementsAre("gsm8k"));
  const auto listed = list_runs(store_);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].counts.stored, 12);
  EXPECT_EQ(listed[0].fault, "slow:5%");
  EXPECT_EQ(listed[0].baselines, "");
}

TEST_F(Queries, Baselines) {
  const int64_t a = store_.add_run(run_record("ka", "x")),
                b = store_.add_run(run_record("kb", "y"));
  store_.save_baseline("v2", b, "second");
  store_.save_baseline("main", a, "");
  store_.save_baseline("also", a, "");
  const auto all = baselines(store_);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "also");
  EXPECT_EQ(all[2].name, "v2");
  EXPECT_EQ(all[2].note, "second");
  EXPECT_EQ(all[2].run.id, b);
  EXPECT_EQ(all[2].run.label, "y");
  EXPECT_EQ(baseline_run(store_, "main"), a);
  EXPECT_FALSE(baseline_run(store_, "other").has_value());
  EXPECT_THAT(base::split(list_runs(store_)[0].baselines, ','),
              UnorderedElementsAre("also", "main"));
}

TEST_F(Queries, OneGenerationWhole) {
  const int64_t id = tests::fill(store_, usual());
  const int64_t of_pld = integer(store_,
                                 "SELECT min(g.id) FROM generation g JOIN arm a ON a.id = "
                                 "g.arm_id WHERE a.method = 'pld'");
  const auto g = find_generation(store_, of_pld);
  ASSERT_TRUE(g.has_value());
  EXPECT_EQ(g->run_id, id);
  EXPECT_EQ(g->arm_label, "pld:k=4");
  EXPECT_EQ(g->task, "gsm8k");
  EXPECT_EQ(g->status, "ok");
  ASSERT_EQ(g->turns.size(), 1u);
  EXPECT_EQ(
      static_cast<int64_t>(g->turns[0].tokens.size()),
      integer(store_, fmt::format("SELECT n_tokens FROM turn WHERE generation_id = {}", of_pld)));
  int64_t emitted = 0;
  for (const StepRecord& step : g->turns[0].steps) emitted += step.emitted;
  EXPECT_EQ(emitted + 1, static_cast<int64_t>(g->turns[0].tokens.size()));
  EXPECT_FALSE(find_generation(store_, 9999).has_value());
  const auto others = counterparts(store_, *g);
  ASSERT_EQ(others.size(), 3u);
  EXPECT_TRUE(others[0].reference);
  EXPECT_EQ(others[2].id, of_pld);
  EXPECT_FALSE(others[2].reference);
  EXPECT_THAT(turn_texts(store_, of_pld), ElementsAre(g->turns[0].text));
}

TEST_F(Queries, AnswersToJudge) {
  tests::SyntheticRun run = usual();
  run.repeats = 2;
  run.change = [](GenerationRecord& g, const tests::SyntheticArm& arm, int prompt, int, int) {
    g.texts = {fmt::format("{} {}", arm.label, prompt)};
    if (arm.role == "baseline" && prompt == 0) g.status = "failed: x";
    if (arm.method == "pld" && prompt == 1) g.fault = "slow:5%";
  };
  const int64_t id = tests::fill(store_, run);
  const auto all = answers(store_, id);
  EXPECT_EQ(all.size(), 10u) << "of two repeats the first, none that failed, none with a fault";
  EXPECT_EQ(all[0].role, "aa") << "of the first prompt, whose baseline answer failed";
  const auto pairs = answers_beside_baseline(store_, id);
  EXPECT_EQ(pairs.size(), 7u);
  for (const AnswerPairRow& pair : pairs) {
    const std::string number = pair.text.substr(pair.text.rfind(' '));
    EXPECT_EQ(pair.baseline_text.has_value(), number != " 0");
    EXPECT_EQ(pair.baseline_text.value_or("ar" + number), "ar" + number);
  }
  const int64_t prompt = integer(store_, "SELECT min(id) FROM prompt");
  const EvaluatorName evaluator = {"twice", "1", "fast"};
  const auto open = unscored_answers(store_, id, prompt, evaluator);
  ASSERT_EQ(open.size(), 2u);
  for (const UnscoredAnswer& answer : open) {
    const auto whole = find_generation(store_, answer.generation_id);
    EXPECT_EQ(answer.arm_id, whole->arm_id);
    ASSERT_EQ(answer.tokens.size(), 1u);
    EXPECT_EQ(answer.tokens[0], whole->turns[0].tokens);
    EXPECT_EQ(answer.texts[0], whole->turns[0].text);
  }
  store_.put_score(open[0].generation_id, {.evaluator = "twice",
                                           .version = "1",
                                           .value = 1,
                                           .extracted = "",
                                           .detail = "",
                                           .facts = R"({"options": "fast"})"});
  EXPECT_EQ(unscored_answers(store_, id, prompt, evaluator).size(), 1u);
  EXPECT_EQ(unscored_answers(store_, id, prompt, {"twice", "1", "slow"}).size(), 2u)
      << "judged with other options";
}

TEST_F(Queries, TheFileIsSound) {
  tests::SyntheticRun run = usual();
  run.change = [](GenerationRecord& g, const tests::SyntheticArm& arm, int prompt, int, int) {
    if (arm.method == "pld" && prompt == 2) g.turns[0].steps[0].accepted += 1;
  };
  tests::fill(store_, run);
  EXPECT_EQ(check_file(store_), "ok");
  const auto problems = accounting_problems(store_);
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(find_generation(store_, problems[0].generation_id)->arm_label, "pld:k=4");
}

}  // namespace
}  // namespace evalrun::results
