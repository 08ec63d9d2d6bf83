// A short form of `coverage_study machines` (docs/measurement.md, "Several machines"): joined
// intervals hold the truth about as often as they say, and pooling all prompts as if of one machine
// does not. Seeds are fixed, so that a bound is passed always or never.
#include "tests/reports/data/machine_coverage.h"

#include <gtest/gtest.h>

namespace evalrun::tests {
namespace {

using reports::Estimator;

constexpr int kMachineExperiments = 3'000;  // standard error 0.4 points at 95 %
constexpr double kBetween = 0.15;

double share(const MachineModel& model, Question question, Estimator estimator, JoinedBy by) {
  return cover_machines(model, question, estimator, by, kMachineExperiments).coverage.share();
}

TEST(MachineCoverage, OfTheseMachines) {
  for (const int k : {2, 4, 16})
    for (const double sd : {0.0, kBetween})
      for (const Estimator estimator : {Estimator::kSum, Estimator::kGeo}) {
        const MachineModel model = machine_model(k, {10, 30}, sd);
        EXPECT_NEAR(share(model, Question::kThese, estimator, JoinedBy::kJoined), 0.95, 0.02)
            << k << " machines, " << sd << ", " << to_string(estimator);
      }
}

// A slow machine has more of the time without having more of the job. The planted fault: all
// prompts on the machines' own clocks, as if one machine had measured them.
TEST(MachineCoverage, PoolingTheseMachinesMissesTheTruth) {
  const MachineModel model = machine_model(4, {80}, kBetween);
  EXPECT_NEAR(share(model, Question::kThese, Estimator::kSum, JoinedBy::kJoined), 0.95, 0.02);
  EXPECT_LT(share(model, Question::kThese, Estimator::kSum, JoinedBy::kPooled), 0.88);
}

TEST(MachineCoverage, OfMachinesLikeThese) {
  for (const int k : {4, 16})
    for (const Estimator estimator : {Estimator::kSum, Estimator::kGeo}) {
      const MachineModel model = machine_model(k, {20}, kBetween);
      EXPECT_NEAR(share(model, Question::kLikeThese, estimator, JoinedBy::kJoined), 0.95, 0.025)
          << k << " machines, " << to_string(estimator);
      EXPECT_LT(share(model, Question::kLikeThese, estimator, JoinedBy::kPooled), 0.8) << k;
    }
}

// Few prompts a machine: with each machine's own variance equal machines seem to differ.
TEST(MachineCoverage, EqualMachinesSeldomSeemToDiffer) {
  const SpreadCalls few = call_spread(machine_model(16, {4}, 0), Estimator::kGeo, 1'000);
  EXPECT_NEAR(few.by_f.share(), 0.05, 0.02);
  EXPECT_GT(few.by_chi_square.share(), 0.2);
  const SpreadCalls sums = call_spread(machine_model(4, {20}, 0), Estimator::kSum, 1'000);
  EXPECT_NEAR(sums.by_f.share(), 0.05, 0.025);
  EXPECT_GT(call_spread(machine_model(4, {80}, kBetween), Estimator::kSum, 300).by_f.share(), 0.8);
}

}  // namespace
}  // namespace evalrun::tests
