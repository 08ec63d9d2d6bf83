#include "reports/figures/quality.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine/base/error.h"
#include "reports/data/arm_tasks.h"
#include "reports/data/generations.h"
#include "reports/data/jackknife.h"

namespace evalrun::reports {

using results::Row;

namespace {

// An answer that nobody could judge here; elsewhere it may pass or fail.
bool machine_at_fault(const std::string& status) {
  return status == "sandbox_error" || status == "toolchain_missing";
}

// Scores of prompts, in the order of their ids once they are all there.
using PromptScores = std::vector<std::pair<int64_t, double>>;

// Means of the prompts, in the order of their ids.
struct PromptMeans {
  std::vector<int64_t> prompts;
  std::vector<double> means;
  bool single = true;  // a score each
  explicit PromptMeans(PromptScores scores) {
    const auto by_prompt = [](const auto& a, const auto& b) { return a.first < b.first; };
    if (!std::is_sorted(scores.begin(), scores.end(), by_prompt))
      std::stable_sort(scores.begin(), scores.end(), by_prompt);
    std::vector<double> values;
    for (size_t i = 0; i < scores.size(); ++i) {
      values.push_back(scores[i].second);
      if (i + 1 < scores.size() && scores[i + 1].first == scores[i].first) continue;
      prompts.push_back(scores[i].first), means.push_back(base::mean(values));
      single = single && values.size() == 1;
      values.clear();
    }
  }
};

std::optional<base::Interval> student(const PromptMeans& m, const PromptDesigns& designs) {
  const Design& design = designs.of(m.prompts);
  if (design.empty()) {
    const auto t = base::t_interval(m.means, 0.95);
    return t ? std::optional(t->interval) : std::nullopt;
  }
  const auto t = mean_interval(m.means, design);
  return t ? std::optional(t->interval) : std::nullopt;
}

// As many independent values of that variance as have the standard error of the mean, at most one a
// prompt; nullopt for a single unit.
std::optional<double> independent_prompts(const PromptMeans& m, const PromptDesigns& designs,
                                          double variance) {
  const auto n = static_cast<double>(m.means.size());
  const Design& design = designs.of(m.prompts);
  if (design.empty()) return n > 1 ? std::optional(n) : std::nullopt;
  const auto designed = mean_interval(m.means, design);
  if (!designed) return std::nullopt;
  const double error = designed->standard_error;
  return error > 0 ? std::clamp(variance / (error * error), 1.0, n) : std::min(n, designed->n_eff);
}

std::optional<base::Interval> quality_interval(const PromptMeans& m, const PromptDesigns& designs) {
  const bool binary = m.single && std::all_of(m.means.begin(), m.means.end(),
                                              [](double x) { return x == 0 || x == 1; });
  if (m.means.size() < 2) return std::nullopt;
  if (!binary) return student(m, designs);
  const double sd = base::sample_sd(m.means);
  const auto trials = independent_prompts(m, designs, sd * sd);
  if (!trials) return std::nullopt;
  return base::wilson_interval(base::mean(m.means), static_cast<size_t>(std::floor(*trials)), 0.95);
}

// Of the answers whose difference from the control's is such.
AnswerShare share_of(const PromptScores& differences, const PromptDesigns& designs,
                     bool (*such)(double)) {
  AnswerShare share;
  if (differences.empty()) return share;
  PromptScores hits;
  hits.reserve(differences.size());
  for (const auto& [prompt, difference] : differences)
    hits.emplace_back(prompt, such(difference) ? 1.0 : 0.0);
  const PromptMeans m(std::move(hits));
  const auto n = static_cast<double>(m.means.size());
  share.value = base::mean(m.means);
  share.n_eff = 1;
  // The variance of answers of 0 and 1, one a prompt. Means over samples vary less: a prompt says
  // no more than one answer for that.
  const double variance = n > 1 ? share.value * (1 - share.value) * n / (n - 1) : 0;
  if (const auto trials = independent_prompts(m, designs, variance)) {
    share.n_eff = *trials;
    share.interval =
        base::wilson_interval(share.value, static_cast<size_t>(std::floor(*trials)), 0.95);
  }
  return share;
}

// The differences of one evaluator.
void add_differences(const std::vector<Quality*>& arms, const std::vector<PromptMeans>& differences,
                     const PromptDesigns& designs, uint64_t seed) {
  std::vector<int64_t> prompts;
  for (const PromptMeans& of_arm : differences)
    prompts.insert(prompts.end(), of_arm.prompts.begin(), of_arm.prompts.end());
  std::sort(prompts.begin(), prompts.end());
  prompts.erase(std::unique(prompts.begin(), prompts.end()), prompts.end());
  std::vector<std::vector<std::optional<double>>> by_prompt;
  for (const PromptMeans& of_arm : differences) {
    auto& values = by_prompt.emplace_back(prompts.size());
    for (size_t i = 0, at = 0; i < of_arm.prompts.size(); ++i) {
      while (prompts[at] != of_arm.prompts[i]) ++at;
      values[at] = of_arm.means[i];
    }
  }
  const auto found = control_differences(by_prompt, seed, 0.95, designs.of(prompts));
  for (size_t a = 0; a < arms.size(); ++a) arms[a]->difference = found[a];
}

}  // namespace

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
  void sort() { std::sort(values_.begin(), values_.end()); }
  std::optional<double> of(const Score& s) const {
    const auto found =
        std::lower_bound(values_.begin(), values_.end(), place(s),
                         [](const auto& entry, const auto& key) { return entry.first < key; });
    if (found == values_.end() || found->first != place(s)) return std::nullopt;
    return found->second;
  }

