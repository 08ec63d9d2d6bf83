// Which prompts are decoded together, and which fillers beside them.
#include "runners/plan/waves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <set>

#include "engine/base/error.h"
#include "runners/plan/batch_memory.h"
#include "tests/runners/fakes.h"

namespace evalrun::runners {
namespace {

using methods::BatchMode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Prompts of data sets, in their order: {{"a", 3}, {"b", 2}} is a a a b b.
std::vector<PlannedPrompt> prompts_of(const std::vector<std::pair<std::string, int>>& tasks) {
  std::vector<PlannedPrompt> prompts;
  for (const auto& [task, n] : tasks)
    for (int i = 0; i < n; ++i) {
      prompts.emplace_back();
      prompts.back().record.task = task;
    }
  return prompts;
}

// An arm per size.
RunPlan plan_of(const std::vector<std::pair<std::string, int>>& tasks, Batches batches) {
  RunPlan plan;
  plan.suite.batches = std::move(batches);
  plan.prompts = prompts_of(tasks);
  plan.waves = make_waves(plan.prompts, plan.suite.batches.wave_size());
  for (const int size : plan.suite.batches.sizes) {
    plan.arms.emplace_back();
    plan.arms.back().record.batch = size;
  }
  plan.schedule =
      make_schedule({plan.waves, static_cast<int>(plan.arms.size()), 2, 1}, Order::kInterleaved, 1);
  return plan;
}

TEST(Waves, AreSuccessivePromptsOfOneDataSet) {
  EXPECT_THAT(make_waves(prompts_of({{"a", 5}, {"b", 4}, {"c", 1}}), 4),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4), ElementsAre(5, 6, 7, 8),
                          ElementsAre(9)));
  EXPECT_EQ(make_waves(prompts_of({{"a", 3}, {"b", 2}}), 1), waves_of_one(5));
  EXPECT_TRUE(make_waves({}, 4).empty());
  EXPECT_THROW(make_waves(prompts_of({{"a", 3}}), 0), base::InternalError);
}

TEST(Waves, AVisitKnowsItsWave) {
  const RunPlan plan = plan_of({{"a", 6}, {"b", 5}}, {.sizes = {1, 4}});
  ASSERT_EQ(plan.waves.size(), 4u);
  for (const Visit& v : plan.schedule)
    EXPECT_THAT(plan.waves[static_cast<size_t>(wave_of(plan, v))], ::testing::Contains(v.prompt));
}

