// Tokens found among logits on the device are those the host finds: the best, the mass, the draws.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/cuda/answer_buffers.h"
#include "engine/cuda/check.h"
#include "tests/gpu/device_memory.h"

namespace evalrun::engine::cuda::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Few different values where `ties`.
std::vector<float> random_logits(int n, uint64_t seed, bool ties) {
  base::Rng rng(seed);
  std::vector<float> logits(static_cast<size_t>(n));
  for (float& x : logits) {
    x = static_cast<float>(24 * rng.uniform() - 16);
    if (ties) x = std::round(x / 4);  // -0 as well
    if (rng.uniform() < 0.02) x = -kInfinity;
  }
  logits[rng.below(static_cast<uint64_t>(n))] = 9;
  return logits;
}

// One row of logits each, of one size.
class DeviceAnswers : public ::testing::Test {
 protected:
  void find(const std::vector<std::vector<float>>& rows, AnswerShape shape,
            const std::vector<double>& chances) {
    shape.rows = static_cast<int>(rows.size());
    shape.n_logits = static_cast<int>(rows[0].size());
    shape.n_best = std::min(shape.n_best, shape.n_logits);
    shape_ = shape;
    found_.make_room(shape);
    std::vector<float> logits;
    for (const auto& row : rows) logits.insert(logits.end(), row.begin(), row.end());
    EVALRUN_CUDA(cudaMemcpy(found_.logits(), logits.data(), logits.size() * sizeof(float),
                            cudaMemcpyHostToDevice));
    DeviceBuffer device_chances;
    device_chances.ensure(chances.size() * sizeof(double));
    if (!chances.empty())
      EVALRUN_CUDA(cudaMemcpy(device_chances.as<void>(), chances.data(),
                              chances.size() * sizeof(double), cudaMemcpyHostToDevice));
    found_.queue(shape, shape.draws ? device_chances.as<double>() : nullptr, nullptr);
    EVALRUN_CUDA(cudaDeviceSynchronize());
  }

  AnswerShape shape_;
  AnswerBuffers found_;
};

TEST_F(DeviceAnswers, TheBestAreTheHosts) {
  for (const int n : {1, 2, 31, 37, 1024, 1025, 4097, 20000, 130001})
    for (const bool ties : {false, true})
      for (const int k : {1, 10, 64}) {
        const std::vector<std::vector<float>> rows = {random_logits(n, 1, ties),
                                                      random_logits(n, 2, ties)};
        find(rows, {.n_best = k, .sums = true}, {});
        for (int row = 0; row < 2; ++row) {
          const std::vector<float>& logits = rows[static_cast<size_t>(row)];
          std::vector<TokenLogit> best;
          found_.read(shape_, row, best);
          const auto want = top_k(logits, k);
          ASSERT_EQ(best.size(), want.size());
          for (size_t i = 0; i < want.size(); ++i) {
            ASSERT_EQ(best[i].token, want[i].token) << n << " logits, number " << i;
            ASSERT_EQ(best[i].logit, want[i].logit) << n << " logits, number " << i;
          }
          EXPECT_EQ(found_.log_sum(shape_, row), log_sum(logits)) << n;
        }
      }
}

TEST_F(DeviceAnswers, DrawsAreTheHosts) {
  struct Law {
    double temperature;
    int top_k;
    double top_p;
  };
  base::Rng rng(3);
  int cut = 0;
  for (const int n : {1, 2, 37, 4096, 4097, 50000})
    for (const bool ties : {false, true})
      for (const Law& law : {Law{1, 0, 1}, Law{0.3, 0, 1}, Law{2, 0, 0.9}, Law{1, 5, 1},
                             Law{1.5, 50, 0.5}, Law{8, 300, 0.97}, Law{1, 0, 1e-9}}) {
        const SamplingParams params{law.temperature, law.top_k, law.top_p};
        AnswerShape shape;
        shape.draws = true;
        shape.inverse_temperature = inverse_temperature(params);
        shape.top_k = law.top_k, shape.top_p = law.top_p;
        std::vector<std::vector<float>> rows(4, random_logits(n, rng.next(), ties));
        const std::vector<double> chances = {0, 1 - 0x1p-53, -1, rng.uniform()};
        find(rows, shape, chances);
        WarpScratch scratch;
        for (int row = 0; row < 4; ++row) {
          const auto at = static_cast<size_t>(row);
          if (chances[at] < 0) {
            EXPECT_THROW(found_.drawn(shape_, row), base::InternalError);
            continue;
          }
          EXPECT_EQ(found_.drawn(shape_, row), draw(rows[at], params, chances[at], scratch))
              << n << " logits, temperature " << law.temperature << ", top-k " << law.top_k
              << ", top-p " << law.top_p << ", chance " << chances[at];
        }
        cut += law.top_p < 1 || law.top_k > 0;
      }
  EXPECT_GT(cut, 20);
}

TEST_F(DeviceAnswers, WhatIsNoNumberIsSaid) {
  std::vector<TokenLogit> best;
  for (const int place : {0, 999, 1024, 4999}) {
    auto logits = random_logits(5000, 7, false);
    logits[static_cast<size_t>(place)] = std::numeric_limits<float>::quiet_NaN();
    find({logits}, {.n_best = 3, .sums = true}, {});
    EXPECT_THROW(found_.read(shape_, 0, best), base::Error) << place;
    EXPECT_THROW(found_.log_sum(shape_, 0), base::Error) << place;
  }
  // Nothing to draw from; the likeliest is the first all the same.
  for (const float value : {-kInfinity, kInfinity}) {
    find({std::vector<float>(3000, value)}, {.sums = true, .draws = true}, {0.5});
    found_.read(shape_, 0, best);
    EXPECT_EQ(best[0].token, 0);
    EXPECT_THROW(found_.log_sum(shape_, 0), base::Error);
    EXPECT_THROW(found_.drawn(shape_, 0), base::Error);
  }
}

}  // namespace
}  // namespace evalrun::engine::cuda::testing
