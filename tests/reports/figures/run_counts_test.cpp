// What is added up while a run is read equals the documented views, whether generations have their
// tallies, lack them, or some do.
#include "reports/figures/run_counts.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "engine/base/rng.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::Row;

constexpr const char* kCountAgain = "UPDATE generation SET tally = generation_tally(id)";
// After kCountAgain.
constexpr const char* kLosses[] = {
    "SELECT 1", "UPDATE generation SET tally = NULL WHERE id % 3 = 0",
    "UPDATE generation SET tally = substr(tally, 1, length(tally) - 1) WHERE id % 5 = 0",
    "UPDATE generation SET tally = x'00' WHERE id % 5 = 0", "UPDATE generation SET tally = NULL"};

class RunCountsTest : public ReportTest {
 protected:
  // Repeats that differ in time (some equal), tokens and counters; failures; answers of two turns;
  // a planted fault.
  int64_t fill(int repeats) {
    run_.tasks = {"gsm8k", "chat"};
    run_.repeats = repeats;
    run_.samples = 2;
    run_.arms = tests::usual_arms();
    tests::SyntheticArm slow = run_.arms.back();
    slow.label = "pld:k=4 slow", slow.fault = "slow:10%";
    run_.arms.push_back(slow);
    run_.change = [this](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int,
                         int) { change(g, a); };
    return tests::fill(store_, run_);
  }
  void change(results::GenerationRecord& g, const tests::SyntheticArm& a) {
    results::TurnRecord& turn = g.turns[0];
    turn.decode_ns += static_cast<int64_t>(rng_.below(3)) * 1'000'000;
    if (rng_.below(3) == 0) turn.stop = results::StopReason::kStopToken;
    if (a.role != "method") return;
    if (rng_.below(4) == 0) turn.tokens[0] += 1;
    if (rng_.below(4) == 0) turn.steps.front().drafted = 2;
    if (rng_.below(6) == 0) std::fill(turn.tokens.begin(), turn.tokens.end(), 1);  // a loop
    if (rng_.below(9) == 0) g.status = "failed: planted";
    if (rng_.below(5) == 0) {
      const results::TurnRecord more = turn;
      g.turns.push_back(more), g.texts.emplace_back("more");
    }
  }
  void expect_samples_of_the_view(const RunData& data);
  void expect_counts_of_the_views(const RunData& data);
  base::Rng rng_{3};
};

void RunCountsTest::expect_samples_of_the_view(const RunData& data) {
  size_t i = 0;
  store_.query(
      "SELECT arm_id, prompt_id, sample, fault, tokens_hash, steps_hash, stable, n_repeats, "
      "degenerate, n_tokens, n_decode, steps, drafted, drafted_depth, accepted, emitted, "
      "target_forwards, rows, undrafted, draft_ns, verify_ns, decode_ns, prefill_ns, "
      "draft_prefill_ns, first_token_ns, fastest_ns FROM v_sample WHERE run_id = ? "
      "ORDER BY arm_id, prompt_id, sample, fault",
      {data.run.id}, [&](const Row& r) {
        const SampleRow& s = data.samples.at(i++);
        EXPECT_EQ(s.arm_id, r.integer(0));
        EXPECT_EQ(s.prompt_id, r.integer(1));
        EXPECT_EQ(s.sample, r.integer(2));
        EXPECT_EQ(s.fault, r.text(3));
        EXPECT_EQ(s.tokens_hash, r.text(4));
        EXPECT_EQ(s.steps_hash, r.text(5));
        EXPECT_EQ(s.stable, r.integer(6) != 0);
        EXPECT_EQ(s.n_repeats, r.integer(7));
        EXPECT_EQ(s.degenerate, r.integer(8) != 0);
        int column = 9;
        for (const double number :
             {s.n_tokens, s.n_decode, s.steps, s.drafted, s.drafted_depth, s.accepted, s.emitted,
              s.target_forwards, s.rows, s.undrafted, s.draft_ns, s.verify_ns, s.decode_ns,
              s.prefill_ns, s.draft_prefill_ns, s.first_token_ns, s.fastest_ns}) {
          EXPECT_EQ(number, r.number(column)) << r.name(column);
          ++column;
        }
        return true;
      });
  EXPECT_EQ(i, data.samples.size());
  EXPECT_GT(i, 20u);
}

