// Tokens found among logits on the device are those the host finds: the best, the mass, the draws.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/cuda/answer_buffers.h"
#include "engine/cuda/device_distributions.h"
#include "engine/cuda/runtime/check.h"
#include "engine/rejection.h"
#include "tests/gpu/device_memory.h"
#include "tests/sample.h"

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

struct Tasks {
  const DeviceDistributions* dists = nullptr;
  std::vector<AnswerTask> list;  // [rows]
  std::vector<int32_t> children;
  std::vector<double> further;
};

template <typename T>
const T* uploaded(const std::vector<T>& values, DeviceBuffer& to) {
  const size_t bytes = values.size() * sizeof(T);
  to.ensure(std::max(bytes, sizeof(T)));
  if (bytes > 0) to.upload(values.data(), bytes);
  return to.as<T>();
}

// One row of logits each, of one size.
class DeviceAnswers : public ::testing::Test {
 protected:
  void find(const std::vector<std::vector<float>>& rows, AnswerShape shape,
            const std::vector<double>& uniforms, const Tasks& tasks = {}) {
    shape.rows = static_cast<int>(rows.size());
    shape.n_logits = static_cast<int>(rows[0].size());
    shape.n_best = std::min(shape.n_best, shape.n_logits);
    for (const AnswerTask& task : tasks.list)
      shape.rejection_tests =
          std::max(shape.rejection_tests, task.kind > AnswerTask::kDraws ? task.place + 1 : 0);
    shape_ = shape;
    found_.make_room(shape);
    std::vector<float> logits;
    for (const auto& row : rows) logits.insert(logits.end(), row.begin(), row.end());
    EVALRUN_CUDA(cudaMemcpy(found_.logits(), logits.data(), logits.size() * sizeof(float),
                            cudaMemcpyHostToDevice));
    DeviceBuffer device_uniforms;
    device_uniforms.ensure(uniforms.size() * sizeof(double));
    if (!uniforms.empty())
      EVALRUN_CUDA(cudaMemcpy(device_uniforms.as<void>(), uniforms.data(),
                              uniforms.size() * sizeof(double), cudaMemcpyHostToDevice));
    AnswerInputs inputs;
    if (shape.draws) inputs.uniforms = device_uniforms.as<double>();
    DeviceBuffer list, children, further;
    if (shape.tasks) {
      inputs.tasks = uploaded(tasks.list, list);
      inputs.children = uploaded(tasks.children, children);
      inputs.further_uniforms = uploaded(tasks.further, further);
      inputs.dists = tasks.dists->memory();
    }
    found_.queue(shape, inputs, nullptr);
    EVALRUN_CUDA(cudaDeviceSynchronize());
  }

  // Draws from these rows, each by its uniform (< 0: none), by both samplers; check(params) of
  // each.
  template <typename Check>
  void draw_by_both(const std::vector<std::vector<float>>& rows, SamplingParams params,
                    const std::vector<double>& uniforms, const Check& check) {
    AnswerShape shape;
    shape.draws = true;
    shape.inverse_temperature = inverse_temperature(params);
    shape.top_k = params.top_k, shape.top_p = params.top_p;
    for (const Sampler sampler : {Sampler::kInverse, Sampler::kGumbel}) {
      params.sampler = sampler;
      shape.noise = sampler == Sampler::kGumbel;
      find(rows, shape, uniforms);
      check(params);
    }
  }
  // They are the host's.
  void expect_draws(const std::vector<std::vector<float>>& rows, const SamplingParams& how,
                    const std::vector<double>& uniforms) {
    WarpScratch scratch;
    draw_by_both(rows, how, uniforms, [&](const SamplingParams& params) {
      for (size_t i = 0; i < rows.size(); ++i) {
        SCOPED_TRACE(fmt::format("{}, row {} of {} logits, temperature {}, top-k {}, top-p {}",
                                 to_string(params.sampler), i, rows[i].size(), params.temperature,
                                 params.top_k, params.top_p));
        const int row = static_cast<int>(i);
        if (uniforms[i] < 0) {
          EXPECT_THROW(found_.drawn(shape_, row), base::InternalError);
        } else {
          EXPECT_EQ(found_.drawn(shape_, row), draw(rows[i], params, uniforms[i], scratch));
        }
      }
    });
  }

