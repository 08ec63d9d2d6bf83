#include "tests/reports/data/scale_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/results/synthetic.h"

namespace evalrun::tests {
namespace {

using results::ResultStore;

constexpr int kTasks = 5;
constexpr int kPromptsAtOnce = 500;  // of a run: bounds the temporary table

// 0 <= i < ?1
constexpr const char* kSeries =
    "WITH RECURSIVE series (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM series WHERE i + 1 < ?1) ";

// What a run of `shape` has of its own.
struct ScaleRun {
  std::string key;
  // Prompts that are stored, the first one's number; and of those with generations.
  int64_t prompts = 0, first_prompt = 0, first_measured = 0;
  int64_t slower_ns = 0;  // verification takes that much longer for every drafted row
};

void add_prompts(ResultStore& store, int64_t run_id, int64_t prompts, int64_t first) {
  store.execute(
      fmt::format("{} INSERT INTO prompt (run_id, key, task, name, category, language, "
                  "rendered_hash, turns, reference) "
                  "SELECT ?2, 'prompt-' || n, 'task-' || (n % {}), 'task/' || n, "
                  "CASE WHEN n % 2 THEN 'odd' ELSE 'even' END, '', 'beef', '[\"question\"]', '42' "
                  "FROM (SELECT i + ?3 AS n FROM series)",
                  kSeries, kTasks),
      {prompts, run_id, first});
}

// Generations of the prompts first <= id < last, and all that hangs on them.
void add_generations(ResultStore& store, int64_t run_id, int64_t first, int64_t last, int steps,
                     const ScaleRun& own) {
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
          "CASE depth WHEN 0 THEN 0 ELSE 150000 + noise END, 9900000 + (400000 + ?5) * depth + 8 * "
          "noise, "
          "1000 * depth, 100000 "
          "FROM (SELECT id, i, depth, noise, CASE depth WHEN 0 THEN 0 ELSE noise % 4 END AS "
          "accepted "
          "      FROM (SELECT g.id, i, CASE a.role WHEN 'method' THEN 4 ELSE 0 END AS depth, "
          "                   (((g.id + 977 * ?6) * 64 + i) * 2654435761 % 4294967296) / 65536 AS "
          "noise "
          "            FROM generation g JOIN arm a ON a.id = g.arm_id CROSS JOIN series "
          "            WHERE g.run_id = ?2 AND g.prompt_id >= ?3 AND g.prompt_id < ?4))",
          kSeries),
      {int64_t{steps}, run_id, first, last, own.slower_ns, own.first_measured});
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

int64_t add_run(ResultStore& store, const ScaleRun& own, const ScaleShape& shape) {
  results::RunRecord r;
  r.key = r.label = own.key;
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
    results::ArmRecord record = arm_record({}, arm);
    if (a > 1) record.params = fmt::format("k={}", a);  // a merge knows arms by them
    store.add_arm(run_id, record);
  }
  store.execute("BEGIN");
  add_prompts(store, run_id, own.prompts, own.first_prompt);
  int64_t first = 0;
  store.query("SELECT min(id) FROM prompt WHERE run_id = ?", {run_id},
              [&](const results::Row& row) {
                first = row.integer(0) + own.first_measured - own.first_prompt;
                return false;
              });
  for (int done = 0; done < shape.prompts; done += kPromptsAtOnce)
    add_generations(store, run_id, first + done,
                    first + std::min(done + kPromptsAtOnce, shape.prompts), shape.steps, own);
  store.execute("UPDATE generation SET tally = generation_tally(id) WHERE run_id = ?", {run_id});
  store.execute("COMMIT");
  store.finish_run(run_id);
  return run_id;
}

// Rows are drawn in a table of their own, and no file is waited for.
class Drawing {
 public:
  explicit Drawing(ResultStore& store) : store_(store) {
    store_.execute("PRAGMA synchronous = OFF");
    store_.execute("PRAGMA temp_store = MEMORY");
    store_.execute(
        "CREATE TEMP TABLE drawn (turn_id, idx, rows, depth, accepted, emitted, draft_ns, "
        "verify_ns, commit_ns, other_ns)");
  }
  ~Drawing() { store_.execute("DROP TABLE drawn"); }
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

 private:
  ResultStore& store_;
};

}  // namespace

void fill_at_scale(ResultStore& store, const ScaleShape& shape) {
  const Drawing drawing(store);
  for (int number = 1; number <= shape.runs; ++number)
    add_run(store, {.key = fmt::format("run-{}", number), .prompts = shape.prompts}, shape);
}

void fill_shard(ResultStore& store, const ScaleShape& shape, const results::Shard& shard,
                bool own_prompts) {
  const Drawing drawing(store);
  const bool other_processor = shard.number % 3 == 0;
  const int64_t all = int64_t{shape.prompts} * shard.count;
  ScaleRun own{.key = "sharded", .prompts = all};
  own.first_measured = int64_t{shape.prompts} * (shard.number - 1);
  if (own_prompts) own.prompts = shape.prompts, own.first_prompt = own.first_measured;
  if (other_processor) own.slower_ns = 300'000;
  const int64_t run = add_run(store, own, shape);
  store.add_plan(run,
                 {.key = "plan", .arms = shape.arms, .prompts = all, .repeats = 1, .samples = 1});
  std::vector<std::pair<int64_t, int>> numbers;
  store.query("SELECT id FROM prompt WHERE run_id = ? ORDER BY id", {run},
              [&](const results::Row& row) {
                const auto number = own.first_prompt + std::ssize(numbers);
                numbers.emplace_back(row.integer(0), 1 + static_cast<int>(number / shape.prompts));
                return true;
              });
  store.add_shard(run, shard, numbers);
  const int64_t machine =
      store.add_machine(run, {.key = fmt::format("machine-{}", shard.number),
                              .name = fmt::format("node-{:04}", shard.number),
                              .facts = {{"cpu", other_processor ? "Another CPU" : "Some CPU"}}});
  store.execute("UPDATE generation SET machine_id = ?", {machine});
}

}  // namespace evalrun::tests