void RunCountsTest::expect_counts_of_the_views(const RunData& data) {
  const RunCounts counts = count_run(store_, data);
  std::map<ArmTask, std::pair<int64_t, int64_t>> generations, identity;
  int64_t faults = 0;
  store_.query("SELECT arm_id, task, fault, generations, failed FROM v_count WHERE run_id = ?",
               {data.run.id}, [&](const Row& r) {
                 if (r.text(2).empty())
                   generations[{r.integer(0), r.text(1)}] = {r.integer(3), r.integer(4)};
                 else
                   faults += r.integer(3);
                 return true;
               });
  store_.query(
      "SELECT arm_id, task, compared, identical FROM v_identity WHERE run_id = ? AND fault = ''",
      {data.run.id}, [&](const Row& r) {
        identity[{r.integer(0), r.text(1)}] = {r.integer(2), r.integer(3)};
        return true;
      });
  EXPECT_EQ(data.generations.counts, generations);
  EXPECT_EQ(data.generations.identity, identity);
  EXPECT_EQ(data.generations.hidden_faults, faults);
  // By arm, data set, and then: depth, accepted, cut -> steps; depth, rank -> tested, accepted.
  using Row4 = std::tuple<int64_t, std::string, int64_t, int64_t, int64_t, int64_t>;
  std::set<Row4> steps, nodes, view_steps, view_nodes;
  for (const auto& [key, list] : counts.steps)
    for (const StepCount& s : list)
      steps.emplace(key.first, key.second, s.depth, s.accepted, s.cut, s.steps);
  for (const auto& [key, list] : counts.nodes)
    for (const NodeAcceptance& n : list)
      nodes.emplace(key.first, key.second, n.depth, n.rank, n.tested, n.accepted);
  const auto read = [&](const char* columns, std::set<Row4>& rows) {
    store_.query(fmt::format("SELECT arm_id, task, {} AND run_id = ? AND fault = ''", columns),
                 {data.run.id}, [&](const Row& r) {
                   rows.emplace(r.integer(0), r.text(1), r.integer(2), r.integer(3), r.integer(4),
                                r.integer(5));
                   return true;
                 });
  };
  read(
      "drafted_depth, accepted, cut, steps FROM v_acceptance_histogram "
      "WHERE arm_id IN (SELECT id FROM arm WHERE role = 'method')",
      view_steps);
  read("depth, rank, tested, accepted FROM v_node_acceptance WHERE true", view_nodes);
  EXPECT_EQ(steps, view_steps);
  EXPECT_EQ(nodes, view_nodes);
  EXPECT_GT(steps.size(), 4u);
}

TEST_F(RunCountsTest, SamplesAreThoseOfTheView) {
  for (const int repeats : {1, 3, 4}) {
    run_.key = fmt::format("run of {}", repeats);
    const int64_t run = fill(repeats);
    for (const char* loss : kLosses) {
      SCOPED_TRACE(fmt::format("{} repeats, {}", repeats, loss));
      store_.execute(kCountAgain);
      store_.execute(loss);
      const RunData data = load_run(store_, run, Faults::kInclude);
      expect_samples_of_the_view(data);
      const auto loops = [](const SampleRow& s) { return s.degenerate; };
      EXPECT_TRUE(std::any_of(data.samples.begin(), data.samples.end(), loops));
      const auto stops = [](const SampleRow& s) { return s.stop_tokens > 0; };
      EXPECT_TRUE(std::any_of(data.samples.begin(), data.samples.end(), stops));
    }
  }
}

