// What a report says of a run in batches, worked out by hand.
#include "reports/figures/batches.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "reports/html/html_data.h"
#include "tests/reports/batch_run.h"
#include "tests/reports/rendered.h"

namespace evalrun::reports {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(BatchRun, ThroughputAndSpeedup) {
  const Report r = build_report(store_, fill());
  const ReportRow& plain = row(r, "ar, batch 2", "gsm8k");
  const ReportRow& pld = row(r, "pld:k=4, batch 2", "gsm8k");
  EXPECT_EQ(plain.reference, "");
  EXPECT_EQ(pld.reference, "ar, batch 2");
  EXPECT_EQ(row(r, "pld:k=4", "gsm8k").reference, "ar");
  // 14 tokens came from steps.
  EXPECT_NEAR(plain.batch->tok_s->value, 14 / 0.092, 1e-9);
  EXPECT_NEAR(pld.batch->tok_s->value, 14 / 0.101, 1e-9);
  EXPECT_DOUBLE_EQ(*pld.speed.speedup, 92.0 / 101);
  EXPECT_DOUBLE_EQ(pld.batch->over_alone->value, 140.0 / 101);
  EXPECT_DOUBLE_EQ(plain.batch->over_alone->value, 140.0 / 92);
  EXPECT_FALSE(row(r, "ar", "gsm8k").batch->over_alone.has_value());
  EXPECT_DOUBLE_EQ(row(r, "pld:k=4", "gsm8k").batch->over_alone->value, 140.0 / 77);
  EXPECT_EQ(pld.same_tokens.share, 1.0);
  EXPECT_EQ(pld.batch->same_as_alone.compared, 4);
  EXPECT_EQ(pld.batch->same_as_alone.share, 1.0);
  EXPECT_EQ(row(r, "pld:k=4", "gsm8k").batch->same_as_alone.compared, 0);
  EXPECT_FALSE(pld.batch->predicted.has_value());
}

// Two units of two prompts, of all figures of a batch of two.
TEST_F(BatchRun, PromptsDecodedTogetherAreOneUnit) {
  const Report r = build_report(store_, fill());
  const std::vector<PromptPair> pairs = {{.base_tokens = 4, .base_ns = 24, .tokens = 4, .ns = 30},
                                         {.base_tokens = 4, .base_ns = 24, .tokens = 4, .ns = 30},
                                         {.base_tokens = 4, .base_ns = 32, .tokens = 4, .ns = 26},
                                         {.base_tokens = 2, .base_ns = 12, .tokens = 2, .ns = 15}};
  const Design together{.unit = {0, 0, 1, 1}, .stratum = {0, 0}};
  const auto expected = speedup_sum(pairs, together), apart = speedup_sum(pairs);
  const ReportRow& pld = row(r, "pld:k=4, batch 2", "gsm8k");
  EXPECT_NEAR(pld.speed.interval->lo, expected->interval->lo, 1e-9);
  EXPECT_NEAR(pld.speed.interval->hi, expected->interval->hi, 1e-9);
  EXPECT_NEAR(pld.speed.n_eff, expected->n_eff, 1e-9);
  EXPECT_GT(std::abs(apart->interval->lo - expected->interval->lo), 0.01);
  EXPECT_LT(pld.batch->tok_s->n_eff, 2 + 1e-9);
  EXPECT_LT(pld.batch->over_alone->n_eff, 2 + 1e-9);
  EXPECT_GT(row(r, "pld:k=4", "gsm8k").batch->tok_s->n_eff, 3);
}

TEST_F(BatchRun, StepsAndWaits) {
  const Report r = build_report(store_, fill());
  const BatchFigures& plain = *row(r, "ar, batch 2", "gsm8k").batch;
  const BatchFigures& pld = *row(r, "pld:k=4, batch 2", "gsm8k").batch;
  const BatchFigures& alone = *row(r, "pld:k=4", "gsm8k").batch;
  // Eight steps of plain decoding, of which six had both members; four and three of pld.
  EXPECT_DOUBLE_EQ(*plain.members, 14.0 / 8);
  EXPECT_DOUBLE_EQ(*plain.rows, 14.0 / 8);
  EXPECT_DOUBLE_EQ(*plain.step_ms, 12);
  EXPECT_DOUBLE_EQ(*plain.step_ratio, 1);
  EXPECT_DOUBLE_EQ(*pld.members, 7.0 / 4);
  EXPECT_DOUBLE_EQ(*pld.rows, 21.0 / 4);
  EXPECT_DOUBLE_EQ(*pld.step_ms, 30);
  EXPECT_DOUBLE_EQ(*pld.step_ratio, 2.5);
  EXPECT_DOUBLE_EQ(*alone.members, 1);
  EXPECT_DOUBLE_EQ(*alone.step_ratio, 1.1);
  EXPECT_DOUBLE_EQ(pld.first_token_ms->p50, 100);
  EXPECT_DOUBLE_EQ(alone.first_token_ms->p95, 50);
  // Per token: 12, 12, (12 + 12 + 10 + 10) / 4 and 12.
  EXPECT_DOUBLE_EQ(plain.per_token_ms->p50, 12);
  EXPECT_DOUBLE_EQ(pld.per_token_ms->p50, 15);  // 15, 15, (30 + 11) / 4 and 15
  EXPECT_DOUBLE_EQ(alone.per_token_ms->p50, 5.5);
  // Between tokens: 12 times 15 and twice 5.5.
  EXPECT_DOUBLE_EQ(pld.gap_ms->p50, 15);
  EXPECT_DOUBLE_EQ(pld.gap_ms->p99, 15);
  EXPECT_DOUBLE_EQ(*pld.longest_gap_ms, 30);
  EXPECT_DOUBLE_EQ(*plain.longest_gap_ms, 12);
  // pld alone has the most tokens per second and the least time per token.
  EXPECT_TRUE(alone.on_front);
  for (const char* arm : {"ar", "ar, batch 2", "pld:k=4, batch 2"})
    EXPECT_FALSE(row(r, arm, "gsm8k").batch->on_front) << arm;
}

TEST_F(BatchRun, Crossover) {
  const Report r = build_report(store_, fill());
  const double up = std::log(140.0 / 77), down = std::log(92.0 / 101);
  for (const char* arm : {"pld:k=4", "pld:k=4, batch 2"}) {
    const auto& x = row(r, arm, "gsm8k").batch->crossover;
    ASSERT_TRUE(x.has_value()) << arm;
    EXPECT_NEAR(x->at.batch, std::pow(2, up / (up - down)), 1e-9);
  }
  EXPECT_FALSE(row(r, "ar, batch 2", "gsm8k").batch->crossover.has_value());
}

// T(3 * 2) / T(2) of the run's table against T(1): a step of 25 ms for two tokens an answer, where
// plain decoding takes 10 for one.
TEST_F(BatchRun, PredictsFromBatchOne) {
  const int64_t run = fill();
  const std::map<int, double> table = {{1, 10}, {2, 12}, {3, 11}, {4, 20}, {6, 30}};
  RowTimes times{.one = [&](int n) { return table.at(n); }};
  const auto report = [&] {
    return build_report(store_, run, {.row_times = [&](const RunInfo&) { return times; }});
  };
  const Report r = report();
  EXPECT_NEAR(row(r, "pld:k=4, batch 2", "gsm8k").batch->predicted->value, 0.8, 1e-9);
  EXPECT_FALSE(row(r, "ar, batch 2", "gsm8k").batch->predicted.has_value());
  EXPECT_FALSE(row(r, "pld:k=4", "gsm8k").batch->predicted.has_value());
  // The run's own table of two sequences goes first: three rows of each take 1.6 of one of each.
  times.batches[2] = [](int n) { return n == 3 ? 24.0 : 15.0; };
  EXPECT_NEAR(row(report(), "pld:k=4, batch 2", "gsm8k").batch->predicted->value, 1.25, 1e-9);
}

TEST_F(BatchRun, IsShownBatchByBatch) {
  const Report r = build_report(store_, fill());
  const std::string text = to_text(r);
  for (const char* part :
       {"Batch 1", "Batch 2", "batches, gsm8k", "static", "TPOT p50 / p95 / p99", "T(Bn)/T(B)",
        "faster than plain decoding up to batch", "1.8", "Batch 1: ", "Batch 2: "})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_LT(text.find("Batch 1\n"), text.find("Batch 2\n"));
  for (const std::string& other : {to_markdown(r), to_latex(r)})
    EXPECT_THAT(other, HasSubstr("12.0 / 12.0 / 12.0"));
  const auto rows = nlohmann::json::parse(to_json(r));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3]["method"], "pld:k=4, batch 2");
  EXPECT_EQ(rows[3]["batch"], 2);
  EXPECT_EQ(rows[3]["batch_mode"], "static");
  EXPECT_EQ(rows[0]["batch_mode"], "");
  EXPECT_EQ(rows[3]["tpot_ms_p50"], 15.0);
  EXPECT_EQ(rows[3]["longest_stall_ms"], 30.0);
  EXPECT_NEAR(rows[3]["crossover"].get<double>(), 1.82, 0.01);
  EXPECT_TRUE(rows[2]["crossover"].is_null());
  EXPECT_TRUE(rows[3]["predicted_speedup"].is_null());
  EXPECT_THAT(to_csv(r), HasSubstr("itl_ms_p99"));
  const auto page = nlohmann::json::parse(html_data(r, store_));
  EXPECT_EQ(page["rows"][3]["batch"]["size"], 2);
  EXPECT_EQ(page["rows"][3]["batch"]["method"], "pld:k=4");
  EXPECT_EQ(page["rows"][1]["batch"]["front"], true);
}

