// Plans of batches: arms, sessions, refusals, times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/base/error.h"
#include "engine/cache_memory.h"
#include "methods/decode_batch.h"
#include "runners/plan/batch_memory.h"
#include "runners/plan/estimate.h"
#include "runners/plan/planted_faults.h"
#include "tests/methods/support/adapters.h"
#include "tests/runners/small_plans.h"

namespace evalrun::runners {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BatchPlan, EveryMethodIsMeasuredAtEveryBatch) {
  const RunPlan plan = make_plan(in_batches(request_for(two_prompts()), {2, 1}));
  std::vector<std::string> arms;
  for (const PlannedArm& arm : plan.arms)
    arms.push_back(fmt::format("{} | {} {}", arm.record.label, arm.record.role, arm.record.batch));
  EXPECT_THAT(arms,
              ElementsAre("ar | baseline 1", "ar (A/A) | aa 1", "ar, batch 2 | baseline 2",
                          "ar, batch 2 (A/A) | aa 2", "pld | method 1", "pld, batch 2 | method 2"));
  std::set<std::string> keys;
  for (const PlannedArm& arm : plan.arms) {
    keys.insert(arm.record.key);
    EXPECT_EQ(arm.record.settings.contains("batch_mode"), arm.record.batch == 2);
  }
  EXPECT_EQ(keys.size(), 6u);
  EXPECT_EQ(plan.arms[5].record.settings.at("batch_mode"), "static");
  EXPECT_EQ(plan.waves, (std::vector<std::vector<int>>{{0, 1}}));
  ASSERT_EQ(plan.schedule.size(), 12u);
  for (const Visit& v : plan.schedule) EXPECT_EQ(v.block, 0);
  // What is measured at batch 1 alone keeps its key: its figures are those of a run without
  // batches.
  const RunPlan alone = make_plan(request_for(two_prompts()));
  EXPECT_EQ(alone.arms[2].record.key, plan.arms[4].record.key);
  EXPECT_NE(alone.run.key, plan.run.key);
  EXPECT_EQ(alone.waves.size(), 2u);
}

TEST(BatchPlan, ContinuousBatchesAreArmsOfTheirOwn) {
  const PlanRequest request = request_for(two_prompts());
  const RunPlan plan = make_plan(in_batches(request, {2}, methods::BatchMode::kContinuous));
  std::vector<std::string> labels;
  for (const PlannedArm& arm : plan.arms) labels.push_back(arm.record.label);
  EXPECT_THAT(labels, ElementsAre("ar, batch 2 continuous", "ar, batch 2 continuous (A/A)",
                                  "pld, batch 2 continuous"));
  EXPECT_EQ(plan.arms[0].record.role, "baseline");
  EXPECT_EQ(plan.arms[2].record.settings.at("batch_mode"), "continuous");
  const RunPlan fixed = make_plan(in_batches(request, {2}));
  EXPECT_NE(fixed.arms[2].record.key, plan.arms[2].record.key);
}

TEST(BatchPlan, ABatchHasASequenceAndAMethodForEachSlot) {
  PlanRequest request = request_for(two_prompts());
  request.suite.methods = {"sps:draft=layers:1"};
  request.suite.aa = false;
  const PlanRequest batches = in_batches(request, {1, 2});
  const RunPlan plan = make_plan(batches);
  ASSERT_EQ(plan.arms.size(), 4u);
  EXPECT_EQ(planned_session(batches, plan).n_sequences, 2);
  EXPECT_EQ(methods::make_slots(plan.arms[3].build(), 2).size(), 2u);
  const PlanRequest alone = in_batches(request, {1});
  EXPECT_EQ(planned_session(alone, make_plan(alone)).n_sequences, 1);
}

