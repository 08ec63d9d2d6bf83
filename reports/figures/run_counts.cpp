#include "reports/figures/run_counts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "reports/data/arm_tasks.h"

namespace evalrun::reports {

namespace {

using results::Row;

// Counts by two numbers, which are small. Larger ones are counted, too, only slower.
template <typename Count>
class Grid {
 public:
  Count& at(int64_t row, int64_t column) {
    if (row < 0 || column < 0 || row >= kSide || column >= kSide) return others_[{row, column}];
    const auto place = static_cast<size_t>(row * kSide + column);
    if (place >= cells_.size()) cells_.resize(static_cast<size_t>((row + 1) * kSide));
    return cells_[place];
  }
  bool empty() const { return cells_.empty() && others_.empty(); }
  // Ascending, without zeros.
  std::map<std::pair<int64_t, int64_t>, Count> all() const {
    auto list = others_;
    for (size_t i = 0; i < cells_.size(); ++i)
      if (cells_[i] != Count())
        list[{static_cast<int64_t>(i) / kSide, static_cast<int64_t>(i) % kSide}] = cells_[i];
    return list;
  }

 private:
  static constexpr int64_t kSide = 128;
  std::vector<Count> cells_;
  std::map<std::pair<int64_t, int64_t>, Count> others_;
};

// Turns of finished generations of a run, and the place of each one's arm and data set.
struct PlacedTurn {
  int64_t id;
  size_t place;
};
using PlacedTurns = std::vector<PlacedTurn>;  // by id

PlacedTurns turns_of(const results::ResultStore& store, const RunData& data,
                     const ArmTasks& places) {
  PlacedTurns turns;
  store.query(
      "SELECT t.id, g.arm_id, g.prompt_id FROM generation g CROSS JOIN turn t WHERE g.run_id = ? "
      "AND g.status = 'ok' AND g.fault = '' AND t.generation_id = g.id",
      {data.run.id}, [&](const Row& r) {
        turns.push_back({r.integer(0), places.of(r.integer(1), r.integer(2))});
        return true;
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

void count_steps(const results::ResultStore& store, const RunData& data, const ArmTasks& places,
                 const PlacedTurns& turns, RunCounts& counts) {
  std::vector<bool> drafts(places.size());
  for (const ArmInfo& arm : data.arms)
    if (arm.drafts())
      for (const size_t place : places.of_arm(arm.id)) drafts[place] = true;
  std::vector<Grid<int64_t>> sums(places.size());
  for_rows_of(store, turns, "step", "drafted_depth, accepted, emitted",
              [&](size_t place, const Row& r) {
                if (!drafts[place]) return;
                const int64_t accepted = r.integer(2);
                const bool cut = r.integer(3) <= accepted;
                ++sums[place].at(r.integer(1), 2 * accepted + (cut ? 1 : 0));
              });
  for (const auto& [key, of] : places.by_name(std::move(sums)))
    for (const auto& [step, n] : of.all()) {
      const int64_t cut = ((step.second % 2) + 2) % 2;
      counts.steps[key].push_back({step.first, (step.second - cut) / 2, n, cut == 1});
    }
}

void count_nodes(const results::ResultStore& store, const ArmTasks& places,
                 const PlacedTurns& turns, RunCounts& counts) {
  using Outcome = std::array<int64_t, 2>;  // tested, accepted
  std::vector<Grid<Outcome>> sums(places.size());
  for_rows_of(store, turns, "node", "depth, rank, tested, accepted",
              [&](size_t place, const Row& r) {
                Outcome& n = sums[place].at(r.integer(1), r.integer(2));
                n[0] += r.integer(3), n[1] += r.integer(4);
              });
  for (const auto& [key, nodes] : places.by_name(std::move(sums)))
    for (const auto& [place, n] : nodes.all())
      counts.nodes[key].push_back({place.first, place.second, n[0], n[1]});
}

}  // namespace

RunCounts count_run(const results::ResultStore& store, const RunData& data) {
  const ArmTasks places(data.arms, data.prompts);
  const PlacedTurns turns = turns_of(store, data, places);
  RunCounts counts;
  count_steps(store, data, places, turns, counts);
  count_nodes(store, places, turns, counts);
  return counts;
}

}  // namespace evalrun::reports
