// Best draft lengths, steps that drafted nothing, and plain decoding beside its table, worked out
// by hand.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "reports/figures/batches.h"
#include "reports/figures/draft_lengths.h"
#include "reports/figures/undrafted_steps.h"
#include "reports/html/html_data.h"
#include "results/batch_queries.h"
#include "tests/reports/batch_run.h"
#include "tests/reports/rendered.h"

namespace evalrun::reports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

class BatchCosts : public BatchRun {
 protected:
  Report report_with(int64_t run) {
    return build_report(store_, run, {.row_times = [this](const RunInfo&) { return times_; }});
  }
  // Every first step of the method at batch 2 has a row for each member.
  void draft_nothing_at_first() {
    store_.execute(
        "UPDATE batch_step SET rows = members WHERE idx = 0 AND turn_id IN (SELECT t.id FROM turn "
        "t JOIN generation g ON g.id = t.generation_id WHERE g.arm_id = ?)",
        {arms_.at({true, 2})});
  }

  // T(n) of one sequence is what the steps took. At batch 2 their means are 92/14 ms for one row
  // and 101/7 ms for three, as shares.
  RowTimes times_{
      .one = [](int n) { return 9.5 + 0.5 * n; },
      .batches = {{2, [](int n) { return n == 1   ? 92.0 / 14
                                         : n == 2 ? 10.0
                                                  : 101.0 / 7; }}},
      .context = 256};
};

TEST_F(BatchCosts, ContextsGrowByWhatAStepEmits) {
  const int64_t run = fill();
  std::vector<std::pair<int64_t, int64_t>> plain, pld;  // context, drafted
  results::for_batch_members(store_, run, [&](const results::BatchMemberRow& step) {
    if (step.arm_id == arms_.at({false, 1})) plain.emplace_back(step.context, step.own_drafted);
    if (step.arm_id == arms_.at({true, 2})) pld.emplace_back(step.context, step.own_drafted);
  });
  ASSERT_EQ(plain.size(), 14u);
  ASSERT_EQ(pld.size(), 7u);
  plain.resize(5), pld.resize(3);
  EXPECT_THAT(plain, ElementsAre(Pair(10, 0), Pair(11, 0), Pair(12, 0), Pair(13, 0), Pair(10, 0)));
  EXPECT_THAT(pld, ElementsAre(Pair(10, 2), Pair(12, 2), Pair(10, 2)));
}

TEST(UndraftedSteps, StandBesidePlainOnesOfNeighbouringContexts) {
  RunData data;
  ArmInfo plain, method;
  plain.id = 1, plain.label = plain.method = "ar", plain.role = "baseline", plain.batch = 2;
  method.id = 2, method.label = method.method = "pld", method.role = "method", method.batch = 2;
  data.arms = {plain, method};
  UndraftedSteps steps(data);
  const auto add = [&](int64_t arm, int64_t prompt, int64_t context, int64_t ms, int64_t rows,
                       bool is_new) {
    steps.add({.arm_id = arm,
               .prompt_id = prompt,
               .call = 1,
               .members = 2,
               .rows = rows,
               .ns = ms * kMs,
               .context = context},
              is_new);
  };
  add(2, 7, 104, 13, 2, true);   // beside the first two: 11 ms
  add(2, 7, 116, 14, 2, true);   // beside the second: 12 ms
  add(2, 7, 119, 99, 2, true);   // 11 and 11 tokens away from its neighbours
  add(2, 7, 104, 99, 5, true);   // drafted
  add(2, 7, 104, 99, 2, false);  // counted at another member
  add(2, 8, 104, 99, 2, true);   // plain decoding lacks the prompt
  add(1, 7, 130, 50, 2, true);
  add(1, 7, 108, 12, 2, false);
  add(1, 7, 100, 10, 2, true);
  const auto found = steps.beside_plain();
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found.at(2).size(), 1u);
  const UndraftedTimes& times = found.at(2).at(7);
  EXPECT_EQ(times.steps, 2);
  EXPECT_DOUBLE_EQ(times.ms, 27);
  EXPECT_DOUBLE_EQ(times.plain_ms, 23);
}