// The view has none.
TEST_F(RunCountsTest, StopTokensAreThoseOfTheTurns) {
  const int64_t run = fill(1);
  for (const char* loss : kLosses) {
    SCOPED_TRACE(loss);
    store_.execute(kCountAgain);
    store_.execute(loss);
    double stops = 0;
    for (const SampleRow& s : load_run(store_, run, Faults::kInclude).samples)
      stops += s.stop_tokens;
    store_.query(
        "SELECT count(*) FROM turn t JOIN generation g ON g.id = t.generation_id WHERE g.status = "
        "'ok' AND t.stop = 'stop_token'",
        {}, [&](const Row& r) {
          EXPECT_EQ(stops, r.number(0));
          return false;
        });
    EXPECT_GT(stops, 0);
  }
}

TEST_F(RunCountsTest, CountsAreThoseOfTheViews) {
  const int64_t run = fill(3);
  // Trees deeper than what is counted fast, and turns far apart.
  store_.execute(
      "UPDATE step SET drafted_depth = 300, accepted = 70 WHERE turn_id % 7 = 0 AND idx = 0");
  store_.execute("DELETE FROM generation WHERE id BETWEEN 40 AND 120");
  for (const char* loss : kLosses) {
    SCOPED_TRACE(loss);
    store_.execute(kCountAgain);
    store_.execute(loss);
    const RunData data = load_run(store_, run, Faults::kLeaveOut, true);
    EXPECT_EQ(data.generations.outcomes.has_value(), loss == kLosses[0]);
    EXPECT_GT(data.generations.hidden_faults, 0);
    expect_counts_of_the_views(data);
    const RunData less = load_run(store_, run);
    EXPECT_FALSE(less.generations.outcomes.has_value()) << "nobody asked";
    expect_counts_of_the_views(less);
  }
  tests::without_tallies(store_);
  const RunData data = load_run(store_, run, Faults::kLeaveOut, true);
  EXPECT_FALSE(data.generations.outcomes.has_value());
  expect_counts_of_the_views(data);
  expect_samples_of_the_view(load_run(store_, run, Faults::kInclude, true));
}

// Planted faults are read by the self-test, and counted in none of the sums all the same.
TEST_F(RunCountsTest, PlantedFaultsAreNotCounted) {
  const int64_t run = fill(1);
  store_.execute("UPDATE generation SET tally = NULL WHERE fault <> ''");
  EXPECT_TRUE(load_run(store_, run, Faults::kLeaveOut, true).generations.outcomes.has_value())
      << "nothing that counts is missing";
  store_.execute(kCountAgain);
  const RunData data = load_run(store_, run, Faults::kInclude, true);
  EXPECT_TRUE(data.generations.outcomes.has_value());
  expect_counts_of_the_views(data);
}

// Two processes that write to one file: neither run has its numbers to itself.
TEST_F(RunCountsTest, RunsMeasuredAtOnceKeepTheirGenerations) {
  run_.arms = tests::usual_arms();
  int64_t runs[2] = {};
  std::vector<int64_t> arms[2];
  for (int r = 0; r < 2; ++r) {
    results::RunRecord record;
    record.key = fmt::format("run {}", r);
    runs[r] = store_.add_run(record);
    for (const tests::SyntheticArm& arm : run_.arms)
      arms[r].push_back(store_.add_arm(runs[r], tests::arm_record(run_, arm)));
  }
  for (int p = 0; p < 8; ++p) {
    int64_t prompts[2] = {};
    for (int r = 0; r < 2; ++r)
      prompts[r] = store_.add_prompt(runs[r], tests::prompt_record("gsm8k", p));
    for (size_t a = 0; a < run_.arms.size(); ++a)
      for (int r = 0; r < 2; ++r) {
        results::GenerationRecord g = tests::generation(run_, run_.arms[a], p + r, 0, 0);
        change(g, run_.arms[a]);
        store_.add_generation(runs[r], arms[r][a], prompts[r], g, {});
      }
  }
  for (const char* loss : kLosses) {
    store_.execute(kCountAgain);
    store_.execute(loss);
    for (const int64_t run : runs) {
      SCOPED_TRACE(fmt::format("run {}, {}", run, loss));
      const RunData data = load_run(store_, run, Faults::kLeaveOut, true);
      EXPECT_EQ(data.generations.n, 24);
      expect_samples_of_the_view(data);
      expect_counts_of_the_views(data);
    }
  }
}

}  // namespace
}  // namespace evalrun::reports
