#include "reports/figures/quality.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "reports/data/jackknife.h"

namespace evalrun::reports {

using results::Row;

namespace {

// An answer that nobody could judge here; elsewhere it may pass or fail.
bool machine_at_fault(const std::string& status) {
  return status == "sandbox_error" || status == "toolchain_missing";
}

// Means of the prompts, in the order of their ids.
struct PromptMeans {
  std::vector<int64_t> prompts;
  std::vector<double> means;
  explicit PromptMeans(const std::map<int64_t, std::vector<double>>& by_prompt) {
    for (const auto& [prompt, values] : by_prompt)
      prompts.push_back(prompt), means.push_back(base::mean(values));
  }
};

std::optional<base::Interval> student(const PromptMeans& m, const PromptDesigns& designs) {
  const Design design = designs.of(m.prompts);
  if (design.empty()) {
    const auto t = base::t_interval(m.means, 0.95);
    return t ? std::optional(t->interval) : std::nullopt;
  }
  const auto t = mean_interval(m.means, design);
  return t ? std::optional(t->interval) : std::nullopt;
}

std::optional<base::Interval> quality_interval(
    const std::map<int64_t, std::vector<double>>& by_prompt, const PromptDesigns& designs) {
  const bool binary = std::all_of(by_prompt.begin(), by_prompt.end(), [](const auto& p) {
    return p.second.size() == 1 && (p.second[0] == 0 || p.second[0] == 1);
  });
  const PromptMeans m(by_prompt);
  if (m.means.size() < 2) return std::nullopt;
  if (!binary) return student(m, designs);
  auto trials = static_cast<double>(m.means.size());
  if (const Design design = designs.of(m.prompts); !design.empty()) {
    const auto designed = mean_interval(m.means, design);
    if (!designed) return std::nullopt;
    const double sd = base::sample_sd(m.means), error = designed->standard_error;
    const double least = std::min(trials, designed->n_eff);
    trials = error > 0 ? std::clamp(sd * sd / (error * error), 1.0, trials) : least;
  }
  return base::wilson_interval(base::mean(m.means), static_cast<size_t>(std::floor(trials)), 0.95);
}

void add_difference(Quality& q, const std::map<int64_t, std::vector<double>>& by_prompt,
                    const PromptDesigns& designs) {
  if (by_prompt.empty()) return;
  const PromptMeans m(by_prompt);
  q.difference = base::mean(m.means);
  const auto interval = student(m, designs);
  if (interval && interval->lo < interval->hi) q.difference_interval = interval;
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

RunScores read_scores(const results::ResultStore& store, int64_t run_id, const ArmInfo* control) {
  RunScores a;
  struct Key {
    int64_t prompt;
    int sample;
    std::string evaluator, version;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, double> of_control;
  std::set<std::pair<std::string, std::string>> unjudged;  // evaluators of the control
  bool has_pass = false;
  store.query(
      "SELECT arm_id, task, prompt_id, sample, evaluator, version, status, value, suspicious, "
      "unsandboxed "
      "FROM v_score WHERE run_id = ? AND fault = ''",
      {run_id}, [&](const Row& r) {
        Score s{.prompt = r.integer(2),
                .sample = static_cast<int>(r.integer(3)),
                .evaluator = r.text(4),
                .version = r.text(5),
                .status = r.text(6),
                .value = std::nullopt,
                .control = std::nullopt,
                .suspicious = r.integer(8) != 0,
                .unsandboxed = r.integer(9) != 0};
        has_pass = has_pass || s.evaluator == "pass";
        const bool of_the_control = control != nullptr && r.integer(0) == control->id;
        if (of_the_control && machine_at_fault(s.status)) unjudged.emplace(s.evaluator, s.version);
        if (!r.is_null(7)) {
          s.value = r.number(7);
          if (of_the_control) of_control[{s.prompt, s.sample, s.evaluator, s.version}] = *s.value;
        }
        a.scores[{r.integer(0), r.text(1)}].push_back(std::move(s));
        return true;
      });
  for (auto& [key, scores] : a.scores) {
    if (control == nullptr || key.first == control->id) continue;
    for (Score& s : scores)
      if (const auto it = of_control.find({s.prompt, s.sample, s.evaluator, s.version});
          it != of_control.end() && !unjudged.contains({s.evaluator, s.version}))
        s.control = it->second;
  }
  if (!has_pass) return a;
  store.query(
      "SELECT arm_id, task, version, k, value FROM v_pass_at_k WHERE run_id = ? AND fault = ''",
      {run_id}, [&](const Row& r) {
        a.pass_at[{{r.integer(0), r.text(1)}, r.text(2)}][static_cast<int>(r.integer(3))] =
            r.number(4);
        return true;
      });
  return a;
}

std::map<std::string, Quality> pool_scores(const std::vector<Score>& scores,
                                           const PromptDesigns& designs) {
  struct Sum {
    Quality quality;
    double total = 0;
    std::map<int, std::vector<double>> by_sample;
    std::map<int64_t, std::vector<double>> by_prompt, differences;
  };
  std::map<std::string, Sum> sums;
  for (const Score& s : scores) {
    Sum& sum = sums[s.evaluator + "@" + s.version];
    Quality& q = sum.quality;
    q.version = s.version;
    ++q.statuses[s.status];
    q.suspicious += s.suspicious ? 1 : 0;
    q.unsandboxed += s.unsandboxed ? 1 : 0;
    if (!s.value) {
      ++q.unscored;
      continue;
    }
    ++q.n;
    sum.total += *s.value;
    sum.by_sample[s.sample].push_back(*s.value);
    sum.by_prompt[s.prompt].push_back(*s.value);
    if (s.control) {
      ++q.compared;
      q.better += *s.value > *s.control ? 1 : 0;
      q.worse += *s.value < *s.control ? 1 : 0;
      sum.differences[s.prompt].push_back(*s.value - *s.control);
    }
  }
  std::map<std::string, Quality> quality;
  for (auto& [name, sum] : sums) {
    Quality& q = sum.quality;
    // Where the machine was at fault for some answers, a mean over the others would be another
    // set's.
    if (std::any_of(q.statuses.begin(), q.statuses.end(),
                    [](const auto& status) { return machine_at_fault(status.first); })) {
      q.unscored += q.n;
      q.n = q.compared = q.better = q.worse = 0;
      quality[name] = q;
      continue;
    }
    if (q.n > 0) q.value = sum.total / static_cast<double>(q.n);
    q.interval = quality_interval(sum.by_prompt, designs);
    std::vector<double> means;
    for (const auto& [sample, values] : sum.by_sample) means.push_back(base::mean(values));
    if (means.size() > 1) q.sd = base::sample_sd(means);
    q.differing = q.better + q.worse;
    add_difference(q, sum.differences, designs);
    quality[name] = q;
  }
  return quality;
}

}  // namespace evalrun::reports