TEST_F(BatchRun, ARunWithoutBatchesShowsNoneOfIt) {
  const Report r = build_report(store_, fill(false));
  for (const ReportRow& one : r.rows) EXPECT_FALSE(one.batch.has_value());
  for (const std::string& text : {to_text(r), to_json(r), to_csv(r), html_data(r, store_)}) {
    EXPECT_THAT(text, Not(HasSubstr("TPOT")));
    EXPECT_THAT(text, Not(HasSubstr("tpot")));
    EXPECT_THAT(text, Not(HasSubstr("crossover")));
    EXPECT_THAT(text, Not(HasSubstr("Batch 1")));
  }
}

TEST_F(BatchRun, EveryBatchHasANoiseFloor) {
  const int64_t run = fill();
  for (const int batch : {1, 2})
    store_.execute("UPDATE arm SET role = 'aa', label = label || ' (A/A)' WHERE id = ?",
                   {arms_.at({true, batch})});
  const Report r = build_report(store_, run);
  const std::string text = to_text(r);
  EXPECT_THAT(text, HasSubstr("Noise floor: plain decoding"));
  EXPECT_THAT(text, HasSubstr("Noise floor at batch 2: plain decoding"));
  EXPECT_THAT(text, HasSubstr("plain decoding at batch 2 against itself gives 0.91"));
}

