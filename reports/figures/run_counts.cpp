#include "reports/figures/run_counts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tuple>
#include <utility>

#include "reports/data/arm_tasks.h"

namespace evalrun::reports {

namespace {

using results::Row;

// CROSS JOIN: SQLite keeps the order, run by run and turn by turn.
void count_steps(const results::ResultStore& store, const RunData& data, const ArmTasks& places,
                 RunCounts& counts) {
  std::vector<int64_t> arms;
  for (const ArmInfo& arm : data.arms)
    if (arm.drafts()) arms.push_back(arm.id);
  if (arms.empty()) return;
  using Step = std::tuple<int64_t, int64_t, bool>;
  std::vector<std::map<Step, int64_t>> sums(places.size());
  store.query(
      fmt::format("SELECT g.arm_id, g.prompt_id, s.drafted_depth, s.accepted, s.emitted <= "
                  "s.accepted FROM generation g CROSS JOIN turn t CROSS JOIN step s "
                  "WHERE g.run_id = ? AND +g.arm_id IN ({}) AND g.status = 'ok' AND g.fault = '' "
                  "AND t.generation_id = g.id AND s.turn_id = t.id",
                  fmt::join(arms, ", ")),
      {data.run.id}, [&](const Row& r) {
        ++sums[places.of(r.integer(0), r.integer(1))]
              [{r.integer(2), r.integer(3), r.integer(4) != 0}];
        return true;
      });
  for (const auto& [key, of] : places.by_name(std::move(sums)))
    for (const auto& [step, n] : of)
      counts.steps[key].push_back({std::get<0>(step), std::get<1>(step), n, std::get<2>(step)});
}

void count_nodes(const results::ResultStore& store, const RunData& data, const ArmTasks& places,
                 RunCounts& counts) {
  using Outcome = std::pair<int64_t, int64_t>;  // tested, accepted
  std::vector<std::map<std::pair<int64_t, int64_t>, Outcome>> sums(places.size());
  store.query(
      "SELECT g.arm_id, g.prompt_id, n.depth, n.rank, n.tested, n.accepted "
      "FROM generation g CROSS JOIN turn t CROSS JOIN node n "
      "WHERE g.run_id = ? AND g.status = 'ok' AND g.fault = '' "
      "AND t.generation_id = g.id AND n.turn_id = t.id",
      {data.run.id}, [&](const Row& r) {
        auto& [tested, accepted] =
            sums[places.of(r.integer(0), r.integer(1))][{r.integer(2), r.integer(3)}];
        tested += r.integer(4), accepted += r.integer(5);
        return true;
      });
  for (const auto& [key, nodes] : places.by_name(std::move(sums)))
    for (const auto& [place, n] : nodes)
      counts.nodes[key].push_back({place.first, place.second, n.first, n.second});
}

}  // namespace

RunCounts count_run(const results::ResultStore& store, const RunData& data) {
  const ArmTasks places(data.arms, data.prompts);
  RunCounts counts;
  count_steps(store, data, places, counts);
  count_nodes(store, data, places, counts);
  return counts;
}

}  // namespace evalrun::reports
