#include "tests/reports/data/coverage.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "reports/data/bootstrap.h"

namespace evalrun::tests {

using reports::Estimator;
using reports::PromptPair;
using reports::Scope;

double Normals::next() {
  if (second_) return *std::exchange(second_, std::nullopt);
  const double radius = std::sqrt(-2 * std::log(1 - rng_.uniform()));
  const double angle = 2 * M_PI * rng_.uniform();
  second_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

namespace {

constexpr double kLoopingSpeedup = 6;

// Of an answer that does not loop, z standard normal.
double length_of(const PromptModel& m, double z) {
  const double length = m.pareto > 0 ? 50 * std::pow(base::normal_cdf(-z), -1 / m.pareto)
                                     : 100 * std::exp(m.length_sd * z);
  return std::min(length, m.cut);
}

}  // namespace

// With z, w standard normal of correlation rho, length L(z) and speedup s = t exp(v w): sum = E L /
// E(L / s), geo = exp E ln s, legacy = E s, the baseline's speed being the same everywhere. Given
// z, ln s is normal with mean ln t + v rho z and variance v^2 (1 - rho^2). The noise of times has
// the same mean factor above and below.
double truth(Estimator estimator, const PromptModel& m) {
  const double variance = m.speedup_sd * m.speedup_sd;
  const double rest = (1 - m.looping), loops = m.looping;
  if (estimator == Estimator::kGeo)
    return std::exp(rest * std::log(m.typical) +
                    (loops > 0 ? loops * std::log(kLoopingSpeedup) : 0));
  if (estimator == Estimator::kLegacy)
    return (rest * m.typical + loops * kLoopingSpeedup) * std::exp(variance / 2);
  double lengths = 0, times = 0;
  constexpr double kStep = 0.002;
  for (double z = -9; z < 18; z += kStep) {
    const double density = kStep * std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
    const double length = density * length_of(m, z);
    const double mean = std::log(m.typical) + m.speedup_sd * m.rho * z;
    lengths += length;
    times += length * std::exp(-mean + variance * (1 - m.rho * m.rho) / 2);
  }
  lengths *= rest, times *= rest;
  if (loops > 0) {
    lengths += loops * m.cut;
    times += loops * m.cut / kLoopingSpeedup * std::exp(variance / 2);
  }
  return lengths / times;
}

std::vector<PromptPair> draw_prompts(const PromptModel& m, int n, Normals& normals) {
  std::vector<PromptPair> pairs;
  for (int i = 0; i < n; ++i) {
    const double z = normals.next();
    const double w = m.rho * z + std::sqrt(1 - m.rho * m.rho) * normals.next();
    const bool loops = m.looping > 0 && base::normal_cdf(normals.next()) < m.looping;
    const double typical = loops ? kLoopingSpeedup : m.typical;
    PromptPair p;
    p.tokens = p.base_tokens = loops ? m.cut : length_of(m, z);
    p.base_ns = p.tokens * 1e7 * std::exp(m.timing_sd * normals.next());
    p.ns = p.tokens * 1e7 / (typical * std::exp(m.speedup_sd * w)) *
           std::exp(m.timing_sd * normals.next());
    pairs.push_back(p);
  }
  return pairs;
}

GroupCoverage cover_groups(const GroupModel& m, Scope question, Estimator estimator,
                           int experiments) {
  std::vector<reports::PromptInfo> prompts;
  std::vector<int64_t> ids;
  for (int g = 0; g < m.groups; ++g)
    for (int i = 0; i < m.members; ++i) {
      reports::PromptInfo p;
      p.id = static_cast<int64_t>(prompts.size());
      p.key = std::to_string(p.id), p.task = "task";
      (m.are_kinds ? p.category : p.group) = std::to_string(g);
      ids.push_back(p.id);
      prompts.push_back(p);
    }
  const reports::Design design = reports::PromptDesigns(prompts, question).of(ids);
  GroupCoverage c;
  std::vector<double> widths;
  Normals normals(1);
  for (int e = 0; e < experiments; ++e) {
    std::vector<PromptPair> pairs;
    double sum_of_logs = 0, sum_of_inverses = 0;  // of the groups that there are
    for (int g = 0; g < m.groups; ++g) {
      const double level = std::log(m.typical) + m.between_sd * normals.next();
      sum_of_logs += level, sum_of_inverses += std::exp(-level);
      for (int i = 0; i < m.members; ++i) {
        PromptPair p;
        p.tokens = p.base_tokens = 100 * std::exp(m.length_sd * normals.next());
        p.base_ns = p.tokens * 1e7 * std::exp(m.timing_sd * normals.next());
        p.ns = p.tokens * 1e7 * std::exp(m.timing_sd * normals.next()) /
               std::exp(level + m.within_sd * normals.next());
        pairs.push_back(p);
      }
    }
    // Of these kinds, or of new ones; lengths are independent of speeds.
    const bool fixed = m.are_kinds && question == Scope::kSameKind;
    double value = fixed ? std::exp(sum_of_logs / m.groups) : m.typical;
    if (estimator == Estimator::kSum) {
      value = fixed ? m.groups / sum_of_inverses
                    : m.typical * std::exp(-m.between_sd * m.between_sd / 2);
      value *= std::exp(-m.within_sd * m.within_sd / 2);
    }
    const auto alone = reports::speedup(pairs, estimator)->interval;
    const auto designed = reports::speedup(pairs, estimator, design)->interval;
    for (const auto& [interval, of] :
         {std::pair(alone, &c.on_their_own), std::pair(designed, &c.designed)}) {
      ++of->experiments;
      of->covered += interval && interval->lo <= value && value <= interval->hi ? 1 : 0;
    }
    widths.push_back(std::log(designed->hi / designed->lo) / std::log(alone->hi / alone->lo));
  }
  c.relative_width = base::median(widths);
  return c;
}

SessionDraw draw_sessions(const SessionModel& m, Normals& normals) {
  std::vector<double> before, after;
  SessionDraw draw;
  for (int i = 0; i < m.prompts; ++i) {
    before.push_back(0.9 + 0.3 * normals.next());
    const double change = m.change_sd * normals.next();
    after.push_back(before.back() + change);
    draw.change += change / m.prompts;
  }
  for (auto* side : {&draw.a, &draw.b})
    for (int r = 0; r < m.sessions; ++r) {
      const double shift = m.session_sd * normals.next();
      std::vector<double> session;
      for (const double log : side == &draw.a ? before : after)
        session.push_back(log + shift + m.timing_sd * normals.next());
      side->push_back(std::move(session));
    }
  return draw;
}

double Coverage::share() const { return static_cast<double>(covered) / experiments; }
double Coverage::standard_error() const { return std::sqrt(share() * (1 - share()) / experiments); }

Coverage cover(int experiments, uint64_t seed, const Experiment& experiment) {
  Normals normals(seed);
  Coverage c;
  for (c.experiments = 0; c.experiments < experiments; ++c.experiments)
    c.covered += experiment(normals) ? 1 : 0;
  return c;
}

namespace {

bool holds(const std::optional<base::Interval>& interval, double value) {
  return interval && interval->lo <= value && value <= interval->hi;
}

}  // namespace

namespace {

std::optional<base::Interval> linearised_interval(const std::vector<PromptPair>& pairs,
                                                  Estimator estimator) {
  PromptPair sum;
  for (const PromptPair& p : pairs) {
    sum.tokens += p.tokens, sum.ns += p.ns;
    sum.base_tokens += p.base_tokens, sum.base_ns += p.base_ns;
  }
  double squares = 0, speeds = 0, base_speeds = 0;
  for (const PromptPair& p : pairs)
    speeds += p.tokens / p.ns, base_speeds += p.base_tokens / p.base_ns;
  for (const PromptPair& p : pairs) {
    const double u = estimator == Estimator::kSum
                         ? p.tokens / sum.tokens - p.ns / sum.ns - p.base_tokens / sum.base_tokens +
                               p.base_ns / sum.base_ns
                         : p.tokens / p.ns / speeds - p.base_tokens / p.base_ns / base_speeds;
    squares += u * u;
  }
  const auto n = static_cast<double>(pairs.size());
  const double half = base::student_t_quantile(0.975, n - 1) * std::sqrt(n / (n - 1) * squares);
  const double value = reports::speedup(pairs, estimator)->value;
  return base::Interval{value * std::exp(-half), value * std::exp(half)};
}

}  // namespace

Coverage cover_prompts(const PromptModel& model, int n, Estimator estimator, IntervalOf by,
                       int experiments, int resamples) {
  const double value = truth(estimator, model);
  uint64_t seed = 0;
  return cover(experiments, 1, [&](Normals& normals) {
    const std::vector<PromptPair> pairs = draw_prompts(model, n, normals);
    if (by == IntervalOf::kBootstrap)
      return holds(
          reports::bootstrap_interval(pairs, estimator, {.seed = ++seed, .resamples = resamples}),
          value);
    if (by == IntervalOf::kLinearised && estimator != Estimator::kGeo)
      return holds(linearised_interval(pairs, estimator), value);
    return holds(reports::speedup(pairs, estimator)->interval, value);
  });
}

double relative_width(const PromptModel& model, int n, Estimator estimator, int experiments) {
  Normals normals(1);
  std::vector<double> ratios;
  const auto width = [](const base::Interval& i) { return std::log(i.hi / i.lo); };
  for (int e = 0; e < experiments; ++e) {
    const std::vector<PromptPair> pairs = draw_prompts(model, n, normals);
    ratios.push_back(width(*reports::speedup(pairs, estimator)->interval) /
                     width(*linearised_interval(pairs, estimator)));
  }
  return base::median(ratios);
}

Coverage cover_sessions(const SessionModel& model, Scope scope, int experiments) {
  return cover(experiments, 2, [&](Normals& normals) {
    const SessionDraw draw = draw_sessions(model, normals);
    return holds(reports::session_change(draw.a, draw.b, scope)->interval,
                 scope == Scope::kFixedSet ? draw.change : 0);
  });
}

Coverage cover_ignoring_sessions(const SessionModel& model, Scope scope, int experiments) {
  const auto means = [](const reports::SessionLogs& logs) {
    std::vector<double> sums(logs.front().size(), 0);
    for (const std::vector<double>& session : logs)
      for (size_t i = 0; i < sums.size(); ++i)
        sums[i] += session[i] / static_cast<double>(logs.size());
    return reports::SessionLogs{sums};
  };
  return cover(experiments, 2, [&](Normals& normals) {
    const SessionDraw draw = draw_sessions(model, normals);
    return holds(reports::session_change(means(draw.a), means(draw.b), scope)->interval,
                 scope == Scope::kFixedSet ? draw.change : 0);
  });
}

namespace {

std::vector<std::vector<reports::TokensAndTime>> draw_arms(const ArmsModel& m, int n,
                                                           Estimator estimator, Normals& normals) {
  std::vector<std::vector<reports::TokensAndTime>> arms(static_cast<size_t>(m.arms));
  for (int i = 0; i < n; ++i) {
    const double tokens = 100 * std::exp(m.length_sd * normals.next()), shared = normals.next();
    for (int a = 0; a < m.arms; ++a) {
      const double sd = m.least_sd + (m.largest_sd - m.least_sd) * a / (m.arms - 1);
      // So that the figure estimated is the same for all (truth() above).
      const double half_variance = sd * sd / 2;
      const double level = estimator == Estimator::kSum      ? half_variance
                           : estimator == Estimator::kLegacy ? -half_variance
                                                             : 0;
      const double log_speed =
          level + sd * (std::sqrt(m.shared) * shared + std::sqrt(1 - m.shared) * normals.next());
      arms[static_cast<size_t>(a)].push_back(
          {tokens, tokens * 1e7 * std::exp(m.timing_sd * normals.next() - log_speed)});
    }
  }
  return arms;
}

}  // namespace

Coverage cover_best_set(const ArmsModel& model, int n, Estimator estimator, int experiments,
                        double confidence) {
  uint64_t seed = 0;
  return cover(experiments, 1, [&](Normals& normals) {
    const size_t chosen = seed % 2 == 0 ? 0 : static_cast<size_t>(model.arms) - 1;
    const auto best =
        reports::best_set(draw_arms(model, n, estimator, normals), estimator, ++seed, confidence);
    return bool{best->member[chosen]};
  });
}

Coverage cover_ranks(const ArmsModel& model, double steps, int n, Estimator estimator,
                     int experiments) {
  uint64_t seed = 0;
  return cover(experiments, 3, [&](Normals& normals) {
    auto arms = draw_arms(model, n, estimator, normals);
    for (size_t a = 0; a < arms.size(); ++a)
      for (reports::TokensAndTime& p : arms[a]) p.ns *= std::exp(-steps * static_cast<double>(a));
    const auto best = reports::best_set(arms, estimator, ++seed);
    bool held = true;
    for (size_t a = 0; a < arms.size(); ++a) {
      const reports::ArmRank& r = best->ranks[a];
      const double behind = steps * (static_cast<double>(a) - static_cast<double>(best->fastest));
      const int rank = static_cast<int>(arms.size() - a);
      held = held && (steps == 0 ? r.lowest == 1 && r.highest == static_cast<int>(arms.size())
                                 : r.lowest <= rank && rank <= r.highest);
      held = held && (!r.behind || (r.behind->lo <= behind && behind <= r.behind->hi));
      held = held && (!best->member[a] || r.lowest == 1);
    }
    return held;
  });
}

namespace {

constexpr double kBinaryLevel = 0.7;                      // 76 % of the control's answers are right
constexpr double kRougeLevel = -0.7, kRougeSpread = 0.3;  // mean 0.25, sd 0.1

double score_of(const ScoresModel& m, double quality) {
  return m.binary ? (quality > -kBinaryLevel ? 1 : 0)
                  : base::normal_cdf(kRougeLevel + kRougeSpread * quality);
}

// The mean score of answers whose quality is normal around `level`.
double mean_score(const ScoresModel& m, double level) {
  if (m.binary) return base::normal_cdf(kBinaryLevel + level);
  return base::normal_cdf((kRougeLevel + kRougeSpread * level) /
                          std::sqrt(1 + kRougeSpread * kRougeSpread));
}

}  // namespace

QualityCoverage cover_quality(const ScoresModel& m, int n, int experiments) {
  using Differences = std::vector<std::vector<std::optional<double>>>;
  const auto n_arms = static_cast<size_t>(m.arms);
  std::vector<double> levels, truths;
  for (int a = 1; a <= m.arms; ++a) {
    levels.push_back(-m.steps * a);
    truths.push_back((1 - m.same) * (mean_score(m, levels.back()) - mean_score(m, 0)));
  }
  QualityCoverage c;
  uint64_t seed = 0;
  const auto held = [&](const std::optional<reports::ControlDifference>& d, size_t a) {
    return !d->interval || (d->interval->lo <= truths[a] && truths[a] <= d->interval->hi);
  };
  const double own = std::sqrt((1 - m.shared) / 2);
  c.at_once = cover(experiments, 4, [&](Normals& normals) {
    Differences arms(n_arms);
    for (int i = 0; i < n; ++i) {
      const double control = normals.next(), common = normals.next();
      for (size_t a = 0; a < n_arms; ++a) {
        const bool same = base::normal_cdf(normals.next()) < m.same;
        const double quality =
            levels[a] + std::sqrt(m.shared) * control + own * (common + normals.next());
        arms[a].push_back(same ? 0 : score_of(m, quality) - score_of(m, control));
      }
    }
    const auto found = reports::control_differences(arms, ++seed);
    bool all = true, each = true;
    for (size_t a = 0; a < n_arms; ++a) {
      all = all && held(found[a], a);
      each = each && held(reports::control_differences(std::span(arms).subspan(a, 1), seed)[0], a);
      const double of_all = static_cast<double>(n_arms) * experiments;
      c.without += (found[a]->interval ? 0 : 1) / of_all;
      c.differing += found[a]->differing / of_all;
    }
    ++c.alone.experiments;
    c.alone.covered += each ? 1 : 0;
    return all;
  });
  return c;
}

}  // namespace evalrun::tests
