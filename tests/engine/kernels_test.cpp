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
