// The sampler against a plain second implementation: honest rows pass, planted faults of graded
// size are found, and what is too small to be found is said to be.
#include "runners/verify/plain_law.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "runners/verify/certificate.h"
#include "runners/verify/plain_distribution.h"

namespace evalrun::runners {
namespace {

using Row = std::vector<float>;
using engine::Sampler;
using engine::SamplingParams;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// As a model's: a few likely tokens, a long tail. Ids in no order.
Row model_row(size_t vocab, uint64_t seed) {
  base::Rng rng(seed);
  Row row(vocab);
  for (float& logit : row) {
    const double u = rng.uniform() + 1e-9;
    logit = static_cast<float>(-1.4 * std::log(u) - 3 * rng.uniform());
  }
  return row;
}

class PlainLawTest : public ::testing::Test {
 protected:
  PlainLaw honest(const std::vector<Row>& rows) {
    return test_plain_law(rows, options_, clock_, [] {});
  }
  // Drawn from `drawn` by `by`, tested against `row` by the sampling of the options.
  PlainLaw faulty(const Row& row, const Row& drawn, const SamplingParams& by, int64_t draws) {
    PlainLawOptions options = options_;
    options.sampling = by;
    options.draws = draws;
    PlainLaw law;
    law.add(count_draws(drawn, options, 0, 60, clock_),
            plain_distribution(row, options_.sampling).prob, 1);
    return law;
  }
  PlainLawOptions options_{.draws = 300'000, .compared = 2000};
  base::SteadyClock clock_;
};

TEST_F(PlainLawTest, HonestRowsPass) {
  const std::vector<Row> rows = {model_row(3000, 1), model_row(700, 2), {1, 0}, Row(64, 2.5f)};
  const std::vector<SamplingParams> params = {{0.5, 0, 1.0},   {1.0, 0, 1.0},   {1.0, 0, 0.9},
                                              {1.0, 40, 1.0},  {0.7, 40, 0.95}, {1e-12, 0, 1.0},
                                              {1e-310, 0, 1.0}};
  for (const SamplingParams& sampling : params)
    for (const uint64_t seed : {1, 2, 3}) {
      options_.sampling = sampling;
      options_.seed = seed;
      const PlainLaw law = honest(rows);
      EXPECT_GE(law.p(), kCertificateLevel)
          << sampling.temperature << " " << sampling.top_k << " " << sampling.top_p;
      EXPECT_EQ(law.draws(), 4 * 300'000);
      EXPECT_EQ(law.differing(), 0);
      EXPECT_EQ(law.rows[0].compared, 2000);
    }
}

TEST_F(PlainLawTest, DrawsByNoisePass) {
  const std::vector<Row> rows = {model_row(3000, 1), {1, 0}, Row(64, 2.5f)};
  options_.draws = 20'000;
  for (const SamplingParams& sampling :
       {SamplingParams{1.0, 0, 1.0, Sampler::kGumbel}, {0.5, 40, 0.9, Sampler::kGumbel}}) {
    options_.sampling = sampling;
    const PlainLaw law = honest(rows);
    EXPECT_GE(law.p(), kCertificateLevel);
    EXPECT_EQ(law.rows[0].compared, 0) << "each draw is the engine's";
  }
  // As many as the time allows.
  options_.draws = 1'000'000'000;
  options_.seconds = 0.3;
  const PlainLaw law = honest(rows);
  EXPECT_GE(law.rows[0].draws, 1000);
  EXPECT_LT(law.draws(), 1'000'000'000);
}

TEST_F(PlainLawTest, TiesAndCertainTokens) {
  Row ties(100, 0.0f);
  ties[3] = ties[50] = ties[97] = 2.0f;
  Row one(50, kNever);
  one[20] = -4;
  Row nearly(50, -60.0f);
  nearly[7] = 40;
  for (const SamplingParams& sampling : {SamplingParams{1.0, 0, 0.5},
                                         {1.0, 2, 1.0},
                                         {1.0, 10, 1.0},
                                         {1.0, 10, 0.99},
                                         {1e-30, 0, 0.9},
                                         {1.0, 1, 1.0}}) {
    options_.sampling = sampling;
    for (const Row& row : {ties, one, nearly}) {
      PlainLaw law = honest({row});
      EXPECT_GE(law.p(), kCertificateLevel) << sampling.top_k << " " << sampling.top_p;
      law.find_power(kCertificateLevel, 1);
      EXPECT_GT(*law.smallest_found, 0);
      EXPECT_LE(*law.smallest_found, 1);
    }
  }
  options_.sampling = {1.0, 0, 1.0};
  PlainLaw law = honest({one});
  law.find_power(kCertificateLevel, 1);
  EXPECT_NEAR(*law.smallest_found, 1e-5, 1e-6) << "3 / 300,000";
}

TEST_F(PlainLawTest, TheDistributionByHand) {
  const float two = std::log(2.0f), four = std::log(4.0f);
  const Row row = {0, two, four, 0};
  const auto dist = [&](const SamplingParams& s) { return plain_distribution(row, s).prob; };
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-7) << i;
  };
  near(dist({1.0, 0, 1.0}), {.125, .25, .5, .125});
  near(dist({0.5, 0, 1.0}), {1 / 22.0, 4 / 22.0, 16 / 22.0, 1 / 22.0});
  near(dist({1.0, 2, 1.0}), {0, 1 / 3.0, 2 / 3.0, 0});
  near(dist({1.0, 3, 1.0}), {.125, .25, .5, .125});  // a tie at the border
  near(dist({1.0, 0, 0.8}), {1 / 7.0, 2 / 7.0, 4 / 7.0, 0});
  near(dist({1.0, 2, 0.6}), {0, 0, 1, 0});  // of what top-k left
}

TEST_F(PlainLawTest, FindsPlantedFaults) {
  const Row row = model_row(150, 5);
  const SamplingParams plain{1.0, 0, 1.0};
  options_.sampling = plain;
  const std::vector<double> dist = plain_distribution(row, plain).prob;
  Row dropped = row, swapped = row;
  std::vector<size_t> order(row.size());  // likeliest first
  for (size_t i = 0; i < row.size(); ++i) {
    if (dist[i] < 1e-3) dropped[i] = kNever;
    order[i] = i;
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
  std::swap(swapped[order[20]], swapped[order[30]]);
  EXPECT_LT(faulty(row, row, {0.98, 0, 1.0}, 10'000'000).p(), 1e-4);
  EXPECT_LT(faulty(row, row, {1.0, 0, 0.95}, 1'000'000).p(), 1e-4);
  EXPECT_LT(faulty(row, dropped, plain, 1'000'000).p(), 1e-4);
  EXPECT_LT(faulty(row, swapped, plain, 10'000'000).p(), 1e-4);
  EXPECT_GE(faulty(row, swapped, plain, 1000).p(), kCertificateLevel) << "too few to see it";
  EXPECT_GE(faulty(row, row, plain, 10'000'000).p(), kCertificateLevel);
}

// A fault below what the test says it finds is not found, one above is.
TEST_F(PlainLawTest, SaysWhatItWouldHaveFound) {
  const Row row = model_row(150, 5);
  options_.sampling = {1.0, 0, 1.0};
  const auto right = plain_distribution(row, {1.0, 0, 1.0}).prob;
  const auto wrong = plain_distribution(row, {0.98, 0, 1.0}).prob;
  double variation = 0;
  for (size_t i = 0; i < right.size(); ++i) variation += std::abs(right[i] - wrong[i]) / 2;
  PlainLaw few = faulty(row, row, {0.98, 0, 1.0}, 1000);
  few.find_power(kCertificateLevel, 1);
  EXPECT_FALSE(few.rejected(kCertificateLevel));
  EXPECT_GT(*few.smallest_found, variation);
  PlainLaw many = faulty(row, row, {0.98, 0, 1.0}, 10'000'000);
  many.find_power(kCertificateLevel, 1);
  EXPECT_TRUE(many.rejected(kCertificateLevel));
  EXPECT_LT(*many.smallest_found, variation);
}

TEST_F(PlainLawTest, ADrawThatIsNotItsTablesIsAFault) {
  PlainLaw law;
  PlainCounts drawn;
  drawn.counts = {5000, 5000};
  drawn.draws = 10'000;
  drawn.compared = 100;
  drawn.differing = 1;
  law.add(drawn, std::vector<double>{.5, .5}, 1);
  EXPECT_EQ(law.p(), 0);
  EXPECT_EQ(law.differing(), 1);
}

TEST_F(PlainLawTest, RefusesLogitsWithoutADistribution) {
  EXPECT_THROW(honest({{1, std::nanf("")}}), base::Error);
  EXPECT_THROW(honest({{kNever, kNever}}), base::Error);
}

}  // namespace
}  // namespace evalrun::runners
