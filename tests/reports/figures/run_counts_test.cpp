// What is added up while a run is read equals the documented views.
#include "reports/figures/run_counts.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "engine/base/rng.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::Row;

class RunCountsTest : public ReportTest {
 protected:
  // Repeats that differ in time (some equal), tokens and counters; failures; a planted fault.
  int64_t fill(int repeats) {
    run_.tasks = {"gsm8k", "chat"};
    run_.repeats = repeats;
    run_.samples = 2;
    tests::SyntheticArm slow = run_.arms.back();
    slow.label = "pld:k=4 slow", slow.fault = "slow:10%";
    run_.arms.push_back(slow);
    run_.change = [this](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int,
                         int) {
      g.turns[0].decode_ns += static_cast<int64_t>(rng_.below(3)) * 1'000'000;
      if (a.role != "method") return;
      if (rng_.below(4) == 0) g.turns[0].tokens[0] += 1;
      if (rng_.below(4) == 0) g.turns[0].steps.front().drafted = 2;
      auto& tokens = g.turns[0].tokens;
      if (rng_.below(6) == 0) std::fill(tokens.begin(), tokens.end(), 1);  // a loop
      if (rng_.below(9) == 0) g.status = "failed: planted";
    };
    return tests::fill(store_, run_);
  }
  base::Rng rng_{3};
};

TEST_F(RunCountsTest, SamplesAreThoseOfTheView) {
  for (const int repeats : {1, 3, 4}) {
    run_.key = fmt::format("run of {}", repeats);
    run_.arms = tests::usual_arms();
    const RunData data = load_run(store_, fill(repeats), Faults::kInclude);
    size_t i = 0;
    int64_t degenerate = 0;
    store_.query(
        "SELECT arm_id, prompt_id, sample, fault, tokens_hash, steps_hash, stable, n_repeats, "
        "n_tokens, drafted, decode_ns, fastest_ns, degenerate, prefill_ns, "
        "first_token_ns FROM v_sample WHERE run_id = ? "
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
          EXPECT_EQ(s.n_tokens, r.number(8));
          EXPECT_EQ(s.drafted, r.number(9));
          EXPECT_EQ(s.decode_ns, r.number(10));
          EXPECT_EQ(s.fastest_ns, r.number(11));
          EXPECT_EQ(s.degenerate, r.integer(12) != 0);
          EXPECT_EQ(s.prefill_ns, r.number(13));
          EXPECT_EQ(s.first_token_ns, r.number(14));
          degenerate += r.integer(12);
          return true;
        });
    EXPECT_EQ(i, data.samples.size());
    EXPECT_GT(i, 50u);
    EXPECT_GT(degenerate, 0);
  }
}

TEST_F(RunCountsTest, CountsAreThoseOfTheViews) {
  const int64_t run = fill(3);
  // Trees deeper than what is counted fast, and turns far apart.
  store_.execute(
      "UPDATE step SET drafted_depth = 300, accepted = 70 WHERE turn_id % 7 = 0 AND idx = 0");
  store_.execute("DELETE FROM generation WHERE id BETWEEN 40 AND 120");
  const RunData data = load_run(store_, run);
  const RunCounts counts = count_run(store_, data);
  std::map<ArmTask, std::pair<int64_t, int64_t>> generations, identity;
  int64_t faults = 0;
  store_.query("SELECT arm_id, task, fault, generations, failed FROM v_count", {},
               [&](const Row& r) {
                 if (r.text(2).empty())
                   generations[{r.integer(0), r.text(1)}] = {r.integer(3), r.integer(4)};
                 else
                   faults += r.integer(3);
                 return true;
               });
  store_.query("SELECT arm_id, task, compared, identical FROM v_identity WHERE fault = ''", {},
               [&](const Row& r) {
                 identity[{r.integer(0), r.text(1)}] = {r.integer(2), r.integer(3)};
                 return true;
               });
  EXPECT_EQ(data.generations.counts, generations);
  EXPECT_EQ(data.generations.identity, identity);
  EXPECT_EQ(data.generations.hidden_faults, faults);
  EXPECT_GT(faults, 0);
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
    store_.query(fmt::format("SELECT arm_id, task, {} AND fault = ''", columns), {},
                 [&](const Row& r) {
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

}  // namespace
}  // namespace evalrun::reports
