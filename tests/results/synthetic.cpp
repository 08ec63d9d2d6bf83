#include "tests/results/synthetic.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "engine/base/rng.h"

namespace evalrun::tests {

using namespace results;

std::vector<SyntheticArm> usual_arms() {
  SyntheticArm ar, aa, pld;
  aa.label = "ar (A/A)";
  aa.role = "aa";
  pld.label = "pld:k=4";
  pld.method = "pld";
  pld.role = "method";
  pld.accepted = {3, 1, 0, 2};
  pld.depth = 4;
  pld.draft_ns = 200'000;
  pld.verify_ns = 11'500'000;
  pld.commit_ns = 200'000;
  pld.other_ns = 100'000;
  return {ar, aa, pld};
}

std::vector<SyntheticArm> arms_with_a_tuned_target() {
  std::vector<SyntheticArm> arms = usual_arms();
  SyntheticArm plain, space = arms.back();
  plain.label = plain.method = "ar_tuned";
  plain.role = "method";
  plain.verify_ns = 7'900'000;
  space.label = space.method = "space";
  plain.model_hash = space.model_hash = "tuned";
  arms.push_back(plain);
  arms.push_back(space);
  return arms;
}

ArmRecord arm_record(const SyntheticRun& run, const SyntheticArm& a) {
  ArmRecord r;
  r.key = "arm-" + a.label;
  r.label = a.label;
  r.method = a.method;
  r.method_version = "1";
  r.role = a.role;
  r.lossless = a.lossless;
  r.model = "tiny-model";
  r.model_hash = a.model_hash;
  r.dtype = "f32";
  r.isa = run.isa;
  r.device = a.device;
  r.threads = run.threads;
  r.batch = a.batch;
  r.temperature = a.temperature;
  r.settings = a.settings;
  r.max_new = 64;
  r.weight_bytes = 1000;
  return r;
}

PromptRecord prompt_record(const std::string& task, int i) {
  PromptRecord p;
  p.key = fmt::format("prompt-{}-{}", task, i);
  p.task = task;
  p.id = fmt::format("{}/{}", task, i);
  p.rendered_hash = "beef";
  p.turns = {fmt::format("question {}", i)};
  return p;
}

GenerationRecord generation(const SyntheticRun& run, const SyntheticArm& a, int prompt, int repeat,
                            int sample) {
  GenerationRecord g;
  g.repeat = repeat;
  g.sample = sample;
  g.seed = base::combine_seeds({7, static_cast<uint64_t>(prompt), static_cast<uint64_t>(sample)});
  g.fault = a.fault;
  g.started = "2026-01-02T03:04:05Z";
  TurnRecord t;
  const int n = run.tokens + 4 * prompt;
  for (int i = 0; i < n; ++i)
    t.tokens.push_back(static_cast<int32_t>(base::mix64(g.seed + static_cast<uint64_t>(i)) % 1000));
  t.n_prompt_tokens = 10;
  t.prefill_ns = 50'000'000;
  for (int d = 1; d <= a.depth; ++d) t.nodes.push_back({.depth = d});
  for (int left = n - 1, k = 0; left > 0; ++k) {
    StepRecord s;
    s.drafted = s.drafted_depth = a.depth;
    s.rows = 1 + a.depth;
    const int accepted = a.accepted[static_cast<size_t>(k) % a.accepted.size()];
    s.emitted = std::min(left, accepted + 1);
    s.accepted = std::min(accepted, s.emitted);  // the limit cuts the target's token first
    s.draft_ns = a.draft_ns, s.verify_ns = a.verify_ns;
    s.commit_ns = a.commit_ns, s.other_ns = a.other_ns;
    t.decode_ns += s.draft_ns + s.verify_ns + s.commit_ns + s.other_ns;
    left -= s.emitted;
    // A chain: a node is tested when the one before it was accepted.
    for (int d = 1; d <= std::min(a.depth, accepted + 1); ++d) {
      NodeCount& node = t.nodes[static_cast<size_t>(d - 1)];
      ++node.tested, node.accepted += d <= accepted;
    }
    t.steps.push_back(s);
  }
  std::erase_if(t.nodes, [](const NodeCount& node) { return node.tested == 0; });
  g.total_ns = t.prefill_ns + t.decode_ns;
  g.turns = {t};
  g.texts = {"text"};
  return g;
}

int64_t fill(ResultStore& store, const SyntheticRun& run) {
  // Thousands of generations without waiting for the disk; no test pulls the plug.
  store.execute("PRAGMA synchronous = OFF");
  RunRecord r;
  r.key = run.key;
  r.label = run.label;
  r.suite = "test";
  r.suite_json = "{}";
  r.commit = run.commit;
  r.version = "0.1.0";
  r.started = "2026-01-02T03:04:05Z";
  r.environment = run.environment;
  const int64_t run_id = store.add_run(r);
  std::vector<int64_t> arms;
  for (const SyntheticArm& a : run.arms) arms.push_back(store.add_arm(run_id, arm_record(run, a)));
  for (const std::string& task : run.tasks)
    for (int p = 0; p < run.prompts_per_task; ++p) {
      const int64_t prompt_id = store.add_prompt(run_id, prompt_record(task, p));
      for (size_t a = 0; a < arms.size(); ++a)
        for (int repeat = 0; repeat < run.repeats; ++repeat)
          for (int sample = 0; sample < run.samples; ++sample) {
            GenerationRecord g = generation(run, run.arms[a], p, repeat, sample);
            if (run.change) run.change(g, run.arms[a], p, repeat, sample);
            std::vector<ScoreRecord> scores;
            if (g.status == "ok")
              scores.push_back({.evaluator = "exact",
                                .version = "1",
                                .value = p == 3       ? std::nullopt
                                         : p % 2 == 0 ? std::optional(1.0)
                                                      : std::optional(0.0),
                                .extracted = "42",
                                .status = p == 3 ? "nothing found" : "ok",
                                .detail = ""});
            store.add_generation(run_id, arms[a], prompt_id, g, scores);
          }
    }
  store.finish_run(run_id);
  return run_id;
}

void to_version_12(ResultStore& store) {
  store.execute("DROP VIEW v_machine_speed");  // a column can only be dropped when no view uses it
  store.execute("ALTER TABLE generation DROP COLUMN machine_id");
  for (const char* table : {"machine_fact", "machine", "shard_prompt", "shard", "plan"})
    store.execute(fmt::format("DROP TABLE {}", table));
  store.execute("UPDATE meta SET value = '12' WHERE name = 'schema_version'");
}

void to_version_11(ResultStore& store) {
  to_version_12(store);
  for (const char* view : {"v_endpoint_turn", "v_accounting"})
    store.execute(fmt::format("DROP VIEW {}", view));
  store.execute("DROP TABLE endpoint_turn");
  store.execute("UPDATE meta SET value = '11' WHERE name = 'schema_version'");
}

void to_version_10(ResultStore& store) {
  to_version_11(store);
  for (const char* view : {"v_batch_step", "v_batch_turn"})
    store.execute(fmt::format("DROP VIEW {}", view));
  store.execute("DROP TABLE batch_step");
  store.execute("DROP TABLE batch_turn");
  store.execute("UPDATE meta SET value = '10' WHERE name = 'schema_version'");
}

void without_tallies(ResultStore& store) {
  // A column can only be dropped when no trigger uses it.
  for (const char* table : {"turn", "step", "node"})
    for (const char* event : {"changed", "removed"})
      store.execute(fmt::format("DROP TRIGGER {}_{}", table, event));
  store.execute("ALTER TABLE generation DROP COLUMN tally");
}

void to_version_9(ResultStore& store) {
  to_version_10(store);
  store.execute("DROP VIEW v_clock");  // a column can only be dropped when no view uses it
  store.execute("DROP VIEW v_energy");
  store.execute("ALTER TABLE clock DROP COLUMN energy_mj");
  without_tallies(store);
  store.execute("UPDATE meta SET value = '9' WHERE name = 'schema_version'");
}

void to_version_8(ResultStore& store) {
  to_version_9(store);
  store.execute("ALTER TABLE prompt DROP COLUMN group_name");
  store.execute("UPDATE meta SET value = '8' WHERE name = 'schema_version'");
}

void to_version_7(ResultStore& store) {
  to_version_8(store);
  store.execute("DROP VIEW v_gpu");
  // As that version wrote it: SQLite keeps the text, comments too, and adds columns to it.
  store.execute(
      "CREATE TABLE gpu_7 (\n"
      "  generation_id INTEGER PRIMARY KEY REFERENCES generation (id) ON DELETE CASCADE,\n"
      "  temperature_c REAL,                       -- at the end, like power; NULL = not readable\n"
      "  power_w       REAL,\n"
      "  energy_mj     INTEGER,                    -- from beginning to end\n"
      "  slowed_by     TEXT NOT NULL               -- why its clock was below the maximum\n"
      ")");
  store.execute(
      "INSERT INTO gpu_7 SELECT generation_id, temperature_c, power_w, energy_mj, slowed_by FROM "
      "gpu");
  store.execute("DROP TABLE gpu");
  store.execute("ALTER TABLE gpu_7 RENAME TO gpu");
  store.execute("UPDATE meta SET value = '7' WHERE name = 'schema_version'");
}

void to_version_6(ResultStore& store) {
  to_version_8(store);
  store.execute("DROP TABLE gpu");
  store.execute("UPDATE meta SET value = '6' WHERE name = 'schema_version'");
}

void to_version_5(ResultStore& store) {
  to_version_6(store);
  std::vector<std::string> views;
  store.query("SELECT name FROM sqlite_schema WHERE type = 'view'", {}, [&](const Row& r) {
    views.push_back(r.text(0));
    return true;
  });
  // A column can only be dropped when no view uses it.
  for (const std::string& v : views) store.execute("DROP VIEW " + v);
  for (const char* column : {"distinct_share", "cycle", "asked"})
    store.execute(fmt::format("ALTER TABLE generation DROP COLUMN {}", column));
  store.execute("DROP TABLE divergence");
  store.execute("DROP TABLE clock");
  store.execute("UPDATE meta SET value = '5' WHERE name = 'schema_version'");
}

void to_version_2(ResultStore& store) {
  to_version_5(store);
  store.execute("ALTER TABLE turn DROP COLUMN undrafted");
  store.execute("DROP TABLE node");
  store.execute("DROP TABLE certificate");
  store.execute("UPDATE meta SET value = '2' WHERE name = 'schema_version'");
}

}  // namespace evalrun::tests
