// Scores put together by counting and in one pass, against the plain way: equal to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "reports/data/id_numbers.h"
#include "reports/figures/answer_share.h"
#include "reports/figures/quality.h"
#include "tests/reports/data/designs.h"
#include "tests/reports/data/jackknife_reference.h"

namespace evalrun::tests {
namespace {

using base::Rng;
using reports::AnswerShare;
using reports::ArmInfo;
using reports::Design;
using reports::PromptDesigns;
using reports::PromptInfo;
using reports::PromptNumbers;
using reports::Quality;
using reports::RunScores;
using reports::Scope;
using reports::Score;

std::optional<double> plain_trials(const std::vector<double>& values, const Design& design,
                                   double variance) {
  const auto n = static_cast<double>(values.size());
  if (design.empty()) return n > 1 ? std::optional(n) : std::nullopt;
  const auto designed = plain_mean_interval(values, design);
  if (!designed) return std::nullopt;
  const double error = designed->standard_error;
  return error > 0 ? std::clamp(variance / (error * error), 1.0, n) : std::min(n, designed->n_eff);
}

AnswerShare plain_share(const std::vector<double>& shares, const Design& design) {
  AnswerShare share;
  const auto n = static_cast<double>(shares.size());
  share.value = base::mean(shares);
  share.n_eff = 1;
  const double variance = n > 1 ? share.value * (1 - share.value) * n / (n - 1) : 0;
  if (const auto trials = plain_trials(shares, design, variance)) {
    share.n_eff = *trials;
    share.interval =
        base::wilson_interval(share.value, static_cast<size_t>(std::floor(*trials)), 0.95);
  }
  return share;
}

void expect_equal_share(const AnswerShare& fast, const AnswerShare& plain) {
  expect_equal(fast.value, plain.value);
  expect_equal(fast.n_eff, plain.n_eff);
  expect_equal(fast.interval, plain.interval);
}

TEST(AnswerShare, OfEqualAnswersNeedsNoLook) {
  for_designs([](const Design& design, size_t n, Rng& rng) {
    if (n == 0) return;
    for (const bool value : {false, true}) {
      const std::vector<double> shares(n, value ? 1 : 0);
      const AnswerShare plain = plain_share(shares, design);
      expect_equal_share(reports::equal_answer_share(value, n, design), plain);
      expect_equal_share(reports::answer_share(shares, design), plain);
    }
    std::vector<double> mixed(n);
    for (double& share : mixed) share = static_cast<double>(rng.below(4)) / 3;
    expect_equal_share(reports::answer_share(mixed, design), plain_share(mixed, design));
  });
}

TEST(PromptNumbers, AscendAsIdsDo) {
  const auto numbers_of = [](const std::vector<int64_t>& ids) {
    std::vector<PromptInfo> prompts;
    for (const int64_t id : ids) prompts.emplace_back().id = id;
    return PromptNumbers(prompts);
  };
  // One after the other, with gaps, far apart.
  for (const int64_t step : {1, 3, 1000}) {
    const PromptNumbers numbers =
        numbers_of({7 + 2 * step, 7 + step, 7, 7 + 3 * step, 7 + 5 * step});
    EXPECT_EQ(numbers.size(), 5u);
    EXPECT_EQ(numbers.ids(),
              (std::vector<int64_t>{7, 7 + step, 7 + 2 * step, 7 + 3 * step, 7 + 5 * step}));
    EXPECT_EQ(numbers.of(7), 0u);
    EXPECT_EQ(numbers.of(7 + 3 * step), 3u);
    EXPECT_EQ(numbers.of(7 + 5 * step), 4u);
    for (const int64_t absent : {int64_t{6}, 7 + 4 * step, 8 + 5 * step, int64_t{-1}})
      EXPECT_THROW((void)numbers.of(absent), base::InternalError) << absent;
  }
  EXPECT_EQ(numbers_of({}).size(), 0u);
}

// Two data sets, the later one first by name; evaluators of yes and no, and of fractions.
struct ScoredRun {
  std::vector<ArmInfo> arms;
  std::vector<PromptInfo> prompts;
  RunScores scores;
};

// In an order of their own, some without a value, some without one of the control's.
ScoredRun scored_run(Rng& rng, int samples, bool lossless) {
  constexpr int kPerTask = 30;
  ScoredRun run;
  RunScores& all = run.scores;
  all.evaluators = {{"exact", "1"}, {"overlap", "2"}};
  all.statuses = {"ok", "timeout"};
  for (int i = 0; i < 2 * kPerTask; ++i) {
    PromptInfo& p = run.prompts.emplace_back();
    p.id = 100 + i;
    p.key = std::to_string(i);
    p.task = i < kPerTask ? "zeta" : "alpha";
    p.category = i % 3 == 0 ? "even" : "odd";
    p.group = i % 5 == 0 ? "g" + std::to_string(i / 10) : "";
    all.prompts.push_back(p.id);
  }
  for (int a = 0; a < 4; ++a) run.arms.emplace_back().id = 10 + a;
  for (const ArmInfo& arm : run.arms)
    for (int i = 0; i < 2 * kPerTask; ++i)
      for (int sample = 0; sample < samples; ++sample)
        for (int evaluator = 0; evaluator < 2; ++evaluator) {
          Score s;
          s.prompt = i, s.sample = sample, s.evaluator = evaluator;
          s.status = static_cast<int>(rng.below(2));
          const auto drawn = [&] {
            return evaluator == 0 ? static_cast<double>(rng.below(2)) : rng.uniform();
          };
          if (rng.below(9) != 0) s.value = drawn();
          if (rng.below(9) != 0 && arm.id != 10) s.control = lossless ? s.value : drawn();
          s.suspicious = rng.below(5) == 0, s.unsandboxed = rng.below(7) == 0;
          all.scores[{arm.id, run.prompts[static_cast<size_t>(i)].task}].push_back(s);
        }
  for (auto& [key, scores] : all.scores)
    for (size_t i = scores.size() - 1; i > 0; --i) std::swap(scores[i], scores[rng.below(i + 1)]);
  return run;
}

// An arm's scores by one evaluator, data set by data set.
std::vector<Score> scores_of(const RunScores& all, int64_t arm, const std::set<std::string>& tasks,
                             int evaluator) {
  std::vector<Score> found;
  for (const std::string& task : tasks)
    for (const Score& s : all.scores.at({arm, task}))
      if (s.evaluator == evaluator) found.push_back(s);
  return found;
}

// By prompt, in the order of scores.
using ByPrompt = std::map<int64_t, std::vector<double>>;

std::vector<double> means_by_prompt(const ByPrompt& scores) {
  std::vector<double> means;
  for (const auto& [prompt, values] : scores) means.push_back(base::mean(values));
  return means;
}

std::vector<int64_t> prompts_with(const ByPrompt& scores) {
  std::vector<int64_t> prompts;
  for (const auto& [prompt, values] : scores) prompts.push_back(prompt);
  return prompts;
}

ByPrompt plain_differences(const RunScores& all, const std::vector<Score>& scores) {
  ByPrompt differences;
  for (const Score& s : scores)
    if (s.value && s.control)
      differences[all.prompts[static_cast<size_t>(s.prompt)]].push_back(*s.value - *s.control);
  return differences;
}

std::optional<base::Interval> plain_quality_interval(const ByPrompt& scores,
                                                     const PromptDesigns& designs) {
  const std::vector<double> means = means_by_prompt(scores);
  const Design design = designs.of(prompts_with(scores));
  const bool binary = std::all_of(scores.begin(), scores.end(), [](const auto& of) {
    return of.second.size() == 1 && (of.second[0] == 0 || of.second[0] == 1);
  });
  if (means.size() < 2) return std::nullopt;
  if (binary) {
    const double sd = base::sample_sd(means);
    const auto trials = plain_trials(means, design, sd * sd);
    if (!trials) return std::nullopt;
    return base::wilson_interval(base::mean(means), static_cast<size_t>(std::floor(*trials)), 0.95);
  }
  if (design.empty()) return base::t_interval(means, 0.95)->interval;
  const auto t = plain_mean_interval(means, design);
  return t ? std::optional(t->interval) : std::nullopt;
}

void expect_pooled(const Quality& q, const RunScores& all, const std::vector<Score>& scores,
                   const PromptDesigns& designs) {
  ByPrompt values;
  std::map<int, std::vector<double>> by_sample;
  double total = 0;
  int64_t n = 0;
  for (const Score& s : scores) {
    if (!s.value) continue;
    values[all.prompts[static_cast<size_t>(s.prompt)]].push_back(*s.value);
    by_sample[s.sample].push_back(*s.value);
    total += *s.value;
    ++n;
  }
  EXPECT_EQ(q.n, n);
  EXPECT_EQ(q.unscored, static_cast<int64_t>(scores.size()) - n);
  EXPECT_EQ(q.suspicious, std::count_if(scores.begin(), scores.end(),
                                        [](const Score& s) { return s.suspicious; }));
  expect_equal(q.value, total / static_cast<double>(n));
  expect_equal(q.interval, plain_quality_interval(values, designs));
  std::vector<double> means;
  for (const auto& [sample, of] : by_sample) means.push_back(base::mean(of));
  ASSERT_EQ(q.sd.has_value(), means.size() > 1);
  if (q.sd) expect_equal(*q.sd, base::sample_sd(means));

  const ByPrompt differences = plain_differences(all, scores);
  const Design design = designs.of(prompts_with(differences));
  const auto share_of = [&](const std::function<bool(double)>& such) {
    ByPrompt hits;
    for (const auto& [prompt, of] : differences)
      for (const double d : of) hits[prompt].push_back(such(d) ? 1 : 0);
    return hits.empty() ? AnswerShare{} : plain_share(means_by_prompt(hits), design);
  };
  expect_equal_share(q.better_share, share_of([](double d) { return d > 0; }));
  expect_equal_share(q.equal_share, share_of([](double d) { return d == 0; }));
  expect_equal_share(q.worse_share, share_of([](double d) { return d < 0; }));
}

// The differences of all arms from the control, by the same prompts.
void expect_differences(const std::vector<std::map<std::string, Quality>>& pooled,
                        const std::string& name, const std::vector<ByPrompt>& arms,
                        const PromptDesigns& designs, uint64_t seed) {
  std::set<int64_t> prompts;
  for (const ByPrompt& of_arm : arms)
    for (const auto& [prompt, values] : of_arm) prompts.insert(prompt);
  std::vector<std::vector<std::optional<double>>> by_prompt;
  for (const ByPrompt& of_arm : arms) {
    auto& values = by_prompt.emplace_back();
    for (const int64_t prompt : prompts) {
      const auto found = of_arm.find(prompt);
      values.push_back(found == of_arm.end() ? std::nullopt
                                             : std::optional(base::mean(found->second)));
    }
  }
  const std::vector<int64_t> ids(prompts.begin(), prompts.end());
  const auto expected = reports::control_differences(by_prompt, seed, 0.95, designs.of(ids));
  for (size_t a = 0; a < arms.size(); ++a) {
    const auto& difference = pooled[a].at(name).difference;
    ASSERT_EQ(difference.has_value(), expected[a].has_value());
    if (!difference) continue;
    expect_equal(difference->value, expected[a]->value);
    expect_equal(difference->interval, expected[a]->interval);
    EXPECT_EQ(difference->prompts, expected[a]->prompts);
  }
}

TEST(PoolScores, EqualsThePlainWayToTheBit) {
  Rng rng(3);
  for (const int samples : {1, 3})
    for (const bool lossless : {true, false})
      for (const Scope scope : {Scope::kSameKind, Scope::kNewKinds, Scope::kFixedSet})
        for (const std::set<std::string>& tasks :
             std::vector<std::set<std::string>>{{"alpha"}, {"zeta"}, {"alpha", "zeta"}}) {
          SCOPED_TRACE(std::to_string(samples) + to_string(scope) + *tasks.begin());
          const ScoredRun run = scored_run(rng, samples, lossless);
          const PromptDesigns designs(run.prompts, scope);
          std::vector<const ArmInfo*> arms;
          for (const ArmInfo& arm : run.arms) arms.push_back(&arm);
          const auto pooled = pool_scores(run.scores, arms, tasks, designs, 5);
          for (int e = 0; e < 2; ++e) {
            const std::string name = e == 0 ? "exact@1" : "overlap@2";
            std::vector<ByPrompt> differences;
            for (size_t a = 0; a < arms.size(); ++a) {
              const auto scores = scores_of(run.scores, arms[a]->id, tasks, e);
              expect_pooled(pooled[a].at(name), run.scores, scores, designs);
              differences.push_back(plain_differences(run.scores, scores));
            }
            expect_differences(pooled, name, differences, designs, 5);
          }
        }
}

}  // namespace
}  // namespace evalrun::tests