// A draft model of one layer is the tiny model.
TEST(BatchPlan, ArmsSayWhatTheyKeep) {
  PlanRequest request = request_for(two_prompts());
  request.suite.methods = {"ar", "sps:draft=layers:1", "pld"};
  request.suite.aa = false;
  const PlanRequest batches = in_batches(request, {1, 2});
  const RunPlan plan = make_plan(batches);
  ASSERT_EQ(plan.arms.size(), 6u);
  engine::SessionOptions session =
      engine::resolve_options(planned_session(batches, plan), request.target->format());
  const double two = engine::session_bytes_for(*request.target, session);
  session.n_sequences = 1;
  const double one = engine::session_bytes_for(*request.target, session);
  EXPECT_THAT(plan.arms[1].kept.bytes, ElementsAre(0, 0)) << "plain decoding keeps nothing";
  EXPECT_TRUE(plan.arms[1].kept.complete);
  EXPECT_THAT(plan.arms[2].kept.bytes, ElementsAre(one));
  EXPECT_THAT(plan.arms[3].kept.bytes, ElementsAre(one, two));
  EXPECT_TRUE(plan.arms[3].kept.complete);
  EXPECT_TRUE(plan.arms[5].kept.complete);
  EXPECT_THAT(plan.arms[5].kept.bytes, ElementsAre(0, 0));
  EXPECT_EQ(plan.arms[5].kept.grown, 2 * 48.0 * plan.capacity)
      << "tables of the first places of one to three tokens, at least a quarter full";
  EXPECT_EQ(plan.arms[4].kept.grown, 48.0 * plan.capacity);
  EXPECT_EQ(plan.arms[3].kept.grown, 0) << "a draft model's cache is there from the beginning";
  // The target's session, and one of each size for sps.
  const double all = two + one + two;
  EXPECT_NO_THROW(check_batch_memory(plan, planned_session(batches, plan), all));
  try {
    check_batch_memory(plan, planned_session(batches, plan), all - 1);
    FAIL() << "no error";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("batch 2 needs"), HasSubstr("batch 1 fits"),
                                HasSubstr("'sps:draft=layers:1, batch 2' asks for most"),
                                HasSubstr("not counted is what grows with texts: at most "),
                                HasSubstr("of 'pld, batch 2'")));
  }
}

TEST(BatchPlan, TheSessionOfACopyCounts) {
  PlanRequest request = request_for(two_prompts());
  request.suite.methods = {"ar", "sps:draft=self", "sps:draft=self,draft_kv=int8"};
  request.suite.aa = false;
  const PlanRequest batches = in_batches(request, {2});
  const RunPlan plan = make_plan(batches);
  ASSERT_EQ(plan.arms.size(), 3u);
  engine::SessionOptions session =
      engine::resolve_options(planned_session(batches, plan), request.target->format());
  const engine::Model& copy = *request.target->copies().at(engine::WeightFormat::kQ4);
  const double two = engine::session_bytes_for(copy, session);
  session.kv_dtype = "int8";
  const double narrow_two = engine::session_bytes_for(copy, session);
  EXPECT_TRUE(plan.arms[1].kept.complete);
  EXPECT_EQ(plan.arms[1].kept.bytes.at(1), two);
  EXPECT_EQ(plan.arms[2].kept.bytes.at(1), narrow_two);
  EXPECT_LT(narrow_two, two);
  EXPECT_EQ(plan.arms[1].kept.weights, static_cast<double>(copy.weight_bytes()));
}

TEST(BatchPlan, ATunedTargetHasPlainDecodingOfEveryBatch) {
  const auto target = tests::tiny_model(256);
  const std::string path = folder().file("tuned_batches.safetensors");
  tests::random_adapter("space_tuned", *target, 7).write(path);
  PlanRequest request = request_for(two_prompts());
  request.target = target;
  request.suite.methods = {"ar"};
  request.suite.optional_methods = {"space:k=2,adapter=" + path, "space:k=64,adapter=" + path};
  request.suite.aa = false;
  const RunPlan plan = make_plan(in_batches(request, {1, 2}));
  std::vector<std::string> arms;
  for (const PlannedArm& arm : plan.arms)
    arms.push_back(fmt::format("{} {}", arm.record.method, arm.record.batch));
  EXPECT_THAT(arms, ElementsAre("ar 1", "ar 2", "ar_tuned 1", "space 1", "ar_tuned 2", "space 2"));
  EXPECT_THAT(plan.arms.back().record.label,
              HasSubstr("adapter=tuned_batches.safetensors,k=2, batch 2"));
  EXPECT_EQ(plan.left_out.size(), 1u) << "once, not for every batch";
}

TEST(BatchPlan, FaultsArePlantedInTheSmallestBatch) {
  PlanRequest request = in_batches(request_for(two_prompts()), {2});
  request.faults = planted_faults(request.suite, "all-slow:5%");
  const RunPlan plan = make_plan(request);
  for (const PlannedArm& arm : plan.arms) EXPECT_EQ(arm.fault, "slow:5%") << arm.record.label;
  request = in_batches(request_for(two_prompts()), {1, 2});
  request.faults = planted_faults(request.suite, "miscount");
  const RunPlan other = make_plan(request);
  for (const PlannedArm& arm : other.arms)
    EXPECT_EQ(arm.fault, arm.record.label == "pld" ? "miscount" : "") << arm.record.label;
}

TEST(BatchPlan, ADataSetMustFillABatch) {
  try {
    make_plan(in_batches(request_for(two_prompts()), {1, 4}));
    FAIL() << "no error";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("has 2 prompts"), HasSubstr("a batch of 4"),
                                HasSubstr("--batch 2"), HasSubstr("--limit 4")));
  }
}

