#include "reports/figures/batch_measures.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "reports/data/arm_tasks.h"
#include "results/batch_queries.h"

namespace evalrun::reports {

namespace {

double ms_of(int64_t ns) { return static_cast<double>(ns) / 1e6; }

struct ContextSum {
  double tokens = 0, n = 0;
  void add(int64_t context) { tokens += static_cast<double>(context), n += 1; }
};

}  // namespace

std::optional<Percentiles> percentiles(std::vector<WeightedTime> times) {
  std::erase_if(times, [](const WeightedTime& t) { return t.weight <= 0; });
  if (times.empty()) return std::nullopt;
  std::sort(times.begin(), times.end(),
            [](const WeightedTime& a, const WeightedTime& b) { return a.ms < b.ms; });
  int64_t all = 0;
  for (const WeightedTime& t : times) all += t.weight;
  const auto at = [&](double share) {
    // Less what rounding may add to a whole number.
    const double place = std::ceil(share * static_cast<double>(all) - 1e-9);
    int64_t seen = 0;
    for (const WeightedTime& t : times)
      if (static_cast<double>(seen += t.weight) >= place) return t.ms;
    return times.back().ms;
  };
  return Percentiles{at(0.5), at(0.95), at(0.99)};
}

void BatchMeasures::add(const BatchMeasures& other) {
  steps += other.steps, members += other.members, rows += other.rows;
  full_steps += other.full_steps, full_ms += other.full_ms;
  const auto append = [](std::vector<WeightedTime>& to, const std::vector<WeightedTime>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(first_tokens, other.first_tokens);
  append(per_token, other.per_token);
  append(gaps, other.gaps);
  append(plain_steps, other.plain_steps);
  longest_gap = std::max(longest_gap, other.longest_gap);
}

RunBatchMeasures::RunBatchMeasures(const results::ResultStore& store, const RunData& data) {
  const ArmTasks places(data.arms, data.prompts);
  std::vector<BatchMeasures> by_place(places.size());
  results::for_batch_turns(store, data.run.id, [&](const results::BatchTurnRow& turn) {
    BatchMeasures& of = by_place[places.of(turn.arm_id, turn.prompt_id)];
    if (turn.turn == 0) of.first_tokens.push_back({ms_of(turn.first_token_ns), 1});
    if (turn.n_tokens > 1)
      of.per_token.push_back({ms_of(turn.wall_ns) / static_cast<double>(turn.n_tokens - 1), 1});
  });
  std::map<int64_t, const ArmInfo*> arms;
  for (const ArmInfo& arm : data.arms) arms[arm.id] = &arm;
  std::set<std::tuple<int64_t, int64_t, int64_t>> seen;  // arm, call, number
  UndraftedSteps undrafted(data);
  std::map<int64_t, ContextSum> contexts;
  results::for_batch_members(store, data.run.id, [&](const results::BatchMemberRow& step) {
    BatchMeasures& of = by_place[places.of(step.arm_id, step.prompt_id)];
    const auto own = static_cast<double>(std::max<int64_t>(step.own_emitted, 1));
    of.gaps.push_back({ms_of(step.gap_ns) / own, step.own_emitted});
    of.longest_gap = std::max(of.longest_gap, ms_of(step.gap_ns));
    const ArmInfo& arm = *arms.at(step.arm_id);
    const bool is_full = step.members >= arm.batch, is_plain = arm.role == "baseline";
    if (is_plain) contexts[step.prompt_id].add(step.context);
    const bool is_new = step.call == 0 || seen.insert({step.arm_id, step.call, step.number}).second;
    if (is_full) undrafted.add(step, is_new);
    if (!is_new) return;
    of.steps += 1;
    of.members += static_cast<double>(step.members), of.rows += static_cast<double>(step.rows);
    if (!is_full) return;
    of.full_steps += 1, of.full_ms += ms_of(step.ns);
    if (is_plain) of.plain_steps.push_back({ms_of(step.ns), 1});
  });
  measures_ = places.by_name(std::move(by_place));
  undrafted_ = undrafted.beside_plain();
  for (const auto& [prompt, sum] : contexts) contexts_[prompt] = sum.tokens / sum.n;
}

const std::map<int64_t, UndraftedTimes>& RunBatchMeasures::undrafted(const ArmInfo& arm) const {
  static const std::map<int64_t, UndraftedTimes> kNone;
  const auto found = undrafted_.find(arm.id);
  return found == undrafted_.end() ? kNone : found->second;
}

BatchMeasures RunBatchMeasures::of(const ArmInfo& arm, const std::set<std::string>& tasks) const {
  BatchMeasures sum;
  for (const std::string& task : tasks)
    if (const auto found = measures_.find({arm.id, task}); found != measures_.end())
      sum.add(found->second);
  return sum;
}

}  // namespace evalrun::reports