// Two steps of 30 ms, one of each call, where plain decoding takes 12.
TEST_F(BatchCosts, SpeculationThatNeverDrafts) {
  const int64_t run = fill();
  EXPECT_THAT(to_text(build_report(store_, run)), Not(HasSubstr("nothing drafted")));
  draft_nothing_at_first();
  const Report r = build_report(store_, run);
  const BatchFigures& pld = *row(r, "pld:k=4, batch 2", "gsm8k").batch;
  EXPECT_EQ(pld.undrafted_steps, 2);
  ASSERT_TRUE(pld.undrafted_ratio);
  EXPECT_DOUBLE_EQ(pld.undrafted_ratio->value, 2.5);
  EXPECT_TRUE(pld.undrafted_ratio->interval) << "two batches, two units";
  for (const char* arm : {"ar", "ar, batch 2", "pld:k=4"}) {
    EXPECT_FALSE(row(r, arm, "gsm8k").batch->undrafted_ratio) << arm;
    EXPECT_EQ(row(r, arm, "gsm8k").batch->undrafted_steps, 0) << arm;
  }
  EXPECT_THAT(to_text(r), HasSubstr("speculation on, nothing drafted"));
  EXPECT_THAT(to_markdown(r), HasSubstr("+150.0 %"));
  const auto rows = nlohmann::json::parse(to_json(r));
  EXPECT_NEAR(rows[3]["undrafted_ratio"].get<double>(), 2.5, 1e-12);
  EXPECT_EQ(rows[3]["undrafted_steps"], 2);
  EXPECT_TRUE(rows[2]["undrafted_ratio"].is_null());
}

TEST_F(BatchCosts, PlainStepsBesideTheTable) {
  const int64_t run = fill();
  const Report r = report_with(run);
  const auto& alone = row(r, "ar", "gsm8k").batch->beside_cost;
  const auto& together = row(r, "ar, batch 2", "gsm8k").batch->beside_cost;
  ASSERT_TRUE(alone && together);
  EXPECT_DOUBLE_EQ(alone->ratio(), 1);
  EXPECT_DOUBLE_EQ(together->step_ms, 12);  // of the steps with both members
  EXPECT_DOUBLE_EQ(together->table_ms, 92.0 / 14);
  EXPECT_TRUE(together->own_table);
  EXPECT_FALSE(row(r, "pld:k=4", "gsm8k").batch->beside_cost);
  EXPECT_THAT(to_text(r), HasSubstr("A step of plain decoding beside evalrun cost"));
  EXPECT_NEAR(nlohmann::json::parse(to_json(r))[2]["step_over_row_cost"].get<double>(),
              12 * 14 / 92.0, 1e-12);
  // Without a table of two sequences: two rows of one.
  times_.batches.clear();
  const auto of_one = row(report_with(run), "ar, batch 2", "gsm8k").batch->beside_cost;
  ASSERT_TRUE(of_one);
  EXPECT_DOUBLE_EQ(of_one->table_ms, 10.5);
  EXPECT_FALSE(of_one->own_table);
  const std::string without = to_text(build_report(store_, run));
  EXPECT_THAT(without, Not(HasSubstr("beside evalrun cost")));
  EXPECT_THAT(without, Not(HasSubstr("Best draft length")));
}

