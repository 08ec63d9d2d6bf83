// Kernels one by one, at sizes a forward of a small model never has: many panels, partial ones, row
// counts around every tile and group border.
#include "engine/cpu/kernels/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/error.h"
#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/prepared_rows.h"
#include "engine/cpu/reference_products.h"
#include "tests/engine/random_models.h"
#include "tests/formats/weight_models.h"
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

// A file's blocks of random bytes; the scales' float16 alone are chosen, of either sign.
WeightMatrix random_k_matrix(DType type, int out, int in) {
  WeightMatrix w(WeightMatrix::storage_of(type), out, in);
  for (int o = 0; o < out; ++o) {
    base::Rng rng(static_cast<uint64_t>(2000 + o));
    std::string row = random_weights(type, in, rng);
    const size_t d = type == DType::kQ6_K ? 208 : 0;
    for (size_t at = d; at < row.size(); at += static_cast<size_t>(block_bytes(type)))
      if (rng.below(4) == 0) row[at + 1] = static_cast<char>(row[at + 1] ^ 0x80);
    w.set_row_exactly(o, type, {reinterpret_cast<const uint8_t*>(row.data()), row.size()});
  }
  return w;
}

constexpr DType kKTypes[] = {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

// Products of all row counts have the bits of the reference's.
void expect_the_definition(const Kernels& k, const WeightMatrix& w,
                           const std::vector<std::vector<float>>& x) {
  std::vector<std::vector<float>> want;
  for (const auto& row : x) want.push_back(cpu::reference_product(w, row));
  PreparedRows prepared;
  prepared.ensure(k, w.storage(), x.size(), w.in());
  for (size_t r = 0; r < x.size(); ++r) prepared.set(r, w, x[r].data());
  for (const int n :
       tests::sample({-2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17, 24, 33, 40}, 6)) {
    const bool one_stream = n < 0;  // matters for one and two rows only
    const int rows = std::min(std::abs(n), static_cast<int>(x.size()));
    const int ld = w.out() + 3;
    base::AlignedVector<float> y(static_cast<size_t>(rows * ld), -77.0f);
    cpu::multiply(k, w.storage(),
                  {prepared.view(w), rows, w.panel(0), w.panel_bytes(), w.panels(), w.in(), w.out(),
                   y.data(), ld, one_stream});
    for (int r = 0; r < rows; ++r) {
      const float* got = y.data() + r * ld;
      ASSERT_TRUE(same_bits({got, static_cast<size_t>(w.out())}, want[static_cast<size_t>(r)]))
          << "storage " << static_cast<int>(w.storage()) << ", " << w.out() << " x " << w.in()
          << ", row " << r << " of " << rows;
      ASSERT_EQ(got[w.out()], -77.0f) << "written past the row";
    }
  }
}

std::vector<std::vector<float>> random_inputs(int rows, int in) {
  std::vector<std::vector<float>> x;
  for (int r = 0; r < rows; ++r) x.push_back(random_floats(in, static_cast<uint64_t>(r)));
  return x;
}

class EveryKernel : public ::testing::TestWithParam<Kernels> {};

TEST_P(EveryKernel, ProductsAreTheDefinitions) {
  const WeightStorage storages[] = {WeightStorage::kF32, WeightStorage::kBf16,
                                    WeightStorage::kInt8Channel, WeightStorage::kInt8Group,
                                    WeightStorage::kQ4Group};
  // 27 panels, the last partial; inputs that end in a block, and that do not fill one.
  for (const auto& [out, in] : {std::pair{27 * 16 - 5, 192}, {13 * 16, 75}, {7, 320}})
    for (const WeightStorage storage : storages)
      expect_the_definition(GetParam(), random_matrix(storage, out, in), random_inputs(40, in));
}

TEST_P(EveryKernel, ProductsOfKQuantsAreTheDefinitions) {
  for (const auto& [out, in] : {std::pair{27 * 16 - 5, 256}, {13 * 16, 512}, {7, 768}})
    for (const DType type : kKTypes)
      expect_the_definition(GetParam(), random_k_matrix(type, out, in), random_inputs(40, in));
}

// The largest codes, scales and minima there are, with runs of the largest inputs: sums of 16 bits
// are at their ends.
TEST_P(EveryKernel, ProductsOfKQuantsHoldTheirLargestSums) {
  constexpr int kIn = 768, kRun = 76;  // so many ones in a row of zeros are 127 each
  std::vector<std::vector<float>> x;
  for (const int first : {0, 16, 100, kIn - kRun})
    for (const int kind : {0, 1, 2, 3}) {
      x.emplace_back(static_cast<size_t>(kIn), 0.0f);
      for (int i = first; i < first + kRun; ++i)
        x.back()[static_cast<size_t>(i)] = kind == 0                    ? 1.0f
                                           : kind == 1                  ? -1.0f
                                           : (i % 4 < 2) == (kind == 2) ? 1.0f
                                                                        : -1.0f;
    }
  for (const DType type : kKTypes) {
    WeightMatrix w(WeightMatrix::storage_of(type), 16, kIn);
    for (int o = 0; o < 16; ++o) {
      // All ones or all zeros: the largest code and scale, or the smallest of both (Q6_K: -32 and
      // -1; with -128 where the row is odd).
      std::string row(static_cast<size_t>(bytes_of(type, kIn)), o % 4 < 2 ? '\xFF' : '\0');
      const auto size = static_cast<size_t>(block_bytes(type));
      for (size_t at = 0; at < row.size(); at += size) {
        const uint16_t d = 0x3C00;  // 1
        if (type == DType::kQ6_K) {
          if (o % 2 == 1) row.replace(at + 192, 16, 16, '\x80');
          std::memcpy(&row[at + 208], &d, 2);
        } else {
          if (o % 4 >= 2) row.replace(at + 4, 12, 12, '\xFF');
          std::memcpy(&row[at], &d, 2), std::memcpy(&row[at + 2], &d, 2);
        }
      }
      w.set_row_exactly(o, type, {reinterpret_cast<const uint8_t*>(row.data()), row.size()});
    }
    expect_the_definition(GetParam(), w, x);
  }
}

// Rows for K-quants serve matrices of any integer storage: those of a layer are a mixture.
TEST_P(EveryKernel, RowsForKQuantsServeEveryStorageOfIntegers) {
  const Kernels& k = GetParam();
  constexpr int kIn = 512, kOut = 20;
  const auto x = random_inputs(3, kIn);
  std::vector<WeightMatrix> all;
  for (const WeightStorage s :
       {WeightStorage::kInt8Channel, WeightStorage::kInt8Group, WeightStorage::kQ4Group})
    all.push_back(random_matrix(s, kOut, kIn));
  for (const DType type : kKTypes) all.push_back(random_k_matrix(type, kOut, kIn));
  for (const WeightMatrix& first : all) {
    PreparedRows prepared;
    prepared.ensure(k, WeightStorage::kQ5K, x.size(), kIn);
    for (size_t r = 0; r < x.size(); ++r) prepared.set(r, first, x[r].data());
    for (const WeightMatrix& w : all) {
      base::AlignedVector<float> y(x.size() * kOut);
      cpu::multiply(k, w.storage(),
                    {prepared.view(first), static_cast<int>(x.size()), w.panel(0), w.panel_bytes(),
                     w.panels(), kIn, kOut, y.data(), kOut, false});
      for (size_t r = 0; r < x.size(); ++r)
        ASSERT_TRUE(same_bits({y.data() + r * kOut, kOut}, cpu::reference_product(w, x[r])))
            << static_cast<int>(first.storage()) << " " << static_cast<int>(w.storage());
    }
  }
}

// Other products pay for nothing that only K-quants read.
TEST_P(EveryKernel, RowsForOtherIntegersHaveNothingForKQuants) {
  const Kernels& k = GetParam();
  constexpr int kIn = 512;
  const std::vector<float> x = random_floats(kIn, 3);
  const WeightMatrix w = random_matrix(WeightStorage::kInt8Group, 20, kIn),
                     of_k = random_k_matrix(DType::kQ4_K, 20, kIn);
  PreparedRows plain, for_k;
  plain.ensure(k, w.storage(), 1, kIn), plain.set(0, w, x.data());
  for_k.ensure(k, of_k.storage(), 1, kIn), for_k.set(0, of_k, x.data());
  constexpr size_t values = kIn;
  EXPECT_EQ(plain.view(w).stride, values);
  EXPECT_EQ(plain.bytes(), values + sizeof(cpu::RowHeader) + kIn / 32 * sizeof(int32_t) +
                               kIn / 4 * sizeof(cpu::WideInputs));
  EXPECT_THROW((void)plain.view(of_k), base::InternalError);
  // What both have is the same.
  const cpu::InputRows a = plain.view(w), b = for_k.view(w);
  EXPECT_EQ(0, std::memcmp(a.values, b.values, values));
  EXPECT_EQ(a.headers->scale, b.headers->scale);
  EXPECT_EQ(a.headers->n_wide, b.headers->n_wide);
  EXPECT_EQ(0, std::memcmp(a.sums, b.sums, kIn / 32 * sizeof(int32_t)));
  // Rows that were for K-quants are others when they are asked for again.
  for_k.ensure(k, w.storage(), 1, kIn), for_k.set(0, w, x.data());
  EXPECT_EQ(for_k.view(w).stride, values);
  EXPECT_THROW((void)for_k.view(of_k), base::InternalError);
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
                         [](const auto& path) { return as_test_name(path.param.name); });

}  // namespace
}  // namespace evalrun::engine::testing