TEST_F(BatchRun, ANoisyBatchLeavesTheOthersQuotable) {
  const int64_t run = fill();
  store_.execute("UPDATE arm SET role = 'aa', label = 'ar, batch 2 (A/A)' WHERE id = ?",
                 {arms_.at({true, 2})});
  const Report r = build_report(store_, run);
  EXPECT_THAT(to_text(r), HasSubstr("Not quotable: plain decoding at batch 2 against itself"));
  for (const auto& one : nlohmann::json::parse(to_json(r)))
    EXPECT_EQ(one["quotable"], one["batch"] == 2 ? nlohmann::json(false) : nlohmann::json(nullptr))
        << one["method"] << ": without clocks nothing speaks for it";
}

// What a prefill took of the batch is not what its answer waited for, and a forward that reads the
// weights is of all members.
TEST_F(BatchRun, SharesAreNeitherWaitsNorBandwidth) {
  const int64_t run = fill();
  store_.add_environment(run, "read_bandwidth", "20000000000");
  store_.add_environment(run, "forward_bytes", "100000000");
  const Report r = build_report(store_, run);
  for (const char* arm : {"ar", "pld:k=4"}) {
    const ReportRow& alone = row(r, arm, "gsm8k");
    EXPECT_NEAR(alone.speed.first_token_ms.value(), 50, 1e-9);
    EXPECT_NEAR(alone.speed.first_token_ratio.value(), 1, 1e-12);
    EXPECT_TRUE(alone.why.bandwidth);
    const ReportRow& together = row(r, std::string(arm) + ", batch 2", "gsm8k");
    EXPECT_FALSE(together.speed.first_token_ms);
    EXPECT_FALSE(together.speed.first_token_ratio);
    EXPECT_FALSE(together.speed.first_token_interval);
    EXPECT_FALSE(together.why.bandwidth);
  }
  // Of throughput, prefill included: that is in the shares.
  EXPECT_NEAR(*row(r, "pld:k=4, batch 2", "gsm8k").speed.request, 292.0 / 301, 1e-9);
  const nlohmann::json together = nlohmann::json::parse(to_json(r)).at(3);
  for (const char* key : {"first_token_ms", "first_token_ratio", "first_token_ratio_lo",
                          "first_token_ratio_n_eff", "bandwidth_share"})
    EXPECT_TRUE(together.at(key).is_null()) << key;
  EXPECT_EQ(together["ttft_ms_p50"], 100.0);
}