TEST(Waves, StaticGroupsAreSuccessiveAndFull) {
  const RunPlan plan = plan_of({{"a", 3}, {"b", 10}}, {.sizes = {1, 2, 4}, .wave = 8});
  ASSERT_THAT(plan.waves[1], ElementsAre(3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(batch_groups(plan, 0, 2), ElementsAre(BatchGroup{{11}, 1}, BatchGroup{{12}, 1}));
  EXPECT_THAT(batch_groups(plan, 1, 1), ElementsAre(BatchGroup{{3, 4}, 2}, BatchGroup{{5, 6}, 2},
                                                    BatchGroup{{7, 8}, 2}, BatchGroup{{9, 10}, 2}));
  EXPECT_THAT(batch_groups(plan, 2, 1),
              ElementsAre(BatchGroup{{3, 4, 5, 6}, 4}, BatchGroup{{7, 8, 9, 10}, 4}));
  // Filled up from the beginning of the data set, not of the run.
  EXPECT_THAT(batch_groups(plan, 2, 2), ElementsAre(BatchGroup{{11, 12, 3, 4}, 2}));
  EXPECT_THAT(batch_groups(plan, 1, 0), ElementsAre(BatchGroup{{0, 1}, 2}, BatchGroup{{2, 0}, 1}));
}

TEST(Waves, AContinuousBatchHasTheWholeWave) {
  const RunPlan plan =
      plan_of({{"a", 4}, {"b", 9}}, {.sizes = {1, 4}, .mode = BatchMode::kContinuous, .wave = 8});
  EXPECT_THAT(batch_groups(plan, 0, 0), ElementsAre(BatchGroup{{0}, 1}, BatchGroup{{1}, 1},
                                                    BatchGroup{{2}, 1}, BatchGroup{{3}, 1}));
  EXPECT_THAT(batch_groups(plan, 1, 1), ElementsAre(BatchGroup{{4, 5, 6, 7, 8, 9, 10, 11}, 8}));
  EXPECT_THAT(batch_groups(plan, 1, 2), ElementsAre(BatchGroup{{12, 4, 5, 6}, 1}));
}

TEST(Waves, FillersGoRoundTheirDataSet) {
  const RunPlan plan = plan_of({{"a", 2}, {"b", 3}}, {.sizes = {2}});
  std::vector<int> of_first, of_last;
  for (int k = 0; k < 7; ++k) {
    of_first.push_back(filler_prompt(plan, 0, k));
    of_last.push_back(filler_prompt(plan, 2, k));
  }
  EXPECT_THAT(of_first, ElementsAre(0, 1, 0, 1, 0, 1, 0));
  EXPECT_THAT(of_last, ElementsAre(2, 3, 4, 2, 3, 4, 2));
  EXPECT_THROW((void)filler_prompt(plan, 0, -1), base::InternalError);
}

// Every prompt is stored once by every arm, and every batch is full and holds nothing twice.
TEST(Waves, GroupsHoldEveryPromptOnce) {
  for (const BatchMode mode : {BatchMode::kStatic, BatchMode::kContinuous})
    for (const int n : {16, 17, 23, 31, 32, 33, 64, 65, 80}) {
      const RunPlan plan = plan_of({{"a", n}, {"b", 16}}, {.sizes = {1, 2, 8, 16}, .mode = mode});
      for (int arm = 0; arm < 4; ++arm) {
        const auto batch = static_cast<size_t>(plan.arms[static_cast<size_t>(arm)].record.batch);
        std::vector<int> stored;
        for (int wave = 0; wave < static_cast<int>(plan.waves.size()); ++wave)
          for (const BatchGroup& group : batch_groups(plan, arm, wave)) {
            EXPECT_GE(group.prompts.size(), batch);
            if (mode == BatchMode::kStatic) {
              EXPECT_EQ(group.prompts.size(), batch);
            }
            EXPECT_EQ(std::set<int>(group.prompts.begin(), group.prompts.end()).size(),
                      group.prompts.size());
            for (const int prompt : group.prompts)
              EXPECT_EQ(plan.prompts[static_cast<size_t>(prompt)].record.task,
                        plan.prompts[static_cast<size_t>(group.prompts[0])].record.task);
            stored.insert(stored.end(), group.prompts.begin(),
                          group.prompts.begin() + group.n_stored);
          }
        std::vector<int> all(static_cast<size_t>(n + 16));
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(stored, all) << n << " prompts, batch " << batch;
      }
    }
}

std::string why_refused(const std::function<void()>& check) {
  try {
    check();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    return e.what();
  }
  return "no error";
}

TEST(Waves, ADataSetMustFillABatch) {
  const auto of = [](int n, std::vector<int> sizes) {
    return why_refused([&] {
      check_batch_prompts(prompts_of({{"gsm8k", 16}, {"xsum", n}}), {.sizes = std::move(sizes)});
    });
  };
  EXPECT_THAT(of(15, {1, 16}),
              AllOf(HasSubstr("data set xsum has 15 prompts"), HasSubstr("a batch of 16"),
                    HasSubstr("--limit 16"), HasSubstr("--batch 15")));
  EXPECT_THAT(of(1, {2}), HasSubstr("xsum has 1 prompt in this run"));
  EXPECT_EQ(of(16, {1, 16}), "no error");
  EXPECT_EQ(of(1, {1}), "no error");
}

// ---- Memory -------------------------------------------------------------------------------------

// A plan of `largest` and 1 with a budget, of sequences of 256 tokens. The tiny model: one layer of
// 16 values in float32 a position, for keys and for values; 128 positions are a block; rotary
// tables of 16 values a position, once. A row of a joint prefill has 288 values as float32 and 32
// rounded ones of 4.5 bytes, beside its own keys and values; 1024 rows at most.
class BatchMemory : public ::testing::Test {
 protected:
  static constexpr double kSequence = 256 * 2 * 16 * 4, kTables = 256 * 16 * 4;
  static constexpr double kRow = 288 * 4 + 32 * 4.5 + 2 * 16 * 4, kPrefill = 1024 * kRow;
  static constexpr double kAll = 32 * kSequence + kTables + kPrefill;

  BatchMemory() : plan_(plan_of({{"a", 32}}, {.sizes = {1, 32}})) {
    const auto model = tests::tiny_model(256);
    for (PlannedArm& arm : plan_.arms) arm.model = model;
    plan_.arms[0].record.label = "x";
    plan_.arms[1].record.label = "x, batch 32";
    plan_.capacity = 256;
    session_.max_tokens = 256;
    session_.n_threads = 1;
    session_.n_sequences = 32;
  }
  std::string of(double bytes) const {
    return why_refused([&] { check_batch_memory(plan_, session_, bytes); });
  }

  RunPlan plan_;
  engine::SessionOptions session_;
};

TEST_F(BatchMemory, SaysWhichBatchFits) {
  EXPECT_EQ(of(kAll), "no error");
  EXPECT_THAT(of(kAll - 1),
              AllOf(HasSubstr("batch 32 needs 2.52 MB for sequences of 256 tokens"),
                    HasSubstr("2.52 MB of keys and values and to compute in"),
                    HasSubstr("batch 31 fits"), HasSubstr("--batch"), HasSubstr("--kv-dtype int8"),
                    Not(HasSubstr("drafters")), Not(HasSubstr("not counted"))));
  EXPECT_THAT(of(7.5 * kSequence + kTables + kPrefill), HasSubstr("batch 7 fits"));
  EXPECT_THAT(of(kSequence + kTables + 256 * kRow), HasSubstr("batch 1 fits"));
  EXPECT_THAT(of(kSequence + kTables), HasSubstr("not even one sequence fits"));
  // A second model has a session of its own.
  plan_.arms[1].model = tests::tiny_model(256, "tuned");
  EXPECT_THAT(of(32 * kSequence + 2 * (kTables + kPrefill)), HasSubstr("batch 16 fits"));
  // One sequence is what the session itself refuses.
  plan_.suite.batches = {};
  EXPECT_EQ(of(1), "no error");
}

// Both arms keep theirs while the run lasts.
TEST_F(BatchMemory, CountsWhatDraftersKeep) {
  plan_.arms[0].kept.bytes = {5e6};
  for (int n = 1; n <= 32; ++n) plan_.arms[1].kept.bytes.push_back(1e6 * n);
  EXPECT_EQ(of(kAll + 5e6 + 32e6), "no error");
  EXPECT_THAT(of(kAll + 5e6 + 32e6 - 1),
              AllOf(HasSubstr("batch 32 needs 39.5 MB"), HasSubstr("37 MB of drafters"),
                    HasSubstr("'x, batch 32' asks for most, 32 MB"), HasSubstr("batch 31 fits")));
  EXPECT_THAT(of(kAll + 5e6 + 3e6), HasSubstr("batch 3 fits"));
  // Where the largest size is 1 the arm of batch 1 stands for it: one of the two.
  EXPECT_THAT(of(5e6 - 1), HasSubstr("batch 1 fits"));
  plan_.arms[0].kept.complete = false;
  EXPECT_THAT(of(1), HasSubstr("grows with texts: 'x' cannot say beforehand how much"));
}

// Of one arm after the other, in the same memory: 32 values of float32 a token.
TEST_F(BatchMemory, CountsFeaturesOfTheArmThatReadsMost) {
  plan_.arms[0].kept.features = {.hidden = true, .residual_layers = {}};
  plan_.arms[1].kept.features = {.hidden = true, .residual_layers = {0, 1}};
  constexpr double kFeatures = 32.0 * 3 * 256 * 32 * 4;
  EXPECT_EQ(of(kAll + kFeatures), "no error");
  EXPECT_THAT(of(kAll + kFeatures - 1),
              AllOf(HasSubstr("of features that drafters read"), HasSubstr("batch 31 fits")));
}

}  // namespace
}  // namespace evalrun::runners
