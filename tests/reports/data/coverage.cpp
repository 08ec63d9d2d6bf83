#include "tests/reports/data/coverage.h"

#include <cmath>
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

// With z, w standard normal of correlation rho, length L = exp(l z) and speedup s = t exp(v w):
// sum = E L / E(L / s), and L / s is log-normal with variance l^2 + v^2 - 2 rho l v; geo = exp E ln
// s; legacy = E s, the baseline's speed being the same everywhere. The noise of times has the same
// mean factor above and below.
double truth(Estimator estimator, const PromptModel& m) {
  const double half_variance = m.speedup_sd * m.speedup_sd / 2;
  switch (estimator) {
    case Estimator::kSum:
      return m.typical * std::exp(m.rho * m.length_sd * m.speedup_sd - half_variance);
    case Estimator::kGeo:
      return m.typical;
    case Estimator::kLegacy:
      return m.typical * std::exp(half_variance);
  }
  return 0;
}

std::vector<PromptPair> draw_prompts(const PromptModel& m, int n, Normals& normals) {
  std::vector<PromptPair> pairs;
  for (int i = 0; i < n; ++i) {
    const double z = normals.next();
    const double w = m.rho * z + std::sqrt(1 - m.rho * m.rho) * normals.next();
    PromptPair p;
    p.tokens = p.base_tokens = 100 * std::exp(m.length_sd * z);
    p.base_ns = p.tokens * 1e7 * std::exp(m.timing_sd * normals.next());
    p.ns = p.tokens * 1e7 / (m.typical * std::exp(m.speedup_sd * w)) *
           std::exp(m.timing_sd * normals.next());
    pairs.push_back(p);
  }
  return pairs;
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
    return holds(reports::speedup(pairs, estimator)->interval, value);
  });
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

}  // namespace evalrun::tests
