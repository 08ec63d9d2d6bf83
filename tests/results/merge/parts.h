// Parts of a synthetic run, as several machines would have measured them.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "results/machines.h"
#include "results/store.h"
#include "tests/results/store_queries.h"
#include "tests/results/synthetic.h"

namespace evalrun::results {

struct Part {
  std::string machine = "host-a";
  Shard shard = {1, 1};        // 1 of 1: no shard
  std::set<int> prompts = {};  // measured; of a shard those with prompt % count + 1 = number
  std::string started = "2026-01-02T03:04:05Z";  // of its generations
  std::string isa = "avx512";
  std::function<void(GenerationRecord&, int prompt)> change = {};
};

inline constexpr int kPartPrompts = 9;

inline int shard_of_prompt(int prompt, int count) { return prompt % count + 1; }

// Prompts, repeats and arms as the whole run has them; generations of the part.
inline tests::SyntheticRun part_run(const Part& part) {
  tests::SyntheticRun run = usual();
  run.key = "plan";
  run.label = "whole";
  run.isa = part.isa;
  run.prompts_per_task = kPartPrompts;
  run.repeats = 2;
  run.change = [part](GenerationRecord& g, const tests::SyntheticArm& arm, int prompt, int repeat,
                      int) {
    g.started = part.started;
    g.block = prompt + kPartPrompts * repeat;
    g.slot = static_cast<int>(arm.label.size()) % 3;
    g.turns[0].divergences = {{.index = prompt, .found = 4, .gap = 0.5}};
    g.batch_call = 1 + prompt / 2;
    BatchTurnRecord& batch = g.turns[0].batch.emplace();
    batch.slot = prompt % 2, batch.first_token_ns = 31, batch.wall_ns = 41 + prompt;
    for (size_t i = 0; i < g.turns[0].steps.size(); ++i)
      batch.steps.push_back({.number = static_cast<int32_t>(i), .members = 2, .ns = 51 + prompt});
    g.clock = ClockRecord{.device_mhz = 2000, .available_ns = 9, .others_ns = prompt};
    g.gpu = GpuRecord{.energy_mj = 100 + prompt, .slowed_by = "heat"};
    if (part.change) part.change(g, prompt);
  };
  return run;
}

// Into a file of its own, which has other ids than the whole run.
inline void write_part(const std::string& path, const Part& part) {
  ResultStore store(path);
  const tests::SyntheticRun run = part_run(part);
  const int64_t id = tests::fill(store, run);
  std::string kept;
  for (int p = 0; p < kPartPrompts; ++p)
    if (part.prompts.empty() ? shard_of_prompt(p, part.shard.count) == part.shard.number
                             : part.prompts.contains(p))
      kept += fmt::format("{}'prompt-gsm8k-{}'", kept.empty() ? "" : ", ", p);
  store.execute(
      fmt::format("DELETE FROM generation WHERE prompt_id IN (SELECT id FROM prompt WHERE "
                  "key NOT IN ({}))",
                  kept));
  store.execute("UPDATE run SET finished = NULL, command = ?",
                {fmt::format("evalrun run x --shard {}/{}", part.shard.number, part.shard.count)});
  store.add_plan(id, {"plan", 3, kPartPrompts, 2, 1});
  const int64_t machine =
      store.add_machine(id, {"key of " + part.machine,
                             part.machine,
                             {{"cpu", "Some CPU"}, {"row_cost", "of " + part.machine}}});
  store.add_environment(id, "row_cost", "of " + part.machine);
  store.execute("UPDATE generation SET machine_id = ?", {machine});
  if (part.shard.count > 1) {
    std::vector<std::pair<int64_t, int>> numbers;
    store.query("SELECT id FROM prompt ORDER BY id", {}, [&](const Row& row) {
      numbers.emplace_back(row.integer(0),
                           shard_of_prompt(static_cast<int>(numbers.size()), part.shard.count));
      return true;
    });
    store.add_shard(id, part.shard, numbers);
  }
}

// All that was measured, by keys instead of ids. Numbers of calls are not in it: each process
// counts from 1.
inline std::string measured(const ResultStore& store) {
  const std::string cell =
      "generation g JOIN arm a ON a.id = g.arm_id JOIN prompt p ON p.id = g.prompt_id";
  const std::string turn = cell + " JOIN turn t ON t.generation_id = g.id";
  std::string text;
  const std::vector<std::string> statements = {
      "SELECT key, label, role, isa, threads, settings FROM arm ORDER BY key",
      "SELECT p.key, p.task, p.name, p.turns, p.reference, p.group_name FROM prompt p ORDER BY "
      "p.key",
      "SELECT a.key, p.key, g.repeat, g.sample, g.seed, g.block, g.slot, g.status, g.fault, "
      "g.tokens_hash, g.steps_hash, g.total_ns, g.started, g.distinct_share, g.cycle, g.asked, "
      "hex(g.tally), m.key, m.name FROM " +
          cell + " LEFT JOIN machine m ON m.id = g.machine_id ORDER BY 1, 2, 3, 4",
      "SELECT a.key, p.key, g.repeat, t.idx, t.n_tokens, t.rows, t.decode_ns, t.stop, "
      "hex(t.tokens), t.text, s.* FROM " +
          turn + " JOIN step s ON s.turn_id = t.id ORDER BY 1, 2, 3, 4, s.idx",
      "SELECT a.key, p.key, g.repeat, n.depth, n.rank, n.tested, n.accepted FROM " + turn +
          " JOIN node n ON n.turn_id = t.id ORDER BY 1, 2, 3, 4, 5",
      "SELECT a.key, p.key, g.repeat, d.idx, d.found, d.gap, b.slot, b.wall_ns, s.idx, "
      "s.number, "
      "s.ns FROM " +
          turn +
          " JOIN divergence d ON d.turn_id = t.id JOIN batch_turn b ON b.turn_id = t.id JOIN "
          "batch_step s ON s.turn_id = t.id ORDER BY 1, 2, 3, 4, 9",
      "SELECT a.key, p.key, g.repeat, c.others_ns, u.energy_mj, u.slowed_by FROM " + cell +
          " JOIN clock c ON c.generation_id = g.id JOIN gpu u ON u.generation_id = g.id ORDER "
          "BY "
          "1, 2, 3",
      "SELECT a.key, p.key, g.repeat, s.evaluator, s.version, s.value, s.status FROM " + cell +
          " JOIN score s ON s.generation_id = g.id ORDER BY 1, 2, 3, 4, 5",
  };
  for (const std::string& sql : statements) {
    text += "--\n";
    store.query(sql, {}, [&](const Row& row) {
      for (int i = 0; i < row.columns(); ++i)
        if (row.name(i) != "turn_id") text += row.text(i) + "|";
      text += "\n";
      return true;
    });
  }
  return text;
}

// Everything in the file but what tells which input came first: nothing.
inline std::string whole_content(const std::string& path) {
  const ResultStore store(path, ResultStore::Mode::kReadOnly);
  std::string all = measured(store);
  for (const char* sql :
       {"SELECT key, label, started, finished, command FROM run",
        "SELECT name, value FROM environment ORDER BY name",
        "SELECT m.key, f.name, f.value FROM machine m JOIN machine_fact f ON f.machine_id = m.id "
        "ORDER BY 1, 2",
        "SELECT number, count FROM shard ORDER BY count, number",
        "SELECT p.key, s.number, s.count FROM shard_prompt s JOIN prompt p ON p.id = s.prompt_id "
        "ORDER BY 1, 3",
        "SELECT key, created, document FROM certificate ORDER BY key"}) {
    all += "--\n";
    store.query(sql, {}, [&](const Row& row) {
      for (int i = 0; i < row.columns(); ++i) all += row.text(i) + "|";
      all += "\n";
      return true;
    });
  }
  return all;
}

}  // namespace evalrun::results