 private:
  using Place = std::tuple<int64_t, int, int>;
  static Place place(const Score& s) { return {s.prompt, s.sample, s.evaluator}; }
  std::vector<std::pair<Place, double>> values_;
};

}  // namespace

// Rows as in the view v_score.
RunScores read_scores(const results::ResultStore& store, const RunData& data,
                      const ArmInfo* control) {
  RunScores a;
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
        Score s{.prompt = g.prompt_id,
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
  of_control.sort();
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

namespace {

// What an arm has of one evaluator.
struct Pooled {
  Quality quality;
  PromptScores differences;
};

std::map<std::string, Pooled> pool_arm(const RunScores& all, const ArmInfo& arm,
                                       const std::set<std::string>& tasks,
                                       const PromptDesigns& designs) {
  struct Sum {
    Quality quality;
    double total = 0;
    std::vector<int64_t> statuses;
    std::map<int, std::vector<double>> by_sample;
    PromptScores by_prompt, differences;
  };
  std::vector<std::optional<Sum>> by_evaluator(all.evaluators.size());
  const auto add = [&](const Score& s) {
    std::optional<Sum>& slot = by_evaluator[static_cast<size_t>(s.evaluator)];
    if (!slot) slot.emplace().statuses.resize(all.statuses.size());
    Sum& sum = *slot;
    Quality& q = sum.quality;
    ++sum.statuses[static_cast<size_t>(s.status)];
    q.suspicious += s.suspicious ? 1 : 0;
    q.unsandboxed += s.unsandboxed ? 1 : 0;
    if (!s.value) {
      ++q.unscored;
      return;
    }
    ++q.n;
    sum.total += *s.value;
    sum.by_sample[s.sample].push_back(*s.value);
    sum.by_prompt.emplace_back(s.prompt, *s.value);
    if (s.control) {
      ++q.compared;
      q.better += *s.value > *s.control ? 1 : 0;
      q.worse += *s.value < *s.control ? 1 : 0;
      sum.differences.emplace_back(s.prompt, *s.value - *s.control);
    }
  };
  for (const std::string& task : tasks)
    if (const auto of = all.scores.find({arm.id, task}); of != all.scores.end())
      for (const Score& s : of->second) add(s);
  std::map<std::string, Sum> sums;
  for (size_t e = 0; e < by_evaluator.size(); ++e) {
    if (!by_evaluator[e]) continue;
    Sum& sum = *by_evaluator[e];
    const auto& [name, version] = all.evaluators[e];
    sum.quality.version = version;
    for (size_t s = 0; s < sum.statuses.size(); ++s)
      if (sum.statuses[s] > 0) sum.quality.statuses[all.statuses[s]] = sum.statuses[s];
    sums.emplace(name + "@" + version, std::move(sum));
  }
  std::map<std::string, Pooled> pooled;
  for (auto& [name, sum] : sums) {
    Quality& q = sum.quality;
    // Where the machine was at fault for some answers, a mean over the others would be another
    // set's.
    if (std::any_of(q.statuses.begin(), q.statuses.end(),
                    [](const auto& status) { return machine_at_fault(status.first); })) {
      q.unscored += q.n;
      q.n = q.compared = q.better = q.worse = 0;
      pooled[name].quality = q;
      continue;
    }
    if (q.n > 0) q.value = sum.total / static_cast<double>(q.n);
    q.interval = quality_interval(PromptMeans(std::move(sum.by_prompt)), designs);
    std::vector<double> means;
    for (const auto& [sample, values] : sum.by_sample) means.push_back(base::mean(values));
    if (means.size() > 1) q.sd = base::sample_sd(means);
    q.differing = q.better + q.worse;
    q.better_share = share_of(sum.differences, designs, [](double d) { return d > 0; });
    q.equal_share = share_of(sum.differences, designs, [](double d) { return d == 0; });
    q.worse_share = share_of(sum.differences, designs, [](double d) { return d < 0; });
    pooled[name] = {q, std::move(sum.differences)};
  }
  return pooled;
}

}  // namespace

std::vector<std::map<std::string, Quality>> pool_scores(const RunScores& all,
                                                        std::span<const ArmInfo* const> arms,
                                                        const std::set<std::string>& tasks,
                                                        const PromptDesigns& designs,
                                                        uint64_t seed) {
  std::vector<std::map<std::string, Quality>> quality(arms.size());
  std::map<std::string, std::pair<std::vector<Quality*>, std::vector<PromptMeans>>> families;
  for (size_t a = 0; a < arms.size(); ++a)
    for (auto& [name, pooled] : pool_arm(all, *arms[a], tasks, designs)) {
      Quality& q = quality[a][name] = pooled.quality;
      auto& [members, differences] = families[name];
      members.push_back(&q);
      differences.emplace_back(std::move(pooled.differences));
    }
  for (const auto& [name, family] : families)
    add_differences(family.first, family.second, designs, seed);
  return quality;
}

}  // namespace evalrun::reports
