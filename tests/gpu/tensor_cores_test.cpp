// The model of tensor cores beside outputs that its authors' program computed (MMA-Sim; written by
// scripts/check-tensor-cores --write), and that each part of it is needed for them.
#include "tests/gpu/tensor_cores.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace evalrun::engine::cuda::testing {
namespace {

struct Output {
  float a[16], b[16], c;
  uint32_t hopper, ampere;
};

std::vector<Output> published_outputs() {
  std::ifstream file(EVALRUN_TEST_DATA "/tensor_cores.txt");
  std::vector<Output> outputs;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    words >> std::hex;
    const auto next = [&] {
      uint32_t word = 0;
      EXPECT_TRUE(words >> word) << line;
      return word;
    };
    Output& o = outputs.emplace_back();
    for (float& x : o.a) x = std::bit_cast<float>(next() << 16);
    for (float& x : o.b) x = std::bit_cast<float>(next() << 16);
    o.c = std::bit_cast<float>(next());
    o.hopper = next(), o.ampere = next();
  }
  return outputs;
}

template <CutModel kModel>
int different_from(uint32_t Output::*published) {
  int n = 0;
  for (const Output& o : published_outputs())
    n += std::bit_cast<uint32_t>(cut_output<kModel>(o.a, o.b, o.c)) != o.*published;
  return n;
}

TEST(TensorCoreModel, GivesThePublishedBits) {
  EXPECT_EQ(published_outputs().size(), 240u);
  EXPECT_EQ(different_from<kHopperSums>(&Output::hopper), 0);
  EXPECT_EQ(different_from<kAmpereSums>(&Output::ampere), 0);
}

TEST(TensorCoreModel, AnyPartOfItWrongIsSeen) {
  constexpr auto kHopper = &Output::hopper;
  constexpr auto kAmpere = &Output::ampere;
  EXPECT_GT(different_from<kHopperSums>(kAmpere), 0);
  EXPECT_GT((different_from<CutModel{16, 24, -133}>(kHopper)), 0) << "a bit less";
  EXPECT_GT((different_from<CutModel{16, 26, -133}>(kHopper)), 0) << "a bit more";
  EXPECT_GT((different_from<CutModel{8, 23, -132}>(kAmpere)), 0) << "a bit less";
  EXPECT_GT((different_from<CutModel{16, 24, -132}>(kAmpere)), 0) << "all at once";
  EXPECT_GT((different_from<CutModel{16, 25, -999}>(kHopper)), 0) << "zeros without exponent";
  EXPECT_GT((different_from<CutModel{8, 24, -999}>(kAmpere)), 0) << "zeros without exponent";
  EXPECT_GT((different_from<CutModel{16, 25, -133, true}>(kHopper)), 0) << "terms rounded";
  EXPECT_GT((different_from<CutModel{16, 25, -133, false, true}>(kHopper)), 0) << "sums rounded";
  EXPECT_GT((different_from<CutModel{16, 25, -133, false, false, true}>(kHopper)), 0)
      << "subnormal numbers normalised";
}

}  // namespace
}  // namespace evalrun::engine::cuda::testing