  AnswerShape shape_;
  AnswerBuffers found_;
};

TEST_F(DeviceAnswers, TheBestAreTheHosts) {
  for (const int n : tests::sample({1, 2, 31, 37, 1024, 1025, 4097, 20000, 130001}, 4))
    for (const bool ties : {false, true})
      for (const int k : tests::sample({1, 10, 64}, 1)) {
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

// Beyond 262,144 logits a group is four times as long; below, the last one is a block's last list.
TEST_F(DeviceAnswers, TheBestOfManyAreTheHosts) {
  for (const int n : {262144, 262145}) {
    std::vector<float> logits = random_logits(n, 11, false);
    logits.back() = 8.5f, logits[0] = 8.75f;
    find({logits}, {.n_best = 10}, {});
    std::vector<TokenLogit> best;
    found_.read(shape_, 0, best);
    const auto want = top_k(logits, 10);
    ASSERT_EQ(best.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(best[i].token, want[i].token) << n << " logits, number " << i;
      EXPECT_EQ(best[i].logit, want[i].logit) << n << " logits, number " << i;
    }
    EXPECT_EQ(best[1].token, 0);
    EXPECT_EQ(best[2].token, n - 1);
  }
}

// All the best in one group, so in one list; and one in every group.
TEST_F(DeviceAnswers, TheBestAreFoundWhereverTheyLie) {
  constexpr int kBest = 64, kLogits = 64 * 256;
  std::vector<std::vector<float>> rows(2, std::vector<float>(kLogits, -3.0f));
  for (int i = 0; i < kBest; ++i) {
    rows[0][static_cast<size_t>(5 * 256 + 3 * i)] = static_cast<float>(i % 7);
    rows[1][static_cast<size_t>(256 * i + 255 - i)] = static_cast<float>(i % 7);
  }
  find(rows, {.n_best = kBest}, {});
  for (int row = 0; row < 2; ++row) {
    std::vector<TokenLogit> best;
    found_.read(shape_, row, best);
    const auto want = top_k(rows[static_cast<size_t>(row)], kBest);
    ASSERT_EQ(best.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(best[i].token, want[i].token) << "row " << row << ", number " << i;
  }
}

TEST_F(DeviceAnswers, DrawsAreTheHosts) {
  struct Distribution {
    double temperature;
    int top_k;
    double top_p;
  };
  constexpr double kCold = 1e-300;
  base::Rng rng(3);
  int cut = 0;
  for (const int n : tests::sample({1, 2, 37, 4096, 4097, 50000}, 3))
    for (const bool ties : {false, true}) {
      std::vector<Distribution> dists = tests::sample({Distribution{1, 0, 1},
                                                       {0.3, 0, 1},
                                                       {2, 0, 0.9},
                                                       {1, 5, 1},
                                                       {1.5, 50, 0.5},
                                                       {8, 300, 0.97},
                                                       {1, 0, 1e-9}},
                                                      3);
      // So cold that only the best token has mass; where an emulated device is quick.
      if (n < 50000) {
        dists.push_back({kCold, 0, 1});
        dists.push_back({kCold, 0, 0.9});
      }
      for (const Distribution& dist : dists) {
        SamplingParams params{dist.temperature, dist.top_k, dist.top_p};
        AnswerShape shape;
        shape.draws = true;
        shape.inverse_temperature = inverse_temperature(params);
        shape.top_k = dist.top_k, shape.top_p = dist.top_p;
        const std::vector<std::vector<float>> rows(4, random_logits(n, rng.next(), ties));
        const std::vector<double> uniforms = {0, 1 - 0x1p-53, -1, rng.uniform()};
        WarpScratch scratch;
        for (const Sampler sampler : {Sampler::kInverse, Sampler::kGumbel}) {
          params.sampler = sampler;
          shape.noise = sampler == Sampler::kGumbel;
          find(rows, shape, uniforms);
          for (int row = 0; row < 4; ++row) {
            const auto at = static_cast<size_t>(row);
            if (uniforms[at] < 0) {
              EXPECT_THROW(found_.drawn(shape_, row), base::InternalError);
              continue;
            }
            EXPECT_EQ(found_.drawn(shape_, row), draw(rows[at], params, uniforms[at], scratch))
                << to_string(sampler) << ", " << n << " logits, temperature " << dist.temperature
                << ", top-k " << dist.top_k << ", top-p " << dist.top_p << ", uniform "
                << uniforms[at];
            if (dist.temperature == kCold) {
              EXPECT_EQ(found_.drawn(shape_, row), argmax(rows[at])) << n << " logits";
            }
          }
        }
        cut += dist.top_p < 1 || dist.top_k > 0;
      }
    }
  EXPECT_GT(cut, tests::test_everything() ? 20 : 5);  // 3 of 6 sizes, 3 of 7 distributions
}

// As many tokens share the logit at the border as the search lists, one fewer or one more.
TEST_F(DeviceAnswers, TiesAroundTheLengthOfTheListAreTheHosts) {
  for (const int ties : tests::sample({1023, 1024, 1025}, 2))
    for (const SamplingParams& params :
         {SamplingParams{1, 0, 0.5}, SamplingParams{1, ties / 2, 1}, SamplingParams{1, 600, 0.7}}) {
      base::Rng rng(static_cast<uint64_t>(ties));
      std::vector<float> row(3000, -1.0f);
      for (int i = 0; i < ties; ++i) row[static_cast<size_t>(i * 2 + 1)] = 2.0f;
      AnswerShape shape;
      shape.draws = true;
      shape.inverse_temperature = inverse_temperature(params);
      shape.top_k = params.top_k, shape.top_p = params.top_p;
      const std::vector<double> uniforms = {0, 0.3, 1 - 0x1p-53, rng.uniform()};
      find({row, row, row, row}, shape, uniforms);
      WarpScratch scratch;
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(found_.drawn(shape_, i),
                  draw(row, params, uniforms[static_cast<size_t>(i)], scratch))
            << ties << " ties, top-k " << params.top_k << ", top-p " << params.top_p;
    }
}

// Tokens that differ late: fewer and more within one of the bins that a border is looked for in
// first, and within the digits after it, than the search lists.
TEST_F(DeviceAnswers, BordersAmongCloseLogitsAreTheHosts) {
  base::Rng rng(9);
  struct Close {
    int tokens;
    float width;  // of their logits, from 2; a bin is 0.25 wide, a 256th of it 0.001
  };
  for (const Close& kind : tests::sample(
           {Close{900, 0.24f}, {1024, 0.24f}, {1025, 0.24f}, {3000, 0.24f}, {3000, 0.0008f}}, 3)) {
    std::vector<float> row(static_cast<size_t>(kind.tokens) + 500);
    for (float& logit : row) logit = static_cast<float>(6 * rng.uniform() - 5);
    for (int i = 0; i < kind.tokens; ++i)
      row[static_cast<size_t>(i) + 250] = 2.0f + kind.width * static_cast<float>(rng.uniform());
    row[3] = 3.5f;
    const int k = kind.tokens / 2;
    for (const SamplingParams& params :
         {SamplingParams{1, 0, 0.3}, SamplingParams{2, 0, 0.8}, SamplingParams{1, k, 1},
          SamplingParams{1, k, 0.6}, SamplingParams{1, kind.tokens, 0.9},
          SamplingParams{0.5, 20, 0.5}})
      expect_draws({row, row, row, row}, params, {0.1, 1 - 0x1p-53, -1, rng.uniform()});
  }
}

// Of the few tokens that top-k leaves, two bytes tell the second from the first. Those cut share
// these bytes: top-p must not let them in again.
TEST_F(DeviceAnswers, TopPKeepsNothingThatTopKCuts) {
  const std::vector<float> row = {2.19f, 5.0f, 2.195f, 2.2f, 2.198f};
  for (const int k : {1, 2, 3})
    for (const double top_p : {0.2, 0.5, 0.9, 0.97})
      expect_draws({row, row, row, row}, {2, k, top_p}, {0, 0.3, 0.6, 1 - 0x1p-53});
}

// Each with rows beside it that have other borders, or none.
TEST_F(DeviceAnswers, BordersOfOddRowsAreTheHosts) {
  base::Rng rng(13);
  for (const int n : tests::sample({1, 2, 700, 1500, 3000}, 3)) {
    const auto size = static_cast<size_t>(n);
    std::vector<std::vector<float>> rows = {
        std::vector<float>(size, 1.5f), std::vector<float>(size, -kInfinity),
        random_logits(n, rng.next(), true), std::vector<float>(size, -0.0f),
        random_logits(n, rng.next(), false)};
    // Few are possible; zeros of both signs are equal.
    for (size_t i = 0; i < size; i += 500) rows[1][i] = static_cast<float>(i % 3) - 1;
    for (size_t i = 1; i < size; i += 2) rows[3][i] = 0.0f;
    for (const SamplingParams& params :
         {SamplingParams{1, 0, 0.7}, SamplingParams{0.7, 20, 1}, SamplingParams{1.3, 1200, 0.9}})
      expect_draws(rows, params, {rng.uniform(), rng.uniform(), -1, rng.uniform(), rng.uniform()});
  }
}

TEST_F(DeviceAnswers, BordersOfManyTokensAreTheHosts) {
  base::Rng rng(17);
  const std::vector<float> row = random_logits(130001, 5, false);
  for (const SamplingParams& params :
       tests::sample({SamplingParams{0.8, 0, 0.95}, {1, 50, 0.9}, {30, 0, 0.5}}, 1))
    expect_draws({row}, params, {rng.uniform()});
}

// A drafter's outputs among target ids, or none where they are the same.
std::vector<int32_t> ids_of(int outputs, int vocab, bool fewer, base::Rng& rng) {
  if (!fewer) return {};
  std::vector<int32_t> all(static_cast<size_t>(vocab));
  std::iota(all.begin(), all.end(), 0);
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[rng.below(i)]);
  all.resize(static_cast<size_t>(outputs));
  return all;
}

// Distributions kept and drawn from by one call, children tried against them by the next, as in a
// step.
TEST_F(DeviceAnswers, DrawsAndTrialsOfKeptDistributionsAreTheHosts) {
  base::Rng rng(5);
  int passed = 0, refused = 0, later = 0;
  for (const int vocab : tests::sample({1, 3, 40, 511, 4097, 50000}, 3))
    for (const bool fewer : {false, true})
      for (const SamplingParams& params :
           {SamplingParams{1, 0, 1}, SamplingParams{0.6, 40, 0.95}, SamplingParams{4, 0, 1}}) {
        SCOPED_TRACE(fmt::format("{} tokens, fewer drafted: {}, temperature {}", vocab, fewer,
                                 params.temperature));
        const int outputs = fewer ? (vocab + 1) / 2 : vocab;
        const std::vector<int32_t> ids = ids_of(outputs, vocab, fewer, rng);
        const DeviceDistributions dists(0, 3, vocab, ids);
        AnswerShape shape;
        shape.draws = shape.tasks = true;
        shape.inverse_temperature = inverse_temperature(params);
        shape.top_k = params.top_k, shape.top_p = params.top_p;

        // Rows 0 and 2 draw, row 1 is a plain one.
        std::vector<std::vector<float>> drafts;
        for (int i = 0; i < 3; ++i) drafts.push_back(random_logits(outputs, rng.next(), i == 2));
        std::vector<double> uniforms = {rng.uniform(), rng.uniform(), rng.uniform()};
        Tasks tasks;
        tasks.dists = &dists;
        tasks.further = {rng.uniform(), 0, rng.uniform(), 1 - 0x1p-53, rng.uniform()};
        tasks.list = {{AnswerTask::kDraws, 2, 0, 2}, {}, {AnswerTask::kDraws, 0, 2, 3}};
        shape.more_draws = 3;
        find(drafts, shape, uniforms, tasks);
        std::vector<uint64_t> dist[3];
        std::vector<int32_t> drawn[3];
        uint64_t total[3] = {};
        WarpScratch scratch;
        for (const int row : {0, 2}) {
          const auto r = static_cast<size_t>(row);
          std::vector<uint64_t> own;
          total[r] = dist_masses(drafts[r], params, own, scratch);
          dist[r].assign(static_cast<size_t>(vocab), 0);
          for (size_t i = 0; i < own.size(); ++i)
            dist[r][fewer ? static_cast<size_t>(ids[i]) : i] = own[i];
          const AnswerTask& task = tasks.list[r];
          std::vector<double> by = {uniforms[r]};
          by.insert(by.end(), tasks.further.begin() + task.first,
                    tasks.further.begin() + task.first + task.count);
          draw_without_replacement({dist[r], total[r]}, by, drawn[r]);
          ASSERT_EQ(found_.drawn(shape_, row), drawn[r][0]);
          ASSERT_EQ(found_.drawn_mass(shape_, row), dist[r][static_cast<size_t>(drawn[r][0])]);
          for (int i = 0; i <= task.count; ++i)
            ASSERT_EQ(found_.drawn_token(shape_, row, i), drawn[r][static_cast<size_t>(i)]);
        }
        EXPECT_EQ(found_.drawn(shape_, 1), draw(drafts[1], params, uniforms[1], scratch));

        // Their children, tried where the target has distributions of its own, and one close to the
        // draft's.
        std::vector<std::vector<float>> targets;
        std::vector<double> tries;
        tasks.list.clear(), tasks.children.clear();
        std::vector<std::vector<int32_t>> children;
        for (int i = 0; i < 6; ++i) {
          const size_t from = i % 2 == 0 ? 0 : 2;
          auto logits = random_logits(vocab, rng.next(), i == 1);
          if (i >= 2 && !fewer)
            for (size_t t = 0; t < logits.size(); ++t)
              logits[t] = drafts[from][t] + static_cast<float>(rng.uniform());
          targets.push_back(logits);
          tries.push_back(i == 5 ? 1 - 0x1p-53 : rng.uniform());
          std::vector<int32_t> own;
          for (const int32_t token : drawn[from])
            if (token >= 0 && (i < 4 || own.empty())) own.push_back(token);
          if (i == 4) own.push_back(own[0]);  // independent draws may repeat
          tasks.list.push_back({i == 4 ? AnswerTask::kRejectionRepeating : AnswerTask::kRejection,
                                from == 0 ? 2 : 0, static_cast<int32_t>(tasks.children.size()),
                                static_cast<int32_t>(own.size()), i});
          tasks.children.insert(tasks.children.end(), own.begin(), own.end());
          children.push_back(std::move(own));
        }
        tasks.list[3] = {}, children[3].clear(),
        tasks.list[5].place = 3;  // a plain draw among them
        shape.more_draws = 0;
        find(targets, shape, tries, tasks);
        for (int i = 0; i < 6; ++i) {
          SCOPED_TRACE(fmt::format("trial {}", i));
          const auto at = static_cast<size_t>(i);
          const size_t from = i % 2 == 0 ? 0 : 2;
          if (i == 3) {
            EXPECT_EQ(found_.drawn(shape_, i), draw(targets[at], params, tries[at], scratch));
            continue;
          }
          std::vector<uint64_t> own;
          const uint64_t all = dist_masses(targets[at], params, own, scratch);
          const RejectionOutcome want =
              try_children(own, all, {dist[from], total[from]}, children[at], i == 4, tries[at]);
          ASSERT_EQ(found_.passed(shape_, i), want.passed);
          ASSERT_EQ(found_.drawn(shape_, i), want.token);
          passed += want.passed >= 0, later += want.passed > 0, refused += want.passed < 0;
        }
      }
  const int least = tests::test_everything() ? 20 : 10;  // half of the sizes
  EXPECT_GT(passed, least);
  EXPECT_GT(refused, least);
  if (tests::test_everything()) {
    EXPECT_GT(later, 3);
  }
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
  // Rows beside it are drawn from as ever.
  const auto good = random_logits(5000, 8, false);
  auto bad = good;
  bad[17] = bad[4000] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> nothing(5000, -kInfinity);
  WarpScratch scratch;
  for (const SamplingParams& how :
       {SamplingParams{1, 0, 0.9}, SamplingParams{1, 30, 1}, SamplingParams{1, 30, 0.9}})
    draw_by_both({bad, good, nothing}, how, {0.4, 0.4, 0.4}, [&](const SamplingParams& params) {
      EXPECT_THROW(found_.drawn(shape_, 0), base::Error);
      EXPECT_EQ(found_.drawn(shape_, 1), draw(good, params, 0.4, scratch));
      EXPECT_THROW(found_.drawn(shape_, 2), base::Error);
    });
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