// Of two drafted tokens the first is always right and the second never: a draft of one saves its
// row. Alone a step of two rows takes 10.5 ms, and at batch 2 70 ms in all.
TEST_F(BatchCosts, TheBestLengthIsPredictedAtEveryBatch) {
  const Report r = report_with(fill());
  const auto& alone = row(r, "pld:k=4", "gsm8k").batch->lengths;
  const auto& together = row(r, "pld:k=4, batch 2", "gsm8k").batch->lengths;
  ASSERT_TRUE(alone && together);
  EXPECT_FALSE(row(r, "ar, batch 2", "gsm8k").batch->lengths);
  EXPECT_EQ(together->drafter, "pld");
  EXPECT_EQ(together->from, "pld:k=4, batch 2");
  EXPECT_EQ(together->table_context, 256);
  ASSERT_EQ(alone->at.size(), 1u) << "all prompts have similar contexts";
  ASSERT_EQ(alone->at[0].predicted.size(), 2u);
  EXPECT_EQ(alone->at[0].prompts, 4);
  EXPECT_EQ(alone->at[0].predicted[0].k, 1);
  EXPECT_NEAR(alone->at[0].predicted[0].speedup.value, 140 / 73.5, 1e-9);
  EXPECT_NEAR(*alone->at[0].predicted[0].tau, 2, 1e-9);
  EXPECT_NEAR(alone->at[0].predicted[1].speedup.value, 140.0 / 77, 1e-9) << "as measured";
  ASSERT_EQ(together->at.size(), 1u);
  EXPECT_NEAR(together->at[0].predicted[0].speedup.value, 92.0 / 70, 1e-9);
  EXPECT_NEAR(together->at[0].predicted[1].speedup.value, 92.0 / 101, 1e-9) << "as measured";
  EXPECT_EQ(best_length(together->at[0].predicted)->k, 1);
  const std::string text = to_markdown(r);
  EXPECT_THAT(text, HasSubstr("1 (1.31)"));
  EXPECT_THAT(text, HasSubstr("The context is not resolved"));
  EXPECT_THAT(text, HasSubstr("measured at 256 tokens"));
  EXPECT_THAT(text, Not(HasSubstr("measured, of"))) << "one length is no choice";
  const auto json = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(json[3]["best_k_predicted"], 1);
  EXPECT_NEAR(json[3]["best_k_predicted_speedup"].get<double>(), 92.0 / 70, 1e-9);
  EXPECT_TRUE(json[3]["best_k_measured"].is_null()) << "the arm does not say its k";
  EXPECT_EQ(json[3]["draft_lengths"]["at"][0]["predicted"][1]["k"], 2);
  EXPECT_TRUE(json[2]["draft_lengths"].is_null());
  EXPECT_THAT(to_csv(r), HasSubstr("best_k_predicted"));
  EXPECT_THAT(to_csv(r), Not(HasSubstr("draft_lengths")));
  const auto page = nlohmann::json::parse(html_data(r, store_));
  EXPECT_EQ(page["rows"][3]["batch"]["lengths"]["drafter"], "pld");
}

TEST_F(BatchCosts, ContextsAreOfPrompts) {
  const int64_t run = fill();
  store_.execute(
      "UPDATE turn SET n_prompt_tokens = 200 WHERE generation_id IN (SELECT id FROM generation "
      "WHERE prompt_id IN (SELECT id FROM prompt ORDER BY id DESC LIMIT 2))");
  const Report r = report_with(run);
  const auto& lengths = row(r, "pld:k=4, batch 2", "gsm8k").batch->lengths;
  ASSERT_TRUE(lengths);
  ASSERT_EQ(lengths->at.size(), 3u);
  EXPECT_FALSE(lengths->at[0].context);
  EXPECT_EQ(lengths->at[1].context, (ContextRange{.above = 0, .up_to = 128}));
  EXPECT_EQ(lengths->at[2].context, (ContextRange{.above = 128, .up_to = 256}));
  EXPECT_EQ(lengths->at[1].prompts, 2);
  // Two answers of 30 ms for steps of 101/7, which take 10 ms of two rows; plain decoding took 48.
  EXPECT_NEAR(lengths->at[1].predicted[0].speedup.value, 48 / (600 / (101.0 / 7)), 1e-9);
  const std::string text = to_text(r);
  EXPECT_THAT(text, HasSubstr("129 to 256"));
  EXPECT_THAT(text, HasSubstr("how it changes with the context"));
}

