// Simulated measurements whose true value is known, to count how often an interval holds it: the
// study prints figures, the test keeps them. Length and speedup of a prompt are log-normal and
// correlated, both arms give the same text, plain decoding takes the same time per token
// everywhere, and every time has noise of its own.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "engine/base/rng.h"
#include "engine/base/stats.h"
#include "reports/data/best_set.h"
#include "reports/data/control_differences.h"
#include "reports/data/estimators.h"
#include "reports/data/sessions.h"

namespace evalrun::tests {

// Standard normal numbers (Box and Muller 1958).
class Normals {
 public:
  explicit Normals(uint64_t seed) : rng_(seed) {}
  double next();

 private:
  base::Rng rng_;
  std::optional<double> second_;
};

// Standard deviations of logs.
struct PromptModel {
  double rho = 0;  // correlation of ln length and ln speedup; below 0: long answers draft worse
  double typical = 2.5, length_sd = 0.8, speedup_sd = 0.3, timing_sd = 0.02;
  double cut = std::numeric_limits<double>::infinity();  // the limit of tokens; typical is 100
  double pareto = 0;  // above 0: lengths of that Pareto exponent, from 50 tokens on
  // Share of answers that run in a loop: to the limit, and with a typical speedup of 6.
  double looping = 0;
};
double truth(reports::Estimator estimator, const PromptModel& model);
std::vector<reports::PromptPair> draw_prompts(const PromptModel& model, int n, Normals& normals);

// Prompts that belong together: `kinds` fixed ones (or drawn anew), or groups such as problems in
// several languages, with `members` prompts each. ln speed is the sum of a normal number of the
// kind or group and one of the prompt.
struct GroupModel {
  int groups = 20, members = 6;
  bool are_kinds = false;  // categories: strata or clusters, by the question; else groups
  double between_sd = 0.15, within_sd = 0.15, length_sd = 0.8, timing_sd = 0.02, typical = 2.5;
};

// Two sides, nothing changed on average: a prompt's own change, what a session does to all its
// prompts, and the noise of one prompt's ratio in one session.
struct SessionModel {
  int prompts = 80, sessions = 5;  // a side
  double change_sd = 0.03, session_sd = 0.015, timing_sd = 0.02;
};
struct SessionDraw {
  reports::SessionLogs a, b;
  double change = 0;  // mean over these prompts: the truth of the fixed set; the population's is 0
};
SessionDraw draw_sessions(const SessionModel& model, Normals& normals);

// Share of experiments whose interval holds the truth.
struct Coverage {
  int covered = 0, experiments = 0;
  double share() const;
  double standard_error() const;  // of the simulation
};
using Experiment = std::function<bool(Normals&)>;  // did it hold?
Coverage cover(int experiments, uint64_t seed, const Experiment& experiment);

// kLinearised: as the ratio of sums had it before, with linear influences and n - 1 degrees of
// freedom; legacy likewise.
enum class IntervalOf { kStudent, kBootstrap, kLinearised };
Coverage cover_prompts(const PromptModel& model, int n, reports::Estimator estimator, IntervalOf by,
                       int experiments, int resamples = 1000);
// Median width of the interval (ends' logs) over that of the linearised one.
double relative_width(const PromptModel& model, int n, reports::Estimator estimator,
                      int experiments);
// kFixedSet: as if every prompt were on its own; the question is still `question`.
struct GroupCoverage {
  Coverage on_their_own, designed;
  double relative_width = 0;  // median, designed over on their own
};
GroupCoverage cover_groups(const GroupModel& model, reports::Scope question,
                           reports::Estimator estimator, int experiments);
Coverage cover_sessions(const SessionModel& model, reports::Scope scope, int experiments);
// Arms that are equally fast, none being the baseline: the hardest case for the set of the best.
// ln speed of an arm on a prompt is normal with a deviation of its own, its correlation between two
// arms `shared`; lengths are as above.
struct ArmsModel {
  int arms = 5;
  double least_sd = 0.3, largest_sd = 0.3;  // of ln speed, evenly over the arms
  double shared = 0.5, length_sd = 0.8, timing_sd = 0.02;
};
// Share of experiments in which the set holds an arm that was chosen beforehand: the first and the
// last in turn.
Coverage cover_best_set(const ArmsModel& model, int n, reports::Estimator estimator,
                        int experiments, double confidence = 0.95);
// Share of experiments in which all rank sets hold the ranks, and all intervals of the differences
// from the arm with the largest estimate the true ones. `steps`: ln speeds of the arms rise by
// that; with 0 all are equal, and no two may be told apart.
Coverage cover_ranks(const ArmsModel& model, double steps, int n, reports::Estimator estimator,
                     int experiments);

// Scores of answers beside a control's. An arm gives the control's answer with the chance `same`;
// else it has one of its own, whose quality has the correlation `shared` with the control's and as
// large a share in common with the other arms. Quality is normal. The score is 1 where it is above
// 0 (binary), else it rises with it from 0 to 1, about 0.25 with sd 0.1, as ROUGE-L does.
struct ScoresModel {
  int arms = 5;
  bool binary = true;
  double same = 0, shared = 0.5;
  double steps = 0;  // by which each arm's quality is below the one's before; the control is first
};
// Share of experiments in which the intervals of all arms' differences hold the true ones. An arm
// without an interval says nothing and so holds; `without` is the share of such arms, `differing`
// the mean number of prompts on which an arm scores otherwise. `alone`: the same with the interval
// that an arm would have by itself.
struct QualityCoverage {
  Coverage at_once, alone;
  double without = 0, differing = 0;
};
QualityCoverage cover_quality(const ScoresModel& model, int n, int experiments);
// The sessions' means per prompt taken for one session: what an interval over prompts makes of it.
Coverage cover_ignoring_sessions(const SessionModel& model, reports::Scope scope, int experiments);

}  // namespace evalrun::tests
