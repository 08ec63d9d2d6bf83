#include "reports/figures/quality.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>

#include "engine/base/error.h"
#include "reports/data/arm_tasks.h"
#include "reports/data/generations.h"
#include "reports/data/id_numbers.h"

namespace evalrun::reports {

using results::Row;

bool machine_at_fault(const std::string& status) {
  return status == "sandbox_error" || status == "toolchain_missing";
}

const ArmInfo* control_of(const std::vector<ArmInfo>& arms, const std::string& label) {
  if (!label.empty())
    if (const ArmInfo* arm = arm_of(arms, label)) return arm;
  std::vector<std::string> labels;
  for (const ArmInfo& arm : arms) {
    if (label.empty() && arm.role == "baseline") return &arm;
    labels.push_back(arm.label);
  }
  if (label.empty()) return nullptr;
  throw base::usage_error(fmt::format("this run has no arm '{}'", label),
                          fmt::format("it has {}", fmt::join(labels, ", ")));
}

namespace {

// The number of `value` in `list`, where it is added if it is new. Lists are short.
template <typename T>
int number_in(std::vector<T>& list, const T& value) {
  const auto found = std::find(list.begin(), list.end(), value);
  const auto number = static_cast<int>(found - list.begin());
  if (found == list.end()) list.push_back(value);
  return number;
}

// The control arm's values, by prompt, sample and evaluator.
class ControlScores {
 public:
  void add(const Score& s) { values_.emplace_back(place(s), *s.value); }
  // When all are there, of so many prompts.
  void sort(size_t prompts) {
    std::sort(values_.begin(), values_.end());
    first_.assign(prompts + 1, 0);
    for (const auto& [at, value] : values_) ++first_[static_cast<size_t>(std::get<0>(at)) + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
  }
  std::optional<double> of(const Score& s) const {
    const auto prompt = static_cast<size_t>(s.prompt);
    const auto begin = values_.begin() + first_[prompt], end = values_.begin() + first_[prompt + 1];
    const auto found = std::lower_bound(
        begin, end, place(s), [](const auto& entry, const auto& key) { return entry.first < key; });
    if (found == end || found->first != place(s)) return std::nullopt;
    return found->second;
  }

 private:
  using Place = std::tuple<int, int, int>;
  static Place place(const Score& s) { return {s.prompt, s.sample, s.evaluator}; }
  std::vector<std::pair<Place, double>> values_;
  std::vector<std::ptrdiff_t> first_;  // by prompt, its first value's place
};

}  // namespace

// Rows as in the view v_score.
RunScores read_scores(const results::ResultStore& store, const RunData& data,
                      const ArmInfo* control) {
  RunScores a;
  const PromptNumbers numbers(data.prompts);
  a.prompts = numbers.ids();
  const ArmTasks places(data.arms, data.prompts);
  std::vector<std::vector<Score>> scores(places.size());
  ControlScores of_control;
  std::vector<bool> unjudged;  // evaluators of the control
  // Only facts that name a sandbox are parsed: CASE does not look further, AND would.
  for_generation_rows(
      store, data, "score",
      "generation_id, evaluator, version, status, value, suspicious, CASE WHEN "
      "instr(facts, 'sandbox') > 0 THEN coalesce(json_extract(facts, '$.sandbox'), '') = 'none' "
      "ELSE 0 END",
      [&](const Generation& g, const Row& r) {
        if (!g.judged) return;
        Score s{.prompt = static_cast<int>(numbers.of(g.prompt_id)),
                .sample = g.sample,
                .evaluator = number_in(a.evaluators, {r.text(1), r.text(2)}),
                .status = number_in(a.statuses, r.text(3)),
                .value = std::nullopt,
                .control = std::nullopt,
                .suspicious = r.integer(5) != 0,
                .unsandboxed = r.integer(6) != 0};
        unjudged.resize(a.evaluators.size());
        const bool of_the_control = control != nullptr && g.arm_id == control->id;
        if (of_the_control && machine_at_fault(a.statuses[static_cast<size_t>(s.status)]))
          unjudged[static_cast<size_t>(s.evaluator)] = true;
        if (!r.is_null(4)) {
          s.value = r.number(4);
          if (of_the_control) of_control.add(s);
        }
        scores[places.of(g.arm_id, g.prompt_id)].push_back(s);
      });
  of_control.sort(numbers.size());
  a.scores = places.by_name(std::move(scores));
  for (auto& [key, of_arm] : a.scores) {
    if (control == nullptr || key.first == control->id) continue;
    for (Score& s : of_arm)
      if (!unjudged[static_cast<size_t>(s.evaluator)]) s.control = of_control.of(s);
  }
  const bool has_pass = std::any_of(a.evaluators.begin(), a.evaluators.end(),
                                    [](const auto& e) { return e.first == "pass"; });
  if (!has_pass) return a;
  store.query(
      "SELECT arm_id, task, version, k, value FROM v_pass_at_k WHERE run_id = ? AND fault = ''",
      {data.run.id}, [&](const Row& r) {
        a.pass_at[{{r.integer(0), r.text(1)}, r.text(2)}][static_cast<int>(r.integer(3))] =
            r.number(4);
        return true;
      });
  return a;
}

}  // namespace evalrun::reports
