#include "reports/data/crossover.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/base/error.h"
#include "reports/data/jackknife.h"

namespace evalrun::reports {

namespace {

// Between two measured sizes that are neighbours.
struct Stretch {
  double from = 0, to = 0;                 // ln batch
  double log_from = 0, log_to = 0;         // ln speedup
  std::optional<Jackknife> first, second;  // of these, over the same units
  double dof = 0, n_eff = 0;
};

// A place of the curve: w of the way along a stretch.
struct CurvePoint {
  size_t stretch = 0;
  double w = 0;
};

bool comes_before(const CurvePoint& a, const CurvePoint& b) {
  return std::pair(a.stretch, a.w) < std::pair(b.stretch, b.w);
}

double at_batch(const Stretch& s, double w) { return std::exp(s.from + w * (s.to - s.from)); }

std::vector<Sums> pair_sums(const std::vector<PromptPair>& pairs) {
  std::vector<Sums> sums;
  sums.reserve(pairs.size());
  for (const PromptPair& p : pairs) sums.push_back({p.tokens, p.ns, p.base_tokens, p.base_ns});
  return sums;
}

std::optional<Stretch> stretch_of(const SpeedupAtBatch& a, const SpeedupAtBatch& b,
                                  std::span<const int64_t> prompts, const PromptDesigns& designs) {
  const auto of_a = speedup_value(a.pairs, Estimator::kSum);
  const auto of_b = speedup_value(b.pairs, Estimator::kSum);
  if (!of_a || !of_b) return std::nullopt;
  Stretch s{.from = std::log(static_cast<double>(a.batch)),
            .to = std::log(static_cast<double>(b.batch)),
            .log_from = std::log(*of_a),
            .log_to = std::log(*of_b),
            .first = {},
            .second = {}};
  const Design& design = designs.of(prompts, std::lcm(a.batch, b.batch));
  const Units first = units_of(pair_sums(a.pairs), design);
  const Units second = units_of(pair_sums(b.pairs), design);
  s.first = jackknife(first, log_ratio), s.second = jackknife(second, log_ratio);
  s.n_eff = first.effective_count(1);
  for (const double more :
       {first.effective_count(3), second.effective_count(1), second.effective_count(3)})
    s.n_eff = std::min(s.n_eff, more);
  s.dof = first.degrees(s.n_eff);
  return s;
}

base::Interval limits(const Stretch& s, double w, double confidence) {
  Jackknife j;
  j.value = (1 - w) * s.log_from + w * s.log_to;
  j.deviations.resize(s.first->deviations.size());
  for (size_t u = 0; u < j.deviations.size(); ++u)
    j.deviations[u] = (1 - w) * s.first->deviations[u] + w * s.second->deviations[u];
  return student_interval(j, std::min(s.dof, j.kurtosis_dof()), confidence);
}

// The first place from `begin` on that `holds` is true of, to a billionth of a stretch; nullopt
// where there is none. Stretches are looked through in steps.
template <typename Holds>
std::optional<CurvePoint> first_place(std::span<const Stretch> curve, const CurvePoint& begin,
                                      const Holds& holds) {
  constexpr int kSteps = 64, kHalvings = 24;
  if (holds(curve[begin.stretch], begin.w)) return begin;
  for (size_t i = begin.stretch; i < curve.size(); ++i) {
    double before = i == begin.stretch ? begin.w : 0;
    for (int k = 0; k <= kSteps; ++k) {
      double at = static_cast<double>(k) / kSteps;
      if (at < before) continue;
      if (!holds(curve[i], at)) {
        before = at;
        continue;
      }
      for (int h = 0; h < kHalvings; ++h) {
        const double middle = (before + at) / 2;
        (holds(curve[i], middle) ? at : before) = middle;
      }
      return CurvePoint{i, at};
    }
  }
  return std::nullopt;
}

// Where the curve crosses 1 from above for the first time, and from where on it is above before
// that: the beginning, or where it has risen above 1.
struct Crossing {
  CurvePoint begin;
  bool rises = false;  // it begins below
  std::optional<CurvePoint> down;
  int crossings = 0;
};

Crossing crossing_of(std::span<const Stretch> curve) {
  Crossing c;
  for (size_t i = 0; i < curve.size(); ++i) {
    const double a = curve[i].log_from, b = curve[i].log_to;
    if ((a > 0) == (b > 0)) continue;
    ++c.crossings;
    const CurvePoint at = {i, a / (a - b)};
    if (a <= 0 && !c.down) c.begin = at, c.rises = true;
    if (a > 0 && !c.down) c.down = at;
  }
  return c;
}

}  // namespace

std::string CurvePlace::text() const {
  switch (where) {
    case Where::kBelow:
      return fmt::format("below {:.0f}", batch);
    case Where::kInside:
      return fmt::format("{:.1f}", batch);
    case Where::kAbove:
      return fmt::format("above {:.0f}", batch);
  }
  EVALRUN_CHECK(false, "unknown place {}", static_cast<int>(where));
}

std::string Crossover::text() const {
  return lo && hi ? fmt::format("{} [{}, {}]", at.text(), lo->text(), hi->text()) : at.text();
}

std::optional<Crossover> crossover(std::span<const SpeedupAtBatch> curve,
                                   std::span<const int64_t> prompts, const PromptDesigns& designs,
                                   double confidence) {
  if (curve.size() < 2) return std::nullopt;
  std::vector<Stretch> stretches;
  for (size_t i = 0; i + 1 < curve.size(); ++i) {
    EVALRUN_CHECK(curve[i].batch < curve[i + 1].batch, "batch {} before {}", curve[i].batch,
                  curve[i + 1].batch);
    auto s = stretch_of(curve[i], curve[i + 1], prompts, designs);
    if (!s) return std::nullopt;
    stretches.push_back(std::move(*s));
  }
  using Where = CurvePlace::Where;
  const CurvePlace below = {Where::kBelow, static_cast<double>(curve.front().batch)};
  const CurvePlace above = {Where::kAbove, static_cast<double>(curve.back().batch)};
  const auto place = [&](const std::optional<CurvePoint>& p) {
    if (!p) return above;
    if (p->stretch == 0 && p->w == 0) return below;
    return CurvePlace{Where::kInside, at_batch(stretches[p->stretch], p->w)};
  };
  const Crossing crossing = crossing_of(stretches);
  Crossover c;
  c.crossings = crossing.crossings;
  c.at = crossing.down ? place(crossing.down) : stretches.back().log_to > 0 ? above : below;
  c.n_eff = stretches.front().n_eff;
  bool known = true;
  for (const Stretch& s : stretches) {
    c.n_eff = std::min(c.n_eff, s.n_eff);
    known = known && s.first && s.second;
  }
  if (!known) return c;
  const auto above_1 = [&](const Stretch& s, double w) { return limits(s, w, confidence).lo > 0; };
  const auto not_above_1 = [&](const Stretch& s, double w) { return !above_1(s, w); };
  const auto below_1 = [&](const Stretch& s, double w) { return limits(s, w, confidence).hi < 0; };
  // A curve that has risen above 1 is not shown to be above right there.
  CurvePoint begin = crossing.begin;
  if (crossing.rises)
    if (const auto shown = first_place(stretches, begin, above_1);
        shown && (!crossing.down || comes_before(*shown, *crossing.down)))
      begin = *shown;
  c.lo = place(first_place(stretches, begin, not_above_1));
  // Between a rise and a fall the curve is above 1.
  const bool stays_above = !crossing.down && c.at.where == Where::kAbove;
  c.hi = stays_above
             ? above
             : place(first_place(stretches, crossing.down.value_or(crossing.begin), below_1));
  return c;
}

}  // namespace evalrun::reports
