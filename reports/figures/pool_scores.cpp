// Scores of arms put together: Quality.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "reports/data/jackknife.h"
#include "reports/figures/quality.h"

namespace evalrun::reports {

namespace {

// An answer with a score: what the figures of its arm are made of.
struct Scored {
  int prompt = 0;         // as Score
  bool compared = false;  // the control's has one, too
  double value = 0, difference = 0;
};

// By prompt; the scores of a prompt keep their order.
void sort_by_prompt(std::vector<Scored>& scored, size_t prompts) {
  if (std::is_sorted(scored.begin(), scored.end(),
                     [](const Scored& a, const Scored& b) { return a.prompt < b.prompt; }))
    return;
  std::vector<size_t> places(prompts + 1);  // where the next score of each goes
  for (const Scored& s : scored) ++places[static_cast<size_t>(s.prompt) + 1];
  std::partial_sum(places.begin(), places.end(), places.begin());
  std::vector<Scored> sorted(scored.size());
  for (const Scored& s : scored) sorted[places[static_cast<size_t>(s.prompt)]++] = s;
  scored = std::move(sorted);
}

// Means of the prompts, in the order of their ids.
struct PromptMeans {
  std::vector<int64_t> prompts;
  std::vector<double> means;
  bool single = true;  // a score each
};

// Of `value_of` the answers that take part, which are in the order of prompts: each prompt's are
// added up in their order.
template <typename TakesPart, typename ValueOf>
PromptMeans means_of(const std::vector<Scored>& scored, const std::vector<int64_t>& ids,
                     const TakesPart& takes_part, const ValueOf& value_of) {
  PromptMeans m;
  m.prompts.reserve(scored.size()), m.means.reserve(scored.size());
  int prompt = -1;
  double sum = 0;
  int64_t n = 0;
  const auto finish = [&] {
    if (n == 0) return;
    m.prompts.push_back(ids[static_cast<size_t>(prompt)]);
    m.means.push_back(sum / static_cast<double>(n));
    m.single = m.single && n == 1;
    sum = 0, n = 0;
  };
  for (const Scored& s : scored) {
    if (!takes_part(s)) continue;
    if (s.prompt != prompt) finish();
    prompt = s.prompt;
    sum += value_of(s);
    ++n;
  }
  finish();
  return m;
}

std::optional<base::Interval> student(const PromptMeans& m, const Design& design) {
  if (design.empty()) {
    const auto t = base::t_interval(m.means, 0.95);
    return t ? std::optional(t->interval) : std::nullopt;
  }
  const auto t = mean_interval(m.means, design);
  return t ? std::optional(t->interval) : std::nullopt;
}

std::optional<base::Interval> quality_interval(const PromptMeans& m, const PromptDesigns& designs) {
  const bool binary = m.single && std::all_of(m.means.begin(), m.means.end(),
                                              [](double x) { return x == 0 || x == 1; });
  if (m.means.size() < 2) return std::nullopt;
  const Design& design = designs.of(m.prompts);
  if (!binary) return student(m, design);
  const double sd = base::sample_sd(m.means);
  const auto trials = independent_prompts(m.means, design, sd * sd);
  if (!trials) return std::nullopt;
  return base::wilson_interval(base::mean(m.means), static_cast<size_t>(std::floor(*trials)), 0.95);
}

constexpr auto kIsCompared = [](const Scored& s) { return s.compared; };

// Of the answers that are compared with the control's, those whose difference is such.
AnswerShare share_of(const std::vector<Scored>& scored, const std::vector<int64_t>& ids,
                     const PromptMeans& differences, const Design& design, bool (*such)(double)) {
  int64_t compared = 0, hits = 0;
  for (const Scored& s : scored) {
    compared += s.compared;
    hits += s.compared && such(s.difference);
  }
  if (compared == 0) return {};
  // Lossless methods: all answers are equal, none is better or worse.
  if (hits == 0 || hits == compared)
    return equal_answer_share(hits > 0, differences.prompts.size(), design);
  const auto hit = [&](const Scored& s) { return such(s.difference) ? 1.0 : 0.0; };
  const PromptMeans shares = means_of(scored, ids, kIsCompared, hit);
  return answer_share(shares.means, design);
}

// The prompts that one of the arms has, in the order of their ids.
std::vector<int64_t> prompts_of_any(const std::vector<PromptMeans>& arms) {
  std::vector<int64_t> prompts;
  for (const PromptMeans& of_arm : arms) {
    if (of_arm.prompts == prompts) continue;
    std::vector<int64_t> both;
    both.reserve(prompts.size() + of_arm.prompts.size());
    std::set_union(prompts.begin(), prompts.end(), of_arm.prompts.begin(), of_arm.prompts.end(),
                   std::back_inserter(both));
    prompts = std::move(both);
  }
  return prompts;
}

// The differences of one evaluator.
void add_differences(const std::vector<Quality*>& arms, const std::vector<PromptMeans>& differences,
                     const PromptDesigns& designs, uint64_t seed) {
  const std::vector<int64_t> prompts = prompts_of_any(differences);
  std::vector<std::vector<std::optional<double>>> by_prompt;
  by_prompt.reserve(differences.size());
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

// What an arm has of one evaluator.
struct Pooled {
  Quality quality;
  PromptMeans differences;
};

// While its scores are read.
class ScoreSum {
 public:
  ScoreSum(size_t statuses, size_t most) : statuses_(statuses) { scored_.reserve(most); }
  void add(const Score& s) {
    ++statuses_[static_cast<size_t>(s.status)];
    q_.suspicious += s.suspicious ? 1 : 0;
    q_.unsandboxed += s.unsandboxed ? 1 : 0;
    if (!s.value) {
      ++q_.unscored;
      return;
    }
    ++q_.n;
    total_ += *s.value;
    if (last_ == nullptr || last_->first != s.sample)
      last_ = &*by_sample_.try_emplace(s.sample).first;
    last_->second.sum += *s.value;
    ++last_->second.n;
    Scored& scored = scored_.emplace_back();
    scored.prompt = s.prompt;
    scored.value = *s.value;
    if (!s.control) return;
    ++q_.compared;
    q_.better += *s.value > *s.control ? 1 : 0;
    q_.worse += *s.value < *s.control ? 1 : 0;
    scored.compared = true;
    scored.difference = *s.value - *s.control;
  }
  Pooled pooled(const RunScores& all, const std::string& version, const PromptDesigns& designs);

 private:
  struct OfSample {
    double sum = 0;
    int64_t n = 0;
  };
  Quality q_;
  double total_ = 0;
  std::vector<int64_t> statuses_;
  std::map<int, OfSample> by_sample_;
  std::pair<const int, OfSample>* last_ = nullptr;  // of by_sample_
  std::vector<Scored> scored_;
};

Pooled ScoreSum::pooled(const RunScores& all, const std::string& version,
                        const PromptDesigns& designs) {
  q_.version = version;
  for (size_t s = 0; s < statuses_.size(); ++s)
    if (statuses_[s] > 0) q_.statuses[all.statuses[s]] = statuses_[s];
  // Where the machine was at fault for some answers, a mean over the others would be another set's.
  if (std::any_of(q_.statuses.begin(), q_.statuses.end(),
                  [](const auto& status) { return machine_at_fault(status.first); })) {
    q_.unscored += q_.n;
    q_.n = q_.compared = q_.better = q_.worse = 0;
    return {q_, {}};
  }
  if (q_.n > 0) q_.value = total_ / static_cast<double>(q_.n);
  sort_by_prompt(scored_, all.prompts.size());
  const auto is_scored = [](const Scored&) { return true; };
  const auto score = [](const Scored& s) { return s.value; };
  q_.interval = quality_interval(means_of(scored_, all.prompts, is_scored, score), designs);
  std::vector<double> means;
  for (const auto& [sample, of] : by_sample_) means.push_back(of.sum / static_cast<double>(of.n));
  if (means.size() > 1) q_.sd = base::sample_sd(means);
  q_.differing = q_.better + q_.worse;
  const auto difference = [](const Scored& s) { return s.difference; };
  PromptMeans differences = means_of(scored_, all.prompts, kIsCompared, difference);
  if (!differences.prompts.empty()) {
    const Design& design = designs.of(differences.prompts);
    const auto share = [&](bool (*such)(double)) {
      return share_of(scored_, all.prompts, differences, design, such);
    };
    q_.better_share = share([](double d) { return d > 0; });
    q_.equal_share = share([](double d) { return d == 0; });
    q_.worse_share = share([](double d) { return d < 0; });
  }
  return {q_, std::move(differences)};
}

std::map<std::string, Pooled> pool_arm(const RunScores& all, const ArmInfo& arm,
                                       const std::set<std::string>& tasks,
                                       const PromptDesigns& designs) {
  std::vector<const std::vector<Score>*> of_tasks;
  size_t most = 0;
  for (const std::string& task : tasks)
    if (const auto of = all.scores.find({arm.id, task}); of != all.scores.end()) {
      of_tasks.push_back(&of->second);
      most += of->second.size();
    }
  std::vector<std::optional<ScoreSum>> by_evaluator(all.evaluators.size());
  for (const std::vector<Score>* scores : of_tasks)
    for (const Score& s : *scores) {
      std::optional<ScoreSum>& sum = by_evaluator[static_cast<size_t>(s.evaluator)];
      if (!sum) sum.emplace(all.statuses.size(), most);
      sum->add(s);
    }
  std::map<std::string, Pooled> pooled;
  for (size_t e = 0; e < by_evaluator.size(); ++e) {
    if (!by_evaluator[e]) continue;
    const auto& [name, version] = all.evaluators[e];
    pooled.emplace(name + "@" + version, by_evaluator[e]->pooled(all, version, designs));
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
