// The T(n) table: what it holds, how it is read between its rows, what measuring leaves behind. No
// test looks at how long anything took.
#include "engine/cost/row_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/base/error.h"
#include "engine/cost/machine_probes.h"
#include "engine/devices.h"
#include "engine/wrapped_session.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine {
namespace {

using ::testing::ElementsAre;

RowCostTable table_of(const std::vector<std::pair<int, double>>& points) {
  RowCostTable table;
  for (const auto& [rows, ms] : points) table.rows.push_back({rows, ms, ms, ms, {}});
  return table;
}

TEST(RowCostTable, Interpolates) {
  const RowCostTable table = table_of({{1, 2.0}, {4, 2.6}, {8, 5.0}});
  EXPECT_DOUBLE_EQ(table.ms(1), 2.0);
  EXPECT_DOUBLE_EQ(table.ms(2), 2.2);
  EXPECT_DOUBLE_EQ(table.ms(4), 2.6);
  EXPECT_DOUBLE_EQ(table.ms(7), 4.4);
  EXPECT_DOUBLE_EQ(table.ms(8), 5.0);
  EXPECT_DOUBLE_EQ(table.ms(10), 6.2);  // on the line through 4 and 8
  EXPECT_DOUBLE_EQ(table.ratio(8), 2.5);
  EXPECT_THROW(table.ms(0), base::InternalError);
  EXPECT_THROW(RowCostTable{}.ms(1), base::InternalError);
}

TEST(RowCostTable, NeverFallsBehindItsEnd) {
  EXPECT_DOUBLE_EQ(table_of({{1, 2.0}}).ms(9), 2.0);
  EXPECT_DOUBLE_EQ(table_of({{1, 2.0}, {2, 1.9}}).ms(64), 1.9);
}

TEST(RowCostTable, OfABatchIsThatOfAsManyTimesTheRows) {
  RowCostTable table = table_of({{1, 2.0}, {4, 2.6}, {8, 5.0}, {30, 27.0}});
  table.context = 256;
  table.bytes = 1000;
  table.prefill = {{5, 1.0}};
  for (const int sequences : {1, 2, 3, 7, 8, 16, 31, 64}) {
    const RowCostTable batch = table.of_batch(sequences);
    EXPECT_EQ(batch.context, 256);
    EXPECT_EQ(batch.sequences, sequences);
    for (int n = 1; n <= 70; ++n)
      EXPECT_NEAR(batch.ms(n), table.ms(n * sequences), 1e-9) << n << " x " << sequences;
    EXPECT_NEAR(batch.ratio(4), table.ms(4 * sequences) / table.ms(sequences), 1e-9);
  }
  EXPECT_EQ(table.of_batch(1).bytes, 1000u) << "one sequence: the table itself";
  EXPECT_EQ(table.of_batch(4).bytes, 0u);
  EXPECT_TRUE(table.of_batch(4).prefill.empty());
  // Flat behind an end that falls.
  EXPECT_DOUBLE_EQ(table_of({{1, 2.0}, {8, 1.9}}).of_batch(16).ms(9), 1.9);
  EXPECT_DOUBLE_EQ(table_of({{1, 2.0}}).of_batch(16).ratio(9), 1);
  EXPECT_TRUE(RowCostTable{}.of_batch(4).empty());
  EXPECT_THROW((void)table.of_batch(0), base::InternalError);
  EXPECT_THROW((void)table.of_batch(2).of_batch(2), base::InternalError) << "not of one sequence";
}

TEST(RowCostTable, Floor) {
  RowCostTable table = table_of({{1, 2.0}});
  table.bytes = 30'000'000;
  EXPECT_EQ(table.floor_ms(), 0) << "no bandwidth was probed";
  table.bandwidth = 20e9;
  EXPECT_DOUBLE_EQ(table.floor_ms(), 1.5);
}

// Cores that move between 40 and 80 GB/s, where T(1) is 0.8 of what each allows. The best read of
// all over the median T(1) would be 0.4.
TEST(RowCostTable, ShareOfTheFloorIsOfTheSameMoment) {
  RowCostTable table = table_of({{1, 1.0}});
  table.bytes = 32'000'000;
  const double near = 40e9, far = 80e9;
  table.set_floor(std::vector<FloorRound>{
      {near, near, 1.0}, {far, 60e9, 0.5}, {near, near, 1.0}, {30e9, far, 0.5}, {near, 1e9, 1.0}});
  EXPECT_DOUBLE_EQ(table.floor_share, 0.8);
  EXPECT_DOUBLE_EQ(table.bandwidth, near);
  EXPECT_DOUBLE_EQ(table.floor_ms(), 0.8);
  EXPECT_THROW(table.set_floor({}), base::InternalError);
}

class MeasureRowCost : public ::testing::Test {
 protected:
  static RowCostOptions options() {
    RowCostOptions o;
    o.rows = {8, 2, 8};
    o.context = 20;
    o.rounds = 3;
    return o;
  }
  std::vector<std::unique_ptr<Session>> sessions(int n, int capacity, int sequences = 1) {
    std::vector<std::unique_ptr<Session>> all;
    for (int i = 0; i < n; ++i) {
      SessionOptions o;
      o.n_threads = 1, o.max_tokens = capacity, o.n_sequences = sequences;
      all.push_back(Session::create(model_, o));
    }
    return all;
  }
  static std::vector<int> counts(const RowCostTable& table) {
    std::vector<int> rows;
    for (const RowCost& r : table.rows) rows.push_back(r.rows);
    return rows;
  }
  std::shared_ptr<const Model> model_ = make_random_model(testing::small_config(), 5);
};

TEST_F(MeasureRowCost, RowsAscendWithoutRepeatsAndBeginAtOne) {
  auto o = options();
  o.prefill = {5, 9};
  int called = 0;
  o.progress = [&](int round, int of) {
    EXPECT_EQ(round, ++called);
    EXPECT_EQ(of, 3);
  };
  EXPECT_EQ(row_cost_capacity(o), 28);
  const auto all = sessions(2, 28);
  all[1]->prefill(testing::random_tokens(3, 101, 1));
  const auto tables = measure_row_cost(all, o);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(called, 3);
  for (const RowCostTable& table : tables) {
    EXPECT_THAT(counts(table), ElementsAre(1, 2, 8));
    EXPECT_EQ(table.context, 20);
    EXPECT_EQ(table.rounds, 3);
    EXPECT_EQ(table.bytes, all[0]->bytes_per_forward(20));
    EXPECT_EQ(table.bandwidth, 0);
    for (const RowCost& r : table.rows) {
      EXPECT_GT(r.ms, 0);
      EXPECT_GT(r.q1_ms, 1e-6) << "less than a nanosecond";
      EXPECT_LE(r.q1_ms, r.ms);
      EXPECT_GE(r.q3_ms, r.ms);
    }
    ASSERT_EQ(table.prefill.size(), 2u);
    EXPECT_EQ(table.prefill[1].tokens, 9);
    EXPECT_GT(table.prefill[1].tokens_per_s(), 0);
  }
  for (const auto& session : all) EXPECT_EQ(session->length(), 0);
}

TEST_F(MeasureRowCost, RoundsFollowTheTime) {
  auto o = options();
  o.rounds = 0;
  o.seconds = 0;
  EXPECT_EQ(measure_row_cost(sessions(1, 28), o).front().rounds, 3) << "the least there is";
  o.seconds = 1e6;
  o.most_rounds = 5;
  EXPECT_EQ(measure_row_cost(sessions(1, 28), o).front().rounds, 5);
}

TEST_F(MeasureRowCost, LeavesOutWhatWouldTakeTooLong) {
  auto o = options();
  o.limit_seconds = 1e-12;  // not even one row fits: it is measured all the same
  const auto tables = measure_row_cost(sessions(1, 28), o);
  EXPECT_THAT(counts(tables.front()), ElementsAre(1));
}

TEST_F(MeasureRowCost, ProbesTheFloor) {
  auto o = options();
  o.bandwidth_seconds = 0.02;
  const auto table = measure_row_cost(sessions(1, 28), o).front();
  EXPECT_GT(table.bandwidth, 0);
  EXPECT_GT(table.floor_ms(), 0);
  // A model of some kilobytes is read from a cache: no bound, but the two must belong together.
  EXPECT_GT(table.floor_share, 0);
}

TEST_F(MeasureRowCost, ASessionTooSmallIsOurMistake) {
  EXPECT_THROW(measure_row_cost(sessions(1, 27), options()), base::InternalError);
  auto o = options();
  o.sequences = 2;
  EXPECT_THROW(measure_row_cost(sessions(1, 28), o), base::InternalError);
  o.rows = {kMaxRows / 2 + 1};
  EXPECT_THROW(measure_row_cost(sessions(1, 2000, 2), o), base::InternalError);
}

// What each forward is asked, and how much every sequence has below it.
class Watched : public WrappedSession {
 public:
  using WrappedSession::WrappedSession;
  ForwardResult forward(const ForwardRequest& request) override {
    forwards.emplace_back(request.rows.begin(), request.rows.end());
    for (int s = 0; s < options().n_sequences; ++s) lengths.insert(length(s));
    return WrappedSession::forward(request);
  }
  std::vector<std::vector<Row>> forwards;
  std::set<int> lengths;
};

TEST_F(MeasureRowCost, EverySequenceHasItsRowsAndItsContext) {
  auto o = options();
  o.sequences = 3;
  EXPECT_EQ(row_cost_capacity(o), 28) << "of each sequence";
  auto made = std::make_unique<Watched>(std::move(sessions(1, 28, 3).front()));
  const Watched& watched = *made;
  std::vector<std::unique_ptr<Session>> all;
  all.push_back(std::move(made));
  const RowCostTable table = measure_row_cost(all, o).front();
  EXPECT_EQ(table.sequences, 3);
  EXPECT_THAT(counts(table), ElementsAre(1, 2, 8));
  const size_t weights = all[0]->bytes_per_forward(0);
  EXPECT_EQ(table.bytes - weights, 3 * (all[0]->bytes_per_forward(20) - weights))
      << "weights once, each context's keys and values";
  EXPECT_THAT(watched.lengths, ElementsAre(20));
  for (const std::vector<Row>& rows : watched.forwards) {
    const int n = static_cast<int>(rows.size()) / 3;
    ASSERT_EQ(rows.size(), static_cast<size_t>(3 * n));
    for (int i = 0; i < 3 * n; ++i) {
      EXPECT_EQ(rows[static_cast<size_t>(i)].sequence, i / n);
      EXPECT_EQ(rows[static_cast<size_t>(i)].parent, i % n == 0 ? -1 : i - 1);
    }
  }
  for (int s = 0; s < 3; ++s) EXPECT_EQ(all[0]->length(s), 0);
}

TEST(MachineProbes, ReadAnyFootprint) {
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{3} << 20})
    for (const int threads : {1, 3}) EXPECT_GT(read_bandwidth(bytes, threads, 0), 0) << bytes;
}

TEST(MachineProbes, OneThreadHasNobodyToTalkTo) {
  EXPECT_EQ(cache_line_round_trip_ns(1), 0);
  if (allowed_cores() > 1) {
    EXPECT_GT(cache_line_round_trip_ns(2), 0);
  }
}

}  // namespace
}  // namespace evalrun::engine