// T(2)/T(1) is 4/3, a half of which is each prompt's; 11 rows of two sequences are T(22)/T(2)
// = 8.25 steps of plain decoding of two.
TEST(BatchPlan, StepsOfABatchAreSharedOut) {
  RunPlan plan = make_plan(in_batches(request_for(two_prompts()), {1, 2}));
  const Calibration calibration = {.prefill_s_per_token = 0.5, .step_s = 10.0};
  const double prefill = (29 + 22) * 0.5, plain = 24 * 10.0;
  EXPECT_NEAR(estimate_seconds(plan, calibration), 6 * prefill + (3 + 3 / 2.0) * plain, 1e-9)
      << "what rows cost is not known: nothing";
  plan.row_cost->table = steep_rows();
  EXPECT_NEAR(estimate_seconds(plan, calibration), 6 * prefill + (3 + 3 * 2 / 3.0) * plain, 1e-9);
  const std::vector<StepPrice> prices = step_prices(plan);
  ASSERT_EQ(prices.size(), 6u);
  EXPECT_DOUBLE_EQ(prices[2].plain_steps, 1);
  EXPECT_DOUBLE_EQ(prices[4].plain_steps, 5.5);
  EXPECT_EQ(prices[5].rows, 11);
  EXPECT_NEAR(prices[5].plain_steps, 8.25, 1e-9);
  EXPECT_NEAR(estimate_seconds(plan, calibration, prices),
              6 * prefill + (1 + 1 + 5.5 + (1 + 1 + 8.25) * 2 / 3) * plain, 1e-9);
}

// Reading two caches: T(1) of them is 16 where two rows of one take 40/3, and the 11 rows of pld
// take three of these.
TEST(BatchPlan, WhatABatchsOwnTableSaysGoesFirst) {
  RunPlan plan = make_plan(in_batches(request_for(two_prompts()), {1, 2}));
  plan.row_cost->table = steep_rows();
  engine::RowCostTable& two = plan.row_cost->batches[2];
  two.sequences = 2, two.context = 256;
  two.rows = {{1, 16, 16, 16, {}}, {11, 48, 48, 48, {}}};
  const std::vector<StepPrice> prices = step_prices(plan);
  ASSERT_EQ(prices.size(), 6u);
  EXPECT_DOUBLE_EQ(prices[4].plain_steps, 5.5) << "of batch 1 as before";
  EXPECT_DOUBLE_EQ(prices[5].plain_steps, 3);
  const Calibration calibration = {.prefill_s_per_token = 0, .step_s = 10.0};
  EXPECT_NEAR(estimate_seconds(plan, calibration, prices),
              24 * 10.0 * (1 + 1 + 5.5 + (1 + 1 + 3) * 1.6 / 2), 1e-9);
}

// A tree that follows what rows cost: all of it where they are free, which they are of one
// sequence.
TEST(BatchPlan, MethodsGoByTheTableOfTheirBatch) {
  const auto target = tests::tiny_model(256);
  const std::string path = folder().file("tree_of_batches.safetensors");
  tests::AdapterFile file = tests::random_adapter("bita", *target, 3);
  file.metadata["tree"] =
      R"({"paths": ["0", "00", "1", "2", "01"], "gain": [0.5, 0.2, 0.1, 0.05, 0.04]})";
  file.write(path);
  PlanRequest request = request_for(two_prompts());
  request.target = target;
  request.suite.methods = {"ar", "bita:adapter=" + path};
  request.suite.aa = false;
  const RunPlan plan = make_plan(in_batches(request, {1, 2}));
  ASSERT_EQ(plan.arms.size(), 4u);
  const auto rows = [&](size_t arm) { return plan.arms[arm].build()->largest_step().rows; };
  plan.row_cost->table.rows = {{1, 10, 10, 10, {}}, {64, 10, 10, 10, {}}};
  const int all = rows(2);
  EXPECT_EQ(rows(3), all) << "of two sequences nothing else is known";
  plan.row_cost->batches[2] = steep_rows();
  plan.row_cost->batches[2].sequences = 2;
  EXPECT_LT(rows(3), all);
  EXPECT_EQ(rows(2), all);
}

// Three prompts in batches of two are four.
TEST(BatchPlan, FillersTakeTime) {
  const std::string task =
      write_prompts("three.jsonl", {R"({"id": "a", "turns": ["just one question"]})",
                                    R"({"id": "b", "turns": ["just one answer__"]})",
                                    R"({"id": "c", "turns": ["just a question__"]})"});
  PlanRequest request = request_for(task);
  request.suite.methods = {"ar"};
  request.suite.aa = false;
  const RunPlan plan = make_plan(in_batches(request, {2}));
  EXPECT_NEAR(estimate_seconds(plan, {.prefill_s_per_token = 0.5, .step_s = 10.0}),
              4 * (22 * 0.5 + 8 * 10.0 / 2), 1e-9);
}

}  // namespace
}  // namespace evalrun::runners
