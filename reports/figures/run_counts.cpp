#include "reports/figures/run_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "reports/data/arm_tasks.h"
#include "reports/data/generations.h"
#include "reports/data/outcome_sums.h"

namespace evalrun::reports {

namespace {

using results::Row;

// Turns of finished generations of a run, and the place of each one's arm and data set.
struct PlacedTurn {
  int64_t id;
  size_t place;
};
using PlacedTurns = std::vector<PlacedTurn>;  // by id

PlacedTurns turns_of(const results::ResultStore& store, const RunData& data,
                     const ArmTasks& places) {
  PlacedTurns turns;
  for_generation_rows(store, data, "turn", "turn.generation_id, turn.id",
                      [&](const Generation& g, const Row& r) {
                        turns.push_back({r.integer(1), places.of(g.arm_id, g.prompt_id)});
                      });
  std::sort(turns.begin(), turns.end(),
            [](const PlacedTurn& a, const PlacedTurn& b) { return a.id < b.id; });
  return turns;
}

// Rows of a table that is sorted by turn: all from the run's first turn to its last one are read in
// the order they lie in the file, but for stretches of other runs. `columns` after turn_id; `visit`
// gets the place of the row's arm and data set.
template <typename Visit>
void for_rows_of(const results::ResultStore& store, const PlacedTurns& turns,
                 const std::string& table, const std::string& columns, Visit visit) {
  if (turns.empty()) return;
  const auto read = [&](size_t first, size_t last) {
    size_t at = first;
    store.query(
        fmt::format("SELECT turn_id, {} FROM {} WHERE turn_id BETWEEN ? AND ?", columns, table),
        {turns[first].id, turns[last].id}, [&](const Row& r) {
          const int64_t id = r.integer(0);
          while (at < last && turns[at].id < id) ++at;
          if (turns[at].id == id) visit(turns[at].place, r);
          return true;
        });
  };
  // Stretches without much between them that is not the run's.
  constexpr int64_t kGap = 64;
  size_t first = 0;
  for (size_t i = 1; i <= turns.size(); ++i)
    if (i == turns.size() || turns[i].id - turns[i - 1].id > kGap) {
      read(first, i - 1);
      first = i;
    }
}

}  // namespace

RunCounts count_run(const results::ResultStore& store, const RunData& data) {
  if (data.generations.outcomes) return *data.generations.outcomes;
  const ArmTasks places(data.arms, data.prompts);
  const PlacedTurns turns = turns_of(store, data, places);
  OutcomeSums sums(data.arms, places);
  for_rows_of(store, turns, "step", "drafted_depth, accepted, emitted",
              [&](size_t place, const Row& r) {
                const int64_t accepted = r.integer(2);
                const bool cut = r.integer(3) <= accepted;
                sums.add_steps(place, r.integer(1), 2 * accepted + (cut ? 1 : 0), 1);
              });
  for_rows_of(store, turns, "node", "depth, rank, tested, accepted",
              [&](size_t place, const Row& r) {
                sums.add_node(place, r.integer(1), r.integer(2), r.integer(3), r.integer(4));
              });
  return std::move(sums).by_name(places);
}

}  // namespace evalrun::reports
