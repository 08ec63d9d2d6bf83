// The end of a merge: what holds for the whole run, and what it lacks.
#include <fmt/format.h>

#include <map>

#include "results/merge/merge_target.h"

namespace evalrun::results {
namespace {

// Prompts, by how many generations they have, that lack some of so many.
constexpr const char* kGaps =
    "SELECT p.id, p.task, p.name, count(g.id) AS stored FROM main.prompt p LEFT JOIN "
    "main.generation "
    "g ON g.prompt_id = p.id GROUP BY p.id HAVING stored < {}";

}  // namespace

void MergeTarget::finish(const std::vector<MergeSource>& sources, MergeOutcome& outcome) {
  for (const std::string& index : indexes_) execute(index);
  settle_environment();
  outcome.run_id = number("SELECT id FROM main.run");
  outcome.stored = number("SELECT count(*) FROM main.generation");
  outcome.runs = static_cast<int64_t>(sources.size());
  outcome.plan = sources.front().plan;
  {
    Statement s(db_, doing_, "SELECT key FROM main.run");
    if (s.step()) outcome.key = text_at(s, 0);
    Statement m(db_, doing_, "SELECT name FROM main.machine ORDER BY name, key");
    while (m.step()) outcome.machines.push_back(text_at(m, 0));
  }
  find_gaps(outcome);
  find_missing_shards(outcome);
  for (const MergeSource& source : sources)
    if (!source.shards.empty() && outcome.commands.empty())
      outcome.commands.push_back(source.run.command);
  // When the last generation began: the same whatever is merged first.
  if (outcome.complete())
    execute("UPDATE main.run SET finished = (SELECT max(started) FROM main.generation)");
  execute("PRAGMA optimize");
}

// A run of several machines has the facts that all of them agree about. What is not known of
// machines - a server's model - stays.
void MergeTarget::settle_environment() {
  execute(
      "DELETE FROM main.environment WHERE name IN (SELECT name FROM main.machine_fact);"
      "INSERT OR REPLACE INTO main.environment (run_id, name, value) SELECT r.id, f.name, "
      "min(f.value) FROM main.run r, main.machine_fact f GROUP BY f.name HAVING count(DISTINCT "
      "f.value) = 1 AND count(*) = (SELECT count(*) FROM main.machine);");
}

void MergeTarget::find_gaps(MergeOutcome& outcome) {
  const int64_t each = outcome.plan.arms * outcome.plan.repeats * outcome.plan.samples;
  const std::string gaps = fmt::format(fmt::runtime(kGaps), each);
  execute(fmt::format("CREATE TEMP TABLE gap AS {}", gaps));
  // Prompts that no file has yet: every one of them ended before it had them all.
  outcome.incomplete = number("SELECT count(*) FROM temp.gap") + outcome.plan.prompts -
                       number("SELECT count(*) FROM main.prompt");
  Statement s(db_, doing_, "SELECT id, task, name, stored FROM temp.gap ORDER BY id LIMIT ?");
  s << static_cast<int64_t>(MergeOutcome::kNamed);
  while (s.step()) {
    MergeGap gap{
        .task = text_at(s, 1), .prompt = text_at(s, 2), .stored = sqlite3_column_int64(s.get(), 3)};
    Statement in(db_, doing_,
                 "SELECT number, count FROM main.shard_prompt WHERE prompt_id = ? ORDER BY count");
    in << int64_t{sqlite3_column_int64(s.get(), 0)};
    while (in.step())
      gap.shards.push_back({sqlite3_column_int(in.get(), 0), sqlite3_column_int(in.get(), 1)});
    outcome.first_gaps.push_back(std::move(gap));
  }
}

void MergeTarget::find_missing_shards(MergeOutcome& outcome) {
  Statement s(
      db_, doing_,
      "SELECT p.number, p.count, count(*), count(g.id), EXISTS (SELECT 1 FROM main.shard h "
      "WHERE h.number = p.number AND h.count = p.count) FROM main.shard_prompt p LEFT JOIN "
      "temp.gap g ON g.id = p.prompt_id GROUP BY p.count, p.number HAVING count(g.id) > 0 ORDER BY "
      "p.count, p.number");
  while (s.step())
    outcome.missing.push_back(
        {.shard = {sqlite3_column_int(s.get(), 0), sqlite3_column_int(s.get(), 1)},
         .prompts = sqlite3_column_int64(s.get(), 2),
         .incomplete = sqlite3_column_int64(s.get(), 3),
         .here = sqlite3_column_int(s.get(), 4) != 0});
}

}  // namespace evalrun::results
