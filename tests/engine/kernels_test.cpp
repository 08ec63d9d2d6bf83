// Kernels one by one, at sizes a forward of a small model never has: many panels, partial ones, row
// counts around every tile and group border.
#include "engine/cpu/kernels/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/prepared_rows.h"
#include "engine/cpu/reference_products.h"
#include "tests/engine/random_models.h"
#include "tests/sample.h"

namespace evalrun::engine::testing {
namespace {

using cpu::Kernels;
using cpu::kLanes;
using cpu::PreparedRows;

WeightMatrix random_matrix(WeightStorage storage, int out, int in) {
  WeightMatrix w(storage, out, in);
  for (int o = 0; o < out; ++o) w.set_row(o, random_floats(in, static_cast<uint64_t>(1000 + o)));
  return w;
}

class EveryKernel : public ::testing::TestWithParam<Kernels> {};

TEST_P(EveryKernel, ProductsAreTheDefinitions) {
  const Kernels& k = GetParam();
  const WeightStorage storages[] = {WeightStorage::kF32, WeightStorage::kBf16,
                                    WeightStorage::kInt8Channel, WeightStorage::kInt8Group,
                                    WeightStorage::kQ4Group};
  // 27 panels, the last partial; inputs that end in a block, and that do not fill one.
  for (const auto& [out, in] : {std::pair{27 * 16 - 5, 192}, {13 * 16, 75}, {7, 320}}) {
    std::vector<std::vector<float>> x;
    for (int r = 0; r < 40; ++r) x.push_back(random_floats(in, static_cast<uint64_t>(r)));
    for (const WeightStorage storage : storages) {
      const WeightMatrix w = random_matrix(storage, out, in);
      std::vector<std::vector<float>> want;
      for (const auto& row : x) want.push_back(cpu::reference_product(w, row));
      PreparedRows prepared;
      prepared.ensure(k, storage, x.size(), in);
      for (size_t r = 0; r < x.size(); ++r) prepared.set(r, w, x[r].data());
      for (const int n :
           tests::sample({-2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17, 24, 33, 40}, 6)) {
        const bool one_stream = n < 0;  // matters for one and two rows only
        const int rows = std::abs(n);
        const int ld = out + 3;
        base::AlignedVector<float> y(static_cast<size_t>(rows * ld), -77.0f);
        cpu::multiply(k, storage,
                      {prepared.view(w), rows, w.panel(0), w.panel_bytes(), w.panels(), in, out,
                       y.data(), ld, one_stream});
        for (int r = 0; r < rows; ++r) {
          const float* got = y.data() + r * ld;
          ASSERT_TRUE(same_bits({got, static_cast<size_t>(out)}, want[static_cast<size_t>(r)]))
              << "storage " << static_cast<int>(storage) << ", " << out << " x " << in << ", row "
              << r << " of " << rows;
          ASSERT_EQ(got[out], -77.0f) << "written past the row";
        }
      }
    }
  }
}

// Chunks of several queries: whole, cut on both sides, and of queries that see nothing of it.
TEST_P(EveryKernel, SoftmaxIsTheDefinitionOfEachQuery) {
  const Kernels& k = GetParam();
  constexpr int kQueries = 37;
  base::Rng rng(5);
  for (const int lo : {0, 1, 15, 16, 50, 127}) {
    std::vector<float> s = random_floats(kQueries * cpu::kChunk, static_cast<uint64_t>(lo));
    std::vector<int> hi;
    for (int q = 0; q < kQueries; ++q)
      hi.push_back(q % 5 == 0 ? cpu::kChunk : static_cast<int>(rng.below(cpu::kChunk + 1)));
    hi[3] = lo, hi[4] = -9;
    base::AlignedVector<float> got(s.begin(), s.end());
    std::vector<float> max(kQueries, -77.0f), sum(kQueries, -77.0f);
    k.softmax_chunk(got.data(), kQueries, lo, hi.data(), max.data(), sum.data());
    for (int q = 0; q < kQueries; ++q) {
      const auto at = static_cast<size_t>(q), end = static_cast<size_t>(hi[at]);
      const float* scores = s.data() + q * cpu::kChunk;
      const float* p = got.data() + q * cpu::kChunk;
      if (hi[at] <= lo) {
        EXPECT_TRUE(same_bits({p, cpu::kChunk}, {scores, cpu::kChunk})) << q;
        EXPECT_EQ(max[at], -77.0f);
        EXPECT_EQ(sum[at], -77.0f);
        continue;
      }
      const float top = *std::max_element(scores + lo, scores + end);
      float lane[kLanes] = {};
      for (size_t j = static_cast<size_t>(lo); j < end; ++j) {
        const float want = cpu::exp_fixed(scores[j] - top);
        ASSERT_TRUE(same_bits({p + j, 1}, {&want, 1})) << "query " << q << ", position " << j;
        lane[j % kLanes] = lane[j % kLanes] + want;
      }
      EXPECT_EQ(max[at], top);
      EXPECT_EQ(sum[at], cpu::sum_lanes(lane)) << "query " << q << ", " << lo << " to " << end;
    }
  }
}

TEST_P(EveryKernel, MergeIsTheDefinitionOfEachQuery) {
  const Kernels& k = GetParam();
  constexpr int kWidth = 48;
  for (const int n : {1, 3, 15, 16, 17, 24, 64}) {
    const std::vector<float> sums = random_floats(n * kWidth, 1),
                             more = random_floats(n * kWidth, 2);
    const std::vector<float> m = random_floats(n, 3), l = random_floats(n, 4),
                             chunk_m = random_floats(n, 5), chunk_l = random_floats(n, 6);
    base::AlignedVector<float> out(sums.begin(), sums.end());
    out.push_back(-77.0f);
    std::vector<float> got_m = m, got_l = l;
    got_m.push_back(-77.0f), got_l.push_back(-77.0f);
    k.merge(out.data(), got_m.data(), got_l.data(), more.data(), chunk_m.data(), chunk_l.data(), n,
            kWidth);
    for (size_t q = 0; q < static_cast<size_t>(n); ++q) {
      const cpu::Merge g = cpu::merge_chunk(m[q], l[q], chunk_m[q], chunk_l[q]);
      EXPECT_TRUE(same_bits({&got_m[q], 1}, {&g.m, 1}) && same_bits({&got_l[q], 1}, {&g.l, 1}));
      for (size_t d = q * kWidth; d < (q + 1) * kWidth; ++d) {
        const float want = sums[d] * g.keep + more[d] * g.add;
        ASSERT_TRUE(same_bits({&out[d], 1}, {&want, 1})) << "query " << q << " of " << n;
      }
    }
    EXPECT_EQ(out.back(), -77.0f);
    EXPECT_EQ(got_m.back(), -77.0f);
    EXPECT_EQ(got_l.back(), -77.0f);
  }
}

TEST_P(EveryKernel, TrackMaxFindsTheFirstLargestAndReportsWhatIsNotFinite) {
  const Kernels& k = GetParam();
  for (const int n : {1, 15, 16, 17, 100, 768}) {
    std::vector<float> y = random_floats(n, static_cast<uint64_t>(n));
    y[static_cast<size_t>(n - 1)] = y[static_cast<size_t>(n / 2)] = 99.0f;  // a tie
    alignas(64) float best[kLanes], block[kLanes] = {};
    const auto run = [&] {
      std::fill_n(best, kLanes, -std::numeric_limits<float>::infinity());
      return k.track_max(y.data(), n, 5, best, block);
    };
    EXPECT_TRUE(run());
    int token = std::numeric_limits<int>::max();
    for (int lane = 0; lane < kLanes; ++lane)
      if (best[lane] == 99.0f)
        token = std::min(token, (static_cast<int>(block[lane]) - 5) * kLanes + lane);
    EXPECT_EQ(token, n / 2) << n;
    for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      y[static_cast<size_t>(n / 3)] = odd;
      EXPECT_FALSE(run()) << n << " with " << odd;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryKernel,
                         ::testing::ValuesIn(cpu::available_kernels().begin(),
                                             cpu::available_kernels().end()),
                         [](const auto& path) {
                           std::string name = path.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace evalrun::engine::testing
