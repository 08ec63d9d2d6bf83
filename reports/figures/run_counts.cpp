#include "reports/figures/run_counts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tuple>
#include <unordered_map>

namespace evalrun::reports {

namespace {

using results::Row;

// Data sets of prompts, and sums by arm and data set. Rows of one generation follow each other, so
// the sum of the last row is mostly that of the next.
class Tasks {
 public:
  explicit Tasks(const RunData& data) {
    for (const PromptInfo& p : data.prompts) task_of_[p.id] = p.task;
  }
  const std::string& operator[](int64_t prompt) const { return task_of_.at(prompt); }
  template <typename Sum>
  class Sums {
   public:
    explicit Sums(const Tasks& tasks) : tasks_(tasks) {}
    Sum& at(int64_t arm, int64_t prompt) {
      if (now_ == nullptr || arm != arm_ || prompt != prompt_)
        arm_ = arm, prompt_ = prompt, now_ = &all[{arm, tasks_[prompt]}];
      return *now_;
    }
    std::map<ArmTask, Sum> all;

   private:
    const Tasks& tasks_;
    int64_t arm_ = 0, prompt_ = 0;
    Sum* now_ = nullptr;
  };

 private:
  std::unordered_map<int64_t, std::string> task_of_;
};

void count_generations(const results::ResultStore& store, const RunData& data, const Tasks& tasks,
                       RunCounts& counts) {
  using Place = std::tuple<int64_t, int64_t, int64_t, int64_t>;  // arm, prompt, repeat, sample
  struct Generation {
    Place place;
    std::string tokens_hash;
  };
  std::map<int64_t, int64_t> reference_of;
  std::map<int64_t, bool> is_reference;
  for (const ArmInfo& arm : data.arms)
    if (const ArmInfo* reference = data.reference(arm); reference != nullptr)
      reference_of[arm.id] = reference->id, is_reference[reference->id] = true;
  std::vector<Generation> finished;
  std::map<Place, std::string> references;
  Tasks::Sums<std::pair<int64_t, int64_t>> sums(tasks);
  store.query(
      "SELECT arm_id, prompt_id, repeat, sample, status = 'ok', fault = '', tokens_hash "
      "FROM generation WHERE run_id = ?",
      {data.run.id}, [&](const Row& r) {
        if (r.integer(5) == 0) {
          ++counts.hidden_faults;
          return true;
        }
        auto& [all, failed] = sums.at(r.integer(0), r.integer(1));
        ++all;
        if (r.integer(4) == 0) {
          ++failed;
          return true;
        }
        const Place place = {r.integer(0), r.integer(1), r.integer(2), r.integer(3)};
        if (reference_of.contains(r.integer(0))) finished.push_back({place, r.text(6)});
        if (is_reference.contains(r.integer(0))) references[place] = r.text(6);
        return true;
      });
  counts.generations = std::move(sums.all);
  for (const Generation& g : finished) {
    const auto& [arm, prompt, repeat, sample] = g.place;
    const auto reference = references.find({reference_of.at(arm), prompt, repeat, sample});
    if (reference == references.end()) continue;
    auto& [compared, identical] = counts.identity[{arm, tasks[prompt]}];
    ++compared, identical += reference->second == g.tokens_hash;
  }
}

// CROSS JOIN: SQLite keeps the order, run by run and turn by turn.
void count_steps(const results::ResultStore& store, const RunData& data, const Tasks& tasks,
                 RunCounts& counts) {
  std::vector<int64_t> arms;
  for (const ArmInfo& arm : data.arms)
    if (arm.drafts()) arms.push_back(arm.id);
  if (arms.empty()) return;
  Tasks::Sums<std::map<std::tuple<int64_t, int64_t, bool>, int64_t>> sums(tasks);
  store.query(
      fmt::format("SELECT g.arm_id, g.prompt_id, s.drafted_depth, s.accepted, s.emitted <= "
                  "s.accepted FROM generation g CROSS JOIN turn t CROSS JOIN step s "
                  "WHERE g.run_id = ? AND +g.arm_id IN ({}) AND g.status = 'ok' AND g.fault = '' "
                  "AND t.generation_id = g.id AND s.turn_id = t.id",
                  fmt::join(arms, ", ")),
      {data.run.id}, [&](const Row& r) {
        ++sums.at(r.integer(0), r.integer(1))[{r.integer(2), r.integer(3), r.integer(4) != 0}];
        return true;
      });
  for (const auto& [key, steps] : sums.all)
    for (const auto& [step, n] : steps)
      counts.steps[key].push_back({std::get<0>(step), std::get<1>(step), n, std::get<2>(step)});
}

void count_nodes(const results::ResultStore& store, const RunData& data, const Tasks& tasks,
                 RunCounts& counts) {
  Tasks::Sums<std::map<std::pair<int64_t, int64_t>, NodeAcceptance>> sums(tasks);
  store.query(
      "SELECT g.arm_id, g.prompt_id, n.depth, n.rank, n.tested, n.accepted "
      "FROM generation g CROSS JOIN turn t CROSS JOIN node n "
      "WHERE g.run_id = ? AND g.status = 'ok' AND g.fault = '' "
      "AND t.generation_id = g.id AND n.turn_id = t.id",
      {data.run.id}, [&](const Row& r) {
        NodeAcceptance& n = sums.at(r.integer(0), r.integer(1))[{r.integer(2), r.integer(3)}];
        n.depth = r.integer(2), n.rank = r.integer(3);
        n.tested += r.integer(4), n.accepted += r.integer(5);
        return true;
      });
  for (const auto& [key, nodes] : sums.all)
    for (const auto& [place, n] : nodes) counts.nodes[key].push_back(n);
}

}  // namespace

RunCounts count_run(const results::ResultStore& store, const RunData& data) {
  const Tasks tasks(data);
  RunCounts counts;
  count_generations(store, data, tasks, counts);
  count_steps(store, data, tasks, counts);
  count_nodes(store, data, tasks, counts);
  return counts;
}

}  // namespace evalrun::reports