// pld's four steps at batch 2 took 101 ms, of which the GPU verified nine tenths.
TEST_F(BatchRun, GpuTimesAreOfAStepOfAllMembers) {
  const int64_t run = fill();
  store_.execute("UPDATE arm SET device = 'cuda:0'");
  store_.execute(
      "INSERT INTO gpu (generation_id, slowed_by, draft_ns, verify_ns, commit_ns, graph_misses) "
      "SELECT generation_id, '', 0, sum(decode_ns) * 9 / 10, 0, 1 FROM turn GROUP BY "
      "generation_id");
  const Report r = build_report(store_, run);
  const GpuUse together = *row(r, "pld:k=4, batch 2", "gsm8k").gpu;
  EXPECT_NEAR(*together.verify_ms, 0.9 * 101 / 4, 1e-9);
  EXPECT_NEAR(*together.host_ms, 0.1 * 101 / 4, 1e-9);
  EXPECT_NEAR(*together.busy, 0.9, 1e-12);
  EXPECT_NEAR(*row(r, "pld:k=4", "gsm8k").gpu->verify_ms, 0.9 * 11, 1e-9);
  EXPECT_EQ(r.gpu_disturbances.graph_misses.at("pld:k=4, batch 2"),
            (std::pair<int64_t, int64_t>{4, 4}));
  EXPECT_EQ(r.gpu_disturbances.graph_misses.at("pld:k=4"), (std::pair<int64_t, int64_t>{4, 7}));
}

TEST(BatchPercentiles, AreValuesByRank) {
  EXPECT_FALSE(percentiles({}).has_value());
  EXPECT_FALSE(percentiles({{.ms = 3, .weight = 0}}).has_value());
  std::vector<WeightedTime> times;
  for (int i = 100; i > 0; --i) times.push_back({static_cast<double>(i), 1});
  const auto p = percentiles(times);
  EXPECT_EQ(p->p50, 50);
  EXPECT_EQ(p->p95, 95);
  EXPECT_EQ(p->p99, 99);
  const auto weighted = percentiles({{.ms = 1, .weight = 98}, {.ms = 7, .weight = 2}});
  EXPECT_EQ(weighted->p95, 1);
  EXPECT_EQ(weighted->p99, 7);
}

TEST(BatchLabels, LoseTheirBatch) {
  ArmInfo arm;
  arm.batch = 8;
  for (const auto& [label, name] :
       std::map<std::string, std::string>{{"pld:k=4, batch 8", "pld:k=4"},
                                          {"pld:k=4, batch 8 continuous", "pld:k=4"},
                                          {"ar, batch 8 (A/A)", "ar (A/A)"},
                                          {"ar, batch 8 continuous (A/A)", "ar (A/A)"},
                                          {"something else", "something else"}}) {
    arm.label = label;
    EXPECT_EQ(label_without_batch(arm), name);
  }
  arm.batch = 1, arm.label = "x, batch 1";
  EXPECT_EQ(label_without_batch(arm), "x, batch 1");
}

}  // namespace
}  // namespace evalrun::reports
