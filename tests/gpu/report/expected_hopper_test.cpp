// The model of expected times of EVALRUN_CUDA_PATH=hopper: its launches, its arithmetic by hand and
// as it is printed, and that the document says what it says.
#include "tests/gpu/report/expected_hopper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "engine/cuda/kernels/products.h"
#include "engine/cuda/runtime/check.h"
#include "engine/cuda/runtime/product_path.h"
#include "engine/session.h"
#include "tests/gpu/on_path.h"
#include "tests/gpu/report/calculator.h"
#include "tests/gpu/report/shapes.h"
#include "tests/gpu/report/timing.h"
#include "tests/scoped_variable.h"

namespace evalrun::engine::gpu_report {
namespace {

using ::testing::HasSubstr;
using enum WeightFormat;

ModelConfig llama() {
  for (const Shape& s : planned_shapes())
    if (s.config.name == "Llama-2-7B") return s.config;
  return {};
}
ExpectedStep hopper(WeightFormat format, int rows, double cycles = kSerialCycles,
                    const GpuFacts& gpu = known_gpus().front()) {
  return expected_hopper_step(llama(), format, rows, 512, gpu, cycles);
}
ExpectedKernel named(const ExpectedStep& step, const std::string& what) {
  for (const ExpectedKernel& k : step.kernels)
    if (k.what == what) return k;
  return {};
}

// Gate and up of bfloat16, one row: 344 groups of 64 outputs, 16 clusters of two warpgroups, so 11
// turns; slices of 16 blocks are two stages of eight.
TEST(ExpectedHopper, ALaunchByHand) {
  const ExpectedKernel k = named(hopper(kBf16, 1), "gate and up");
  EXPECT_EQ(k.kernel, "hopper_product");
  EXPECT_DOUBLE_EQ(k.bytes, 22016.0 * 4096 * 2 + 2 * 4096 + 22016) << "no partial sums";
  EXPECT_EQ(k.bound, "copying warp");
  EXPECT_DOUBLE_EQ(k.loop_instructions, 11 * 2 * 2 * 710.0);
  // Two pieces of inputs a warp; an end of 165 instructions.
  const double after = 100 + 110 + 2 * 8 + 165 + 15;
  EXPECT_NEAR(k.in_graph_us, .3 + (4 * after + 280 * (1 + 3 + 2)) / 1980 + 4 * 31240 / 1980.0,
              1e-9);
  EXPECT_GT(k.alone_us, k.in_graph_us + .7 + 700 / 1980.0);
  const ExpectedKernel faster = named(hopper(kBf16, 1, 2), "gate and up");
  EXPECT_EQ(faster.bound, "bytes");
  EXPECT_NEAR(faster.in_graph_us, .3 + (4 * after + 280 * 6) / 1980 + faster.bytes / 4.48e12 * 1e6,
              1e-9);
}

TEST(ExpectedHopper, FollowsItsCauses) {
  for (const WeightFormat format : {kBf16, kInt8, kQ4})
    for (const int rows : {1, 16, 64}) {
      EXPECT_GT(hopper(format, rows).in_graph_us(), hopper(format, rows, 2).in_graph_us());
      EXPECT_GE(hopper(format, rows, 2).in_graph_us(), hopper(format, rows, 0).in_graph_us());
      // Partial sums of 64 rows are gone, and nothing else: 32 bytes an output and row.
      const double gone =
          named(expected_step(llama(), format, rows, 512, known_gpus().front()), "down").bytes -
          named(hopper(format, rows), "down").bytes;
      EXPECT_DOUBLE_EQ(gone, rows == 64 ? 32.0 * 4096 * 64 : 0);
    }
  GpuFacts slower = known_gpus().front();
  slower.flops_per_s /= 50;
  EXPECT_EQ(named(hopper(kBf16, 64, 2, slower), "gate and up").bound, "tensor cores");
  EXPECT_TRUE(hopper(kF32, 1).kernels.empty());
}

// What the document says.
TEST(ExpectedHopper, OtherKernelsAloneMissTheGoal) {
  const auto others = [](int rows) {
    double us = 0;
    for (const ExpectedKernel& k : hopper(kBf16, rows).kernels)
      if (k.kernel != "hopper_product") us += k.launches * k.in_graph_us;
    return us;
  };
  const double more = others(64) - others(1), one = hopper(kBf16, 1, 0).in_graph_us();
  EXPECT_NEAR(more / 1e3, .65, .005);
  EXPECT_NEAR(1 + more / one, 1.18, .005);
}

// And the path and the clusters of the process stay as they are.
TEST(ExpectedHopper, LaunchesAreThoseOfThePath) {
  struct Names final : cuda::LaunchObserver {
    void before(const char* kernel, cudaStream_t) override { ++launches[kernel]; }
    void after(const char*, cudaStream_t) override {}
    std::map<std::string, int> launches;
  };
  for (const Shape& shape : report_shapes(true)) {
    if (spec_of(shape.format).layers == WeightStorage::kF32) continue;
    const cuda::ProductPath usual = cuda::product_path();
    const int clusters = cuda::clusters_together();
    const ExpectedStep portable =
        expected_step(shape.config, shape.format, 12, 40, known_gpus().front());
    std::map<std::string, int> expected;
    for (const ExpectedKernel& k :
         expected_hopper_step(shape.config, shape.format, 12, 40, known_gpus().front()).kernels)
      expected[k.kernel] += k.launches;
    EXPECT_EQ(cuda::product_path(), usual);
    EXPECT_EQ(cuda::clusters_together(), clusters);

    const cuda::testing::OnPath path(cuda::ProductPath::kHopper);
    EXPECT_EQ(expected_step(shape.config, shape.format, 12, 40, known_gpus().front()).in_graph_us(),
              portable.in_graph_us());
    EXPECT_EQ(cuda::product_path(), cuda::ProductPath::kHopper);
    const auto model = make_shape_model(shape, 0, 1).model;
    SessionOptions o;
    o.device = "cuda", o.max_tokens = 60;
    const tests::ScopedVariable once("EVALRUN_CUDA_GRAPHS", "0");
    const auto session = Session::create(model, o);
    session->prefill(std::vector<int32_t>(40, 5));
    std::vector<Row> tree = random_tree(12, shape.config.vocab_size, 7);
    for (Row& r : tree) r.logits = false, r.top = true;
    Names names;
    const Watching watching(names);
    (void)session->forward({.rows = tree});
    EXPECT_EQ(expected, names.launches) << shape.name;
  }
}

TEST(ExpectedHopper, ArithmeticGivesTheTimeBehindIt) {
  int sums = 0;
  std::istringstream lines(expected_hopper_tables());
  for (std::string line; std::getline(lines, line);)
    for (size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at + 1)) {
      const size_t end = line.find('`', at + 1);
      const double us = std::stod(line.substr(line.find('=', end) + 1));
      EXPECT_NEAR(Calculator::value_of(line.substr(at + 1, end - at - 1)), us, .005 + 1e-3 * us)
          << line;
      ++sums, at = end;
    }
  EXPECT_EQ(sums, 84);
}

TEST(ExpectedHopper, TheDocumentHasTheTables) {
  std::ifstream file(EVALRUN_SOURCE_DIR "/docs/performance.md");
  std::stringstream text;
  text << file.rdbuf();
  std::istringstream lines(expected_hopper_tables());
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) {
      EXPECT_THAT(text.str(), HasSubstr('\n' + line)) << "gpu_report --expected prints it";
    }
}

}  // namespace
}  // namespace evalrun::engine::gpu_report
