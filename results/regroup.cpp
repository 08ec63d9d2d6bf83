#include "results/regroup.h"

#include <fmt/format.h>

namespace evalrun::results {

std::unique_ptr<ResultStore> regrouped(const ResultStore& store, int64_t run_id, Axis axis) {
  auto copy = std::make_unique<ResultStore>(":memory:");
  copy->execute("ATTACH DATABASE ? AS source", {store.path()});
  copy->execute("INSERT INTO main.run SELECT * FROM source.run WHERE id = ?", {run_id});
  for (const char* table : {"environment", "arm"})
    copy->execute(
        fmt::format("INSERT INTO main.{0} SELECT * FROM source.{0} WHERE run_id = ?", table),
        {run_id});
  const char* column = axis == Axis::kCategory ? "category" : "language";
  copy->execute(
      fmt::format(
          "INSERT INTO main.prompt (id, run_id, key, task, name, category, language, "
          "rendered_hash, turns, reference) SELECT id, run_id, key, "
          "CASE {0} WHEN '' THEN task ELSE task || ' / ' || {0} END, name, category, language, "
          "rendered_hash, turns, reference FROM source.prompt WHERE run_id = ?",
          column),
      {run_id});
  // By name: a migrated file has the columns in another order.
  const std::string columns =
      "id, run_id, arm_id, prompt_id, repeat, sample, seed, block, slot, status, fault, "
      "tokens_hash, "
      "steps_hash, total_ns, tokenize_ns, detokenize_ns, started";
  copy->execute(fmt::format("INSERT INTO main.generation ({0}) SELECT {0} FROM source.generation "
                            "WHERE run_id = ?",
                            columns),
                {run_id});
  copy->execute(
      "INSERT INTO main.turn SELECT t.* FROM source.turn t JOIN source.generation g ON g.id = "
      "t.generation_id WHERE g.run_id = ?",
      {run_id});
  for (const char* table : {"step", "node"})
    copy->execute(
        fmt::format("INSERT INTO main.{0} SELECT s.* FROM source.{0} s JOIN main.turn t ON t.id = "
                    "s.turn_id",
                    table));
  copy->execute(
      "INSERT INTO main.score SELECT s.* FROM source.score s JOIN main.generation g ON g.id = "
      "s.generation_id");
  copy->execute("INSERT INTO main.certificate SELECT * FROM source.certificate");
  copy->execute("DETACH DATABASE source");
  return copy;
}

}  // namespace evalrun::results
