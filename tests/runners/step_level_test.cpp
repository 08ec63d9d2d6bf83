// The level of the whole step test, and what it says it would have found. step_level_study counts
// 10^5 tests at the level of certificates.
#include <gtest/gtest.h>

#include "runners/verify/certificate.h"
#include "tests/runners/honest_steps.h"

namespace evalrun::runners {
namespace {

TEST(StepLevel, HonestDrawsAreRefusedAsSeldomAsTheLevelSays) {
  const HonestSteps steps(4, 200);
  constexpr int kTests = 1500;
  int below[2] = {}, refused = 0;
  for (uint64_t seed = 0; seed < kTests; ++seed) {
    const double p = steps.test(seed + 1'000'000).p();
    below[0] += p < 0.05;
    below[1] += p < 0.01;
    refused += p < kCertificateLevel;
  }
  // Four standard deviations; counts of few draws are whole numbers, so a little less is right.
  EXPECT_LE(below[0], 75 + 34);
  EXPECT_GE(below[0], 75 - 38);
  EXPECT_LE(below[1], 15 + 16);
  EXPECT_LE(refused, 1 + 5);
}

TEST(StepLevel, SaysWhatItWouldHaveFound) {
  StepDistribution few = HonestSteps(4, 200).test(1), many = HonestSteps(4, 2000).test(1);
  EXPECT_EQ(few.fits.size(), few.tests.size());
  EXPECT_FALSE(few.smallest_found);
  few.find_power(kCertificateLevel, 1);
  many.find_power(kCertificateLevel, 1);
  EXPECT_GT(*few.smallest_found, 0.03);
  EXPECT_LT(*few.smallest_found, 0.3);
  EXPECT_LT(*many.smallest_found, *few.smallest_found / 2);
  EXPECT_GT(*many.smallest_found, *few.smallest_found / 6);
}

}  // namespace
}  // namespace evalrun::runners
