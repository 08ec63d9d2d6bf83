#include "tests/reports/data/machine_coverage.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/base/stats.h"
#include "reports/machines/machines.h"

namespace evalrun::tests {

using reports::Estimator;
using reports::PromptPair;

namespace {

constexpr double kOutlierShare = 0.1, kOutlierFactor = 3;

struct MachineDraw {
  std::vector<PromptPair> pairs, one_clock;  // by the machines' clocks; by one
  std::vector<int> machine;                  // by pair
  std::vector<double> effects;               // ln speedup of a machine over the typical one's
};

MachineDraw draw_machines(const MachineModel& m, Normals& normals) {
  MachineDraw d;
  std::vector<reports::PlainTotals> plain;
  for (size_t k = 0; k < m.sizes.size(); ++k) {
    const bool outlier = m.outliers && base::normal_cdf(normals.next()) < kOutlierShare;
    d.effects.push_back(m.speedup_sd * (outlier ? kOutlierFactor : 1) * normals.next());
    const double slowness = std::exp(m.speed_sd * normals.next());
    reports::PlainTotals& of = plain.emplace_back();
    for (PromptPair p : draw_prompts(m.prompts, m.sizes[k], normals)) {
      p.base_ns *= slowness, p.ns *= slowness * std::exp(-d.effects.back());
      of.tokens += p.base_tokens, of.ns += p.base_ns;
      d.pairs.push_back(p);
      d.machine.push_back(static_cast<int>(k));
    }
  }
  const std::vector<double> scales = reports::clock_scales(plain);
  d.one_clock = d.pairs;
  for (size_t i = 0; i < d.pairs.size(); ++i) {
    const double scale = scales[static_cast<size_t>(d.machine[i])];
    d.one_clock[i].base_ns *= scale, d.one_clock[i].ns *= scale;
  }
  return d;
}

// As PromptDesigns makes it: machines are strata where they have two prompts on average.
reports::Design design_of(const MachineDraw& d, size_t machines) {
  reports::Design design;
  if (2 * machines > d.machine.size()) return design;
  design.unit.resize(d.machine.size());
  std::iota(design.unit.begin(), design.unit.end(), 0);
  design.stratum = d.machine;
  return design;
}

// `typical`: the truth of the typical machine.
double true_value(const MachineModel& m, const MachineDraw& d, Question question,
                  Estimator estimator, double typical) {
  const double variance = m.speedup_sd * m.speedup_sd;
  if (question == Question::kLikeThese) {
    if (estimator == Estimator::kGeo) return typical;
    const double usual = std::exp(variance / 2);
    const double outlier = std::exp(kOutlierFactor * kOutlierFactor * variance / 2);
    return typical / (m.outliers ? (1 - kOutlierShare) * usual + kOutlierShare * outlier : usual);
  }
  const double all = static_cast<double>(d.machine.size());
  double sum = 0;
  for (size_t k = 0; k < m.sizes.size(); ++k)
    sum +=
        m.sizes[k] / all * (estimator == Estimator::kGeo ? d.effects[k] : std::exp(-d.effects[k]));
  return typical * (estimator == Estimator::kGeo ? std::exp(sum) : 1 / sum);
}

// Means and variances of ln speedup of the machines that have two prompts.
struct MachineMeans {
  std::vector<double> mean, variance;
};

MachineMeans means_of_machines(const MachineModel& m, const MachineDraw& d, bool pooled) {
  MachineMeans of;
  std::vector<double> sizes;
  double squares = 0, degrees = 0;
  size_t at = 0;
  for (const int n : m.sizes) {
    const std::vector<double> logs =
        reports::log_ratios(std::span(d.pairs).subspan(at, static_cast<size_t>(n)));
    at += static_cast<size_t>(n);
    if (logs.size() < 2) continue;
    const auto size = static_cast<double>(logs.size());
    const double sd = base::sample_sd(logs);
    of.mean.push_back(base::mean(logs));
    of.variance.push_back(sd * sd / size);
    sizes.push_back(size);
    squares += (size - 1) * sd * sd, degrees += size - 1;
  }
  for (size_t k = 0; pooled && k < sizes.size(); ++k) of.variance[k] = squares / degrees / sizes[k];
  return of;
}

struct RandomEffects {
  double mean = 0, q = 0, weights = 0;  // q: sum of w (x - mean)^2
};

RandomEffects random_effects(const MachineMeans& of, double tau2) {
  RandomEffects r;
  double sum = 0;
  for (size_t k = 0; k < of.mean.size(); ++k) {
    const double weight = 1 / (of.variance[k] + tau2);
    r.weights += weight, sum += weight * of.mean[k];
  }
  r.mean = sum / r.weights;
  for (size_t k = 0; k < of.mean.size(); ++k)
    r.q += (of.mean[k] - r.mean) * (of.mean[k] - r.mean) / (of.variance[k] + tau2);
  return r;
}

std::optional<base::Interval> hksj_interval(const MachineMeans& of) {
  if (of.mean.size() < 2) return std::nullopt;
  const double dof = static_cast<double>(of.mean.size()) - 1;
  // Paule and Mandel: the tau for which Q is what it should be; Q falls as tau rises.
  double lo = 0, hi = 0;
  if (random_effects(of, 0).q > dof) {
    hi = 1e-6;
    while (random_effects(of, hi).q > dof) hi *= 2;
    for (int i = 0; i < 60; ++i) {
      const double middle = (lo + hi) / 2;
      (random_effects(of, middle).q > dof ? lo : hi) = middle;
    }
  }
  const RandomEffects r = random_effects(of, hi);
  const double half = base::student_t_quantile(0.975, dof) * std::sqrt(r.q / dof / r.weights);
  return base::Interval{std::exp(r.mean - half), std::exp(r.mean + half)};
}

std::optional<base::Interval> interval_of(const MachineModel& m, const MachineDraw& d,
                                          Question question, Estimator estimator, JoinedBy by) {
  if (by == JoinedBy::kHksj || by == JoinedBy::kHksjPooled)
    return hksj_interval(means_of_machines(m, d, by == JoinedBy::kHksjPooled));
  if (by == JoinedBy::kPooled) return reports::speedup(d.pairs, estimator)->interval;
  if (question == Question::kThese)
    return reports::speedup(d.one_clock, estimator, design_of(d, m.sizes.size()))->interval;
  return reports::join_machines(d.one_clock, d.machine, static_cast<int>(m.sizes.size()), estimator)
      .like_these->interval;
}

}  // namespace

MachineModel machine_model(int k, std::vector<int> sizes, double speedup_sd) {
  MachineModel m;
  for (int i = 0; i < k; ++i) m.sizes.push_back(sizes[static_cast<size_t>(i) % sizes.size()]);
  m.speedup_sd = speedup_sd;
  return m;
}

MachineCoverage cover_machines(const MachineModel& model, Question question, Estimator estimator,
                               JoinedBy by, int experiments) {
  MachineCoverage c;
  std::vector<double> widths;
  const double typical = truth(estimator, model.prompts);  // an integral: once
  c.coverage = cover(experiments, 5, [&](Normals& normals) {
    const MachineDraw d = draw_machines(model, normals);
    const auto interval = interval_of(model, d, question, estimator, by);
    if (!interval) return false;
    widths.push_back(std::log(interval->hi / interval->lo));
    const double value = true_value(model, d, question, estimator, typical);
    return interval->lo <= value && value <= interval->hi;
  });
  if (!widths.empty()) c.width = base::median(widths);
  return c;
}

SpreadCalls call_spread(const MachineModel& model, Estimator estimator, int experiments) {
  SpreadCalls calls;
  calls.by_f = cover(experiments, 6, [&](Normals& normals) {
    const MachineDraw d = draw_machines(model, normals);
    const MachineMeans of = means_of_machines(model, d, false);
    ++calls.by_chi_square.experiments;
    calls.by_chi_square.covered +=
        base::chi_square_p(random_effects(of, 0).q, static_cast<int>(of.mean.size()) - 1) < 0.05;
    const auto spread = reports::join_machines(d.one_clock, d.machine,
                                               static_cast<int>(model.sizes.size()), estimator)
                            .spread;
    return spread && spread->p < 0.05;
  });
  return calls;
}

}  // namespace evalrun::tests