// The same drafts by an arm that says it has one token of them, in half the time.
TEST_F(BatchCosts, ThePredictionStandsBesideWhatWasMeasured) {
  const int64_t run = fill();
  store_.execute("UPDATE arm SET params = 'k=4' WHERE method = 'pld'");
  tests::SyntheticArm shorter = tests::usual_arms()[2];
  shorter.label = "pld:k=1";
  results::ArmRecord record = tests::arm_record(run_, shorter);
  record.params = "k=1";
  const int64_t arm = store_.add_arm(run, record);
  std::vector<int64_t> prompts;
  store_.query("SELECT id FROM prompt ORDER BY id", {}, [&](const results::Row& r) {
    prompts.push_back(r.integer(0));
    return true;
  });
  for (int p = 0; p < 4; ++p) {
    results::GenerationRecord g = generation(true, 1, p);
    g.turns[0].decode_ns /= 2;
    for (results::StepRecord& s : g.turns[0].steps) s.verify_ns /= 2;
    store_.add_generation(run, arm, prompts[static_cast<size_t>(p)], g, {});
  }
  const Report r = report_with(run);
  EXPECT_FALSE(row(r, "pld:k=1", "gsm8k").batch->lengths) << "the longest says most";
  const auto& lengths = row(r, "pld:k=4", "gsm8k").batch->lengths;
  ASSERT_TRUE(lengths);
  const std::vector<LengthSpeed>& measured = lengths->at[0].measured;
  ASSERT_EQ(measured.size(), 2u);
  EXPECT_EQ(measured[0].k, 1);
  EXPECT_NEAR(measured[0].speedup.value, 280.0 / 77, 1e-6);
  EXPECT_EQ(measured[1].k, 4);
  EXPECT_NEAR(measured[1].speedup.value, 140.0 / 77, 1e-9);
  EXPECT_EQ(best_length(measured)->k, 1);
  EXPECT_THAT(to_markdown(r), HasSubstr("measured, of 1, 4"));
  EXPECT_THAT(to_markdown(r), HasSubstr("1 (3.64)"));
  const auto rows = nlohmann::json::parse(to_json(r));
  const auto longest = std::find_if(rows.begin(), rows.end(),
                                    [](const auto& one) { return one["method"] == "pld:k=4"; });
  ASSERT_NE(longest, rows.end());
  EXPECT_EQ((*longest)["best_k_measured"], 1);
}

TEST_F(BatchCosts, DraftsThatCannotBeCutHaveNoLengths) {
  const int64_t run = fill();
  store_.execute("UPDATE arm SET params = 'adaptive=true,k=4' WHERE method = 'pld'");
  EXPECT_THAT(to_text(report_with(run)), Not(HasSubstr("Best draft length")));
  store_.execute("UPDATE arm SET params = 'k=4', lossless = 'none' WHERE method = 'pld'");
  EXPECT_THAT(to_text(report_with(run)), Not(HasSubstr("Best draft length"))) << "not lossless";
}

TEST(DraftLengths, AreReadFromParameters) {
  ArmInfo arm;
  const auto length = [&](const char* params) {
    arm.params = params;
    return chain_length(arm);
  };
  EXPECT_EQ(length("k=4,match=first"), 4);
  EXPECT_EQ(length("draft=trained,k=6"), 6);
  EXPECT_EQ(length("k=10,tree=chain:3"), 3);
  EXPECT_EQ(length("k=10,tree=0+00+1"), 0);
  EXPECT_EQ(length("k=0"), 0);
  EXPECT_EQ(length("tree=chain:x"), 0);
  EXPECT_EQ(length(""), 0);
  const auto name = [&](const char* label, int64_t batch) {
    arm.label = label, arm.batch = batch;
    return drafter_name(arm);
  };
  arm.params = "draft=trained,k=6";
  EXPECT_EQ(name("sps:draft=trained,k=6, batch 8", 8), "sps:draft=trained");
  EXPECT_EQ(name("sps:k=6", 1), "sps");
  EXPECT_EQ(name("sps", 1), "sps");
  arm.params = "k=10,tree=chain:3";
  EXPECT_EQ(name("eagle:k=10,tree=chain:3", 1), "eagle:k=10");
}

TEST(DraftLengths, AreThinnerFarOut) {
  EXPECT_THAT(lengths_up_to(0), ElementsAre());
  EXPECT_THAT(lengths_up_to(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(lengths_up_to(11), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 10, 11));
}

}  // namespace
}  // namespace evalrun::reports
