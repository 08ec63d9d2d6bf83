// Cells that two files have: which of the two measurements stays.
#include <fmt/format.h>

#include "engine/base/error.h"
#include "results/merge/merge_target.h"

namespace evalrun::results {

// Cells that the target has already. `takes_over`: the source's row stays instead of the target's.
void MergeTarget::find_doubles(MergeOutcome& outcome) {
  execute(
      "CREATE TEMP TABLE double (old INTEGER PRIMARY KEY, there INTEGER NOT NULL, same INTEGER NOT "
      "NULL, takes_over INTEGER NOT NULL); CREATE INDEX temp.double_there ON double (there);");
  if (number("SELECT EXISTS (SELECT 1 FROM main.generation)") == 0) return;
  const std::string machines =
      "LEFT JOIN main.machine there ON there.id = g.machine_id LEFT JOIN main.machine here ON "
      "here.id = m.new";
  execute(fmt::format(
      "INSERT INTO temp.double SELECT s.id, g.id, here.key IS there.key AND s.started = g.started "
      "AND s.total_ns = g.total_ns AND s.tokens_hash = g.tokens_hash AND s.steps_hash = "
      "g.steps_hash AND s.status = g.status, (s.status <> 'ok', s.started, s.total_ns, "
      "coalesce(here.key, '')) < (g.status <> 'ok', g.started, g.total_ns, coalesce(there.key, "
      "'')) "
      "FROM source.generation s {} JOIN main.generation g ON g.arm_id = a.new AND g.prompt_id = "
      "p.new AND g.repeat = s.repeat AND g.sample = s.sample {} WHERE s.run_id = {}",
      kMapped, machines, source_run_));
  execute("UPDATE temp.double SET takes_over = 0 WHERE same");
  refuse_other_tokens();
  outcome.copies += number("SELECT count(*) FROM temp.double WHERE same");
  outcome.twice += number("SELECT count(*) FROM temp.double WHERE NOT same");
  Statement s(
      db_, doing_,
      fmt::format("SELECT r.label, q.name, s.repeat, s.sample, coalesce(here.name, 'unknown') "
                  "|| ' ' || s.started, coalesce(there.name, 'unknown') || ' ' || g.started, "
                  "d.takes_over FROM temp.double d JOIN source.generation s ON s.id = d.old "
                  "{} JOIN main.generation g ON g.id = d.there {} JOIN main.arm r ON r.id = "
                  "g.arm_id JOIN main.prompt q ON q.id = g.prompt_id WHERE NOT d.same ORDER "
                  "BY d.old",
                  kMapped, machines));
  while (outcome.first_twice.size() < MergeOutcome::kNamed && s.step()) {
    const bool takes_over = sqlite3_column_int64(s.get(), 6) != 0;
    outcome.first_twice.push_back({.arm = text_at(s, 0),
                                   .prompt = text_at(s, 1),
                                   .repeat = sqlite3_column_int64(s.get(), 2),
                                   .sample = sqlite3_column_int64(s.get(), 3),
                                   .kept = text_at(s, takes_over ? 4 : 5),
                                   .left_out = text_at(s, takes_over ? 5 : 4)});
  }
}

void MergeTarget::refuse_other_tokens() {
  Statement s(
      db_, doing_,
      "SELECT r.label, q.name, g.repeat, g.sample, coalesce(m.name, 'an unknown machine') FROM "
      "temp.double d JOIN source.generation s ON s.id = d.old JOIN main.generation g ON g.id "
      "= d.there JOIN main.arm r ON r.id = g.arm_id JOIN main.prompt q ON q.id = g.prompt_id "
      "LEFT JOIN main.machine m ON m.id = g.machine_id WHERE s.tokens_hash <> g.tokens_hash "
      "AND s.status = 'ok' AND g.status = 'ok' AND NOT (json_valid(r.settings) AND "
      "json_extract(r.settings, '$.sampled') IS 'same distribution' AND "
      "json_extract(r.settings, '$.steps') IS NOT NULL) ORDER BY d.old LIMIT 1");
  if (!s.step()) return;
  throw base::Error(
      base::ExitCode::kCorrectness,
      fmt::format(
          "{}: other tokens than another file has, measured by {}: arm {}, prompt {}, repeat "
          "{}, sample {}",
          doing_, text_at(s, 4), text_at(s, 0), text_at(s, 1), sqlite3_column_int64(s.get(), 2),
          sqlite3_column_int64(s.get(), 3)),
      "one of the machines computes wrongly, or its model is another one: `evalrun verify` on "
      "each, "
      "then measure the wrong shard again");
}

// Scores that only the beaten one has go on with the other, where they are of the same tokens.
void MergeTarget::remove_beaten() {
  const int64_t least = number(fmt::format(
      "SELECT coalesce(min(id), 0) FROM source.generation WHERE run_id = {}", source_run_));
  shift_ = number("SELECT coalesce(max(id), 0) FROM main.generation") + 1 - least;
  if (number("SELECT count(*) FROM temp.double WHERE takes_over") == 0) return;
  const char* beaten = "SELECT there FROM temp.double WHERE takes_over";
  for (const char* table : kOfTurn)
    execute(
        fmt::format("DELETE FROM main.{} WHERE turn_id IN (SELECT id FROM main.turn WHERE "
                    "generation_id IN ({}))",
                    table, beaten));
  execute(fmt::format(
      "UPDATE main.score SET generation_id = (SELECT d.old + {0} FROM temp.double d WHERE d.there "
      "= main.score.generation_id) WHERE generation_id IN (SELECT d.there FROM temp.double d JOIN "
      "source.generation s ON s.id = d.old JOIN main.generation g ON g.id = d.there WHERE "
      "d.takes_over AND s.tokens_hash = g.tokens_hash); DELETE FROM main.score WHERE "
      "generation_id IN ({1}); DELETE FROM main.clock WHERE "
      "generation_id IN ({1}); DELETE FROM main.gpu WHERE generation_id IN ({1}); DELETE FROM "
      "main.turn WHERE generation_id IN ({1}); DELETE FROM main.generation WHERE id IN ({1});",
      shift_, beaten));
}

}  // namespace evalrun::results
