#include "results/machines.h"

#include "results/read_rows.h"
#include "results/store_transaction.h"

namespace evalrun::results {

bool has_machines(const ResultStore& store) {
  return one<int64_t>(store, "SELECT 1 FROM sqlite_schema WHERE name = 'machine_fact'").has_value();
}

int64_t ResultStore::add_machine(int64_t run_id, const MachineRecord& machine) {
  StoreTransaction whole(*this);
  execute("INSERT OR IGNORE INTO machine (run_id, key, name) VALUES (?, ?, ?)",
          {run_id, machine.key, machine.name});
  const int64_t id = one<int64_t>(*this, "SELECT id FROM machine WHERE run_id = ? AND key = ?",
                                  {run_id, machine.key})
                         .value();
  for (const auto& [name, value] : machine.facts) add_machine_fact(id, name, value);
  whole.commit();
  return id;
}

void ResultStore::add_machine_fact(int64_t machine_id, const std::string& name,
                                   const std::string& value) {
  execute("INSERT OR IGNORE INTO machine_fact (machine_id, name, value) VALUES (?, ?, ?)",
          {machine_id, name, value});
}

void ResultStore::add_plan(int64_t run_id, const PlanRecord& plan) {
  execute(
      "INSERT OR IGNORE INTO plan (run_id, key, arms, prompts, repeats, samples) VALUES (?, ?, ?, "
      "?, ?, ?)",
      {run_id, plan.key, plan.arms, plan.prompts, plan.repeats, plan.samples});
}

void ResultStore::add_shard(int64_t run_id, const Shard& shard,
                            const std::vector<std::pair<int64_t, int>>& numbers) {
  StoreTransaction whole(*this);
  execute("INSERT OR IGNORE INTO shard (run_id, count, number) VALUES (?, ?, ?)",
          {run_id, int64_t{shard.count}, int64_t{shard.number}});
  for (const auto& [prompt_id, number] : numbers)
    execute("INSERT OR IGNORE INTO shard_prompt (prompt_id, count, number) VALUES (?, ?, ?)",
            {prompt_id, int64_t{shard.count}, int64_t{number}});
  whole.commit();
}

std::vector<MachineRow> machines(const ResultStore& store, int64_t run_id) {
  if (!has_machines(store)) return {};
  auto found = all(store, "SELECT id, key, name FROM machine WHERE run_id = ? ORDER BY id",
                   {run_id}, [](const Row& row) {
                     MachineRow machine{.id = row.integer(0)};
                     machine.record.key = row.text(1), machine.record.name = row.text(2);
                     return machine;
                   });
  for (MachineRow& machine : found)
    store.query("SELECT name, value FROM machine_fact WHERE machine_id = ?", {machine.id},
                [&](const Row& row) {
                  machine.record.facts[row.text(0)] = row.text(1);
                  return true;
                });
  return found;
}

std::optional<PlanRecord> find_plan(const ResultStore& store, int64_t run_id) {
  if (!has_machines(store)) return std::nullopt;
  return one(store, "SELECT key, arms, prompts, repeats, samples FROM plan WHERE run_id = ?",
             {run_id}, [](const Row& row) {
               return PlanRecord{row.text(0), row.integer(1), row.integer(2), row.integer(3),
                                 row.integer(4)};
             });
}

std::vector<Shard> shards(const ResultStore& store, int64_t run_id) {
  if (!has_machines(store)) return {};
  return all(store, "SELECT number, count FROM shard WHERE run_id = ? ORDER BY count, number",
             {run_id}, [](const Row& row) {
               return Shard{static_cast<int>(row.integer(0)), static_cast<int>(row.integer(1))};
             });
}

std::vector<int64_t> runs_of_plan(const ResultStore& store, const std::string& plan_key) {
  if (!has_machines(store)) return {};
  return all(store, "SELECT run_id FROM plan WHERE key = ? ORDER BY run_id", {plan_key},
             [](const Row& row) { return row.integer(0); });
}

std::set<std::string> whole_prompts(const ResultStore& store, int64_t run_id,
                                    const PlanRecord& plan) {
  std::set<std::string> whole;
  store.query(
      "SELECT p.key FROM generation g JOIN prompt p ON p.id = g.prompt_id WHERE g.run_id = ? GROUP "
      "BY p.key HAVING count(*) >= ?",
      {run_id, plan.arms * plan.repeats * plan.samples}, [&](const Row& row) {
        whole.insert(row.text(0));
        return true;
      });
  return whole;
}

std::vector<std::pair<int64_t, std::string>> measured_prompts(const ResultStore& store,
                                                              int64_t run_id) {
  return all(store,
             "SELECT DISTINCT p.id, p.key FROM generation g JOIN prompt p ON p.id = g.prompt_id "
             "WHERE g.run_id = ?",
             {run_id}, [](const Row& row) { return std::pair(row.integer(0), row.text(1)); });
}

void drop_generations(ResultStore& store, int64_t run_id, int64_t prompt_id) {
  store.execute("DELETE FROM generation WHERE run_id = ? AND prompt_id = ?", {run_id, prompt_id});
}

StoreContent content_of(const ResultStore& store) {
  StoreContent content;
  content.generations = one<int64_t>(store, "SELECT count(*) FROM generation").value();
  store.query("SELECT key FROM run", {}, [&](const Row& row) {
    content.runs.insert(row.text(0));
    return true;
  });
  return content;
}

}  // namespace evalrun::results
