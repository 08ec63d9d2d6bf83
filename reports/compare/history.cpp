#include "reports/compare/history.h"

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/base/stats.h"
#include "reports/data/pairing.h"

namespace evalrun::reports {

namespace {

using results::Row;

void add_deviations(const results::ResultStore& store, RunHistory& history) {
  constexpr size_t kFewest = 3;
  const RunData data = load_run(store, history.run_id);
  const ArmInfo* plain = data.baseline();
  const ArmInfo* aa = nullptr;
  for (const ArmInfo& arm : data.arms)
    if (arm.role == "aa" && data.reference(arm) == plain) aa = &arm;
  if (plain == nullptr || aa == nullptr) return;
  const auto cells = cells_of(data, aa->id), reference = cells_of(data, plain->id);
  std::map<int64_t, std::string> task_of;
  for (const PromptInfo& p : data.prompts) task_of[p.id] = p.task;
  const auto deviation = [&](const std::function<bool(int64_t)>& keep) {
    const std::vector<double> logs =
        log_ratios(values_of(pair_with_reference(cells, reference, keep).prompts));
    return logs.size() < kFewest ? std::nullopt
                                 : std::optional(std::sqrt(2.0) * base::sample_sd(logs));
  };
  for (auto& [task, seen] : history.tasks)
    seen.deviation = deviation([&](int64_t prompt) { return task_of.at(prompt) == task; });
  history.deviation = deviation([](int64_t) { return true; });
}

}  // namespace

std::optional<RunHistory> find_history(const results::ResultStore& store,
                                       const std::vector<std::string>& arm_keys,
                                       const std::string& machine) {
  const std::string keys = nlohmann::json(arm_keys).dump();
  std::vector<int64_t> candidates;
  store.query(
      "SELECT a.run_id FROM arm a JOIN environment e ON e.run_id = a.run_id AND e.name = "
      "CASE WHEN EXISTS (SELECT 1 FROM environment g WHERE g.run_id = a.run_id AND g.name = 'gpu') "
      "THEN 'gpu' ELSE 'cpu' END "
      "WHERE a.key IN (SELECT value FROM json_each(?)) AND e.value = ? "
      "GROUP BY a.run_id HAVING count(*) = ? ORDER BY a.run_id DESC",
      {keys, machine, static_cast<int64_t>(arm_keys.size())}, [&](const Row& r) {
        candidates.push_back(r.integer(0));
        return true;
      });
  for (const int64_t run_id : candidates) {
    RunHistory history;
    history.run_id = run_id;
    store.query(
        "SELECT p.task, count(*), sum(g.total_ns), r.label FROM generation g "
        "JOIN prompt p ON p.id = g.prompt_id JOIN arm a ON a.id = g.arm_id "
        "JOIN run r ON r.id = g.run_id WHERE g.run_id = ? AND g.status = 'ok' AND g.fault = '' "
        "AND a.key IN (SELECT value FROM json_each(?)) GROUP BY p.task",
        {run_id, keys}, [&](const Row& r) {
          history.tasks[r.text(0)].generation_s = 1e-9 * r.number(2) / r.number(1);
          history.label = r.text(3);
          return true;
        });
    if (history.tasks.empty()) continue;
    add_deviations(store, history);
    return history;
  }
  return std::nullopt;
}

}  // namespace evalrun::reports
