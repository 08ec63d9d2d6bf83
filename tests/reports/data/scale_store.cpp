#include "tests/reports/data/scale_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tests/results/synthetic.h"

namespace evalrun::tests {
namespace {

using results::ResultStore;

constexpr int kTasks = 5;
constexpr int kPromptsAtOnce = 500;  // of a run: bounds the temporary table

// 0 <= i < ?1
constexpr const char* kSeries =
    "WITH RECURSIVE series (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM series WHERE i + 1 < ?1) ";

void add_prompts(ResultStore& store, int64_t run_id, int prompts) {
  store.execute(
      fmt::format("{} INSERT INTO prompt (run_id, key, task, name, category, language, "
                  "rendered_hash, turns, reference) "
                  "SELECT ?2, 'prompt-' || i, 'task-' || (i % {}), 'task/' || i, "
                  "CASE WHEN i % 2 THEN 'odd' ELSE 'even' END, '', 'beef', '[\"question\"]', '42' "
                  "FROM series",
                  kSeries, kTasks),
      {int64_t{prompts}, run_id});
}

// Generations of the prompts first <= id < last, and all that hangs on them.
void add_generations(ResultStore& store, int64_t run_id, int64_t first, int64_t last, int steps) {
  store.execute(
      "INSERT INTO generation (run_id, arm_id, prompt_id, repeat, sample, seed, block, slot, "
      "status, fault, tokens_hash, steps_hash, total_ns, tokenize_ns, detokenize_ns, started, "
      "distinct_share, cycle) "
      "SELECT p.run_id, a.id, p.id, 0, 0, 7, p.id, a.id, 'ok', '', substr(hex(p.key) || "
      "hex(zeroblob(16)), 1, "
      "32), substr(hex(a.label) || hex(zeroblob(16)), 1, 32), 300000000, 1000, 1000, "
      "'2026-01-02T03:04:05Z', 0.9, 0 "
      "FROM prompt p JOIN arm a ON a.run_id = p.run_id "
      "WHERE p.run_id = ? AND p.id >= ? AND p.id < ? ORDER BY p.id, a.id",
      {run_id, first, last});
  store.execute(
      "INSERT INTO clock SELECT id, 3000.0, 600000000, 590000000, 5000000, 0, 3, NULL FROM "
      "generation "
      "WHERE run_id = ? AND prompt_id >= ? AND prompt_id < ?",
      {run_id, first, last});
  // A turn has its generation's number. 2654435761 = 2^32 / golden ratio (Knuth's hash).
  store.execute(
      fmt::format(
          "{} INSERT INTO drawn SELECT id, i, 1 + depth, depth, accepted, accepted + 1, "
          "CASE depth WHEN 0 THEN 0 ELSE 150000 + noise END, 9900000 + 400000 * depth + 8 * noise, "
          "1000 * depth, 100000 "
          "FROM (SELECT id, i, depth, noise, CASE depth WHEN 0 THEN 0 ELSE noise % 4 END AS "
          "accepted "
          "      FROM (SELECT g.id, i, CASE a.role WHEN 'method' THEN 4 ELSE 0 END AS depth, "
          "                   ((g.id * 64 + i) * 2654435761 % 4294967296) / 65536 AS noise "
          "            FROM generation g JOIN arm a ON a.id = g.arm_id CROSS JOIN series "
          "            WHERE g.run_id = ?2 AND g.prompt_id >= ?3 AND g.prompt_id < ?4))",
          kSeries),
      {int64_t{steps}, run_id, first, last});
  store.execute(
      "INSERT INTO turn SELECT turn_id, turn_id, 0, 40, 1 + sum(emitted), count(*), sum(depth), "
      "sum(depth), sum(accepted), sum(emitted), count(*), sum(rows), sum(depth = 0), "
      "sum(draft_ns), sum(verify_ns), sum(commit_ns), sum(other_ns), 50000000, 0, "
      "sum(draft_ns + verify_ns + commit_ns + other_ns), 'limit', zeroblob(4 * (1 + "
      "sum(emitted))), "
      "printf('%.*c', 4 * (1 + sum(emitted)), 'x') FROM drawn GROUP BY turn_id");
  store.execute(
      "INSERT INTO step SELECT turn_id, idx, rows, depth, depth, accepted, emitted, 1, draft_ns, "
      "verify_ns, commit_ns, other_ns FROM drawn ORDER BY turn_id, idx");
  // A chain: a node is tested when the one before it was accepted.
  store.execute(
      "INSERT INTO node SELECT turn_id, d, 0, sum(accepted >= d - 1), sum(accepted >= d) "
      "FROM drawn CROSS JOIN (SELECT 1 AS d UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT "
      "4) WHERE depth > 0 GROUP BY turn_id, d HAVING sum(accepted >= d - 1) > 0");
  store.execute(
      "INSERT INTO score SELECT DISTINCT turn_id, 'exact', '1', turn_id % 2, '42', 'ok', '', 0, "
      "'{}' FROM drawn ORDER BY turn_id");
  store.execute("DELETE FROM drawn");
}

void add_run(ResultStore& store, int number, const ScaleShape& shape) {
  results::RunRecord r;
  r.key = r.label = fmt::format("run-{}", number);
  r.suite = "scale";
  r.suite_json = "{}";
  r.commit = "0123456789ab";
  r.version = "0.1.0";
  r.started = "2026-01-02T03:04:05Z";
  r.environment = {{"cpu", "Some CPU"}};
  const int64_t run_id = store.add_run(r);
  for (int a = 0; a < shape.arms; ++a) {
    SyntheticArm arm;
    if (a == 1) arm.label = "ar (A/A)", arm.role = "aa";
    if (a > 1) arm.label = fmt::format("pld:k={}", a), arm.method = "pld", arm.role = "method";
    store.add_arm(run_id, arm_record({}, arm));
  }
  store.execute("BEGIN");
  add_prompts(store, run_id, shape.prompts);
  int64_t first = 0;
  store.query("SELECT min(id) FROM prompt WHERE run_id = ?", {run_id},
              [&](const results::Row& row) {
                first = row.integer(0);
                return false;
              });
  for (int done = 0; done < shape.prompts; done += kPromptsAtOnce)
    add_generations(store, run_id, first + done,
                    first + std::min(done + kPromptsAtOnce, shape.prompts), shape.steps);
  store.execute("UPDATE generation SET tally = generation_tally(id) WHERE run_id = ?", {run_id});
  store.execute("COMMIT");
  store.finish_run(run_id);
}

}  // namespace

void fill_at_scale(ResultStore& store, const ScaleShape& shape) {
  store.execute("PRAGMA synchronous = OFF");
  store.execute("PRAGMA temp_store = MEMORY");
  store.execute(
      "CREATE TEMP TABLE drawn (turn_id, idx, rows, depth, accepted, emitted, draft_ns, verify_ns, "
      "commit_ns, other_ns)");
  for (int number = 1; number <= shape.runs; ++number) add_run(store, number, shape);
  store.execute("DROP TABLE drawn");
}

}  // namespace evalrun::tests
