// The model of expected times: that its kernels are those which are launched, its arithmetic, and
// that the documents say what it says.
#include "tests/gpu/report/expected_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "engine/cuda/runtime/check.h"
#include "engine/session.h"
#include "tests/gpu/report/shapes.h"
#include "tests/gpu/report/timing.h"
#include "tests/scoped_variable.h"

namespace evalrun::engine::gpu_report {
namespace {

using ::testing::HasSubstr;

const GpuFacts& h200() {
  static const GpuFacts gpu = known_gpus().front();
  return gpu;
}
ModelConfig config_of(const std::string& name) {
  for (const Shape& s : planned_shapes())
    if (s.config.name == name) return s.config;
  return {};
}
double ms(const char* model, WeightFormat format, int rows, int context = 512,
          const GpuFacts& gpu = h200()) {
  return expected_step(config_of(model), format, rows, context, gpu).in_graph_us() / 1e3;
}

// Of a step that asks for its likeliest tokens.
std::map<std::string, int> launched(const Shape& shape, int rows) {
  struct Names final : cuda::LaunchObserver {
    void before(const char* kernel, cudaStream_t) override { ++launches[kernel]; }
    void after(const char*, cudaStream_t) override {}
    std::map<std::string, int> launches;
  };
  const auto model = make_shape_model(shape, 0, 1).model;
  SessionOptions o;
  o.device = "cuda", o.max_tokens = 60;
  const tests::ScopedVariable once("EVALRUN_CUDA_GRAPHS", "0");  // and not captured as well
  const auto session = Session::create(model, o);
  session->prefill(std::vector<int32_t>(40, 5));
  std::vector<Row> tree = random_tree(rows, shape.config.vocab_size, 7);
  for (Row& r : tree) r.logits = false, r.top = true;
  Names names;
  const Watching watching(names);
  (void)session->forward({.rows = tree});
  return names.launches;
}

TEST(ExpectedTimes, KernelsAreThoseThatAreLaunched) {
  for (const Shape& shape : report_shapes(true))
    for (const int rows : {1, 12, 17}) {
      std::map<std::string, int> expected;
      for (const ExpectedKernel& k :
           expected_step(shape.config, shape.format, rows, 40, h200()).kernels)
        expected[k.kernel] += k.launches;
      EXPECT_EQ(expected, launched(shape, rows)) << shape.name << ", " << rows << " rows";
    }
}

// One launch by hand: q, k and v of Llama-2-7B in bfloat16, one row.
TEST(ExpectedTimes, ALaunchIsItsStartItsWayAndItsBytes) {
  const ExpectedStep step =
      expected_step(config_of("Llama-2-7B"), WeightFormat::kBf16, 1, 512, h200());
  for (const ExpectedKernel& k : step.kernels) {
    if (k.what != "q, k and v") continue;
    const double bytes = 12288.0 * 4096 * 2 + 4096 * 2 + 12288 * 4;
    EXPECT_DOUBLE_EQ(k.bytes, bytes);
    EXPECT_DOUBLE_EQ(k.instructions, 768 * 128 * 51.0);
    EXPECT_EQ(k.bound, "bytes");
    const double work = bytes / 4.48e12 * 1e6, before = 4 * 226 + 700, after = 4 * 220 + 2 * 280;
    EXPECT_NEAR(k.alone_us, 1 + (before + after) / 1980 + work, 1e-9);
    EXPECT_NEAR(k.in_graph_us, .3 + after / 1980 + work, 1e-9);
  }
}

TEST(ExpectedTimes, AreAboveTheirFloorsAndFollowTheirCauses) {
  using enum WeightFormat;
  EXPECT_GT(ms("Llama-2-7B", kBf16, 1), 13.48 / 4.48);
  EXPECT_GT(ms("Llama-2-7B", kBf16, 1), ms("Llama-2-7B", kInt8, 1));
  EXPECT_GT(ms("Llama-2-7B", kInt8, 1), ms("Llama-2-7B", kQ4, 1));
  EXPECT_GT(ms("Llama-2-7B", kBf16, 64), ms("Llama-2-7B", kBf16, 16));
  EXPECT_GT(ms("Llama-2-7B", kBf16, 1, 8192), ms("Llama-2-7B", kBf16, 1, 512));
  GpuFacts slower = h200();
  slower.read_bytes_per_s /= 2;
  EXPECT_GT(ms("Llama-2-7B", kBf16, 1, 512, slower), 1.8 * ms("Llama-2-7B", kBf16, 1));
  slower = h200();
  slower.overlaps = false;
  EXPECT_GT(ms("SmolLM2-135M", kBf16, 1, 512, slower), 1.3 * ms("SmolLM2-135M", kBf16, 1));
  const ExpectedStep q4 = expected_step(config_of("Llama-2-7B"), kQ4, 64, 512, h200());
  for (const ExpectedKernel& k : q4.kernels)
    if (k.what == "gate and up") {
      EXPECT_EQ(k.bound, "instructions");
    }
  EXPECT_TRUE(expected_step(config_of("Llama-2-7B"), kF32, 1, 512, h200()).kernels.empty());
}

TEST(ExpectedTimes, TheDocumentHasTheTables) {
  std::ifstream file(EVALRUN_SOURCE_DIR "/docs/performance.md");
  std::stringstream text;
  text << file.rdbuf();
  std::istringstream lines(expected_tables());
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) {
      EXPECT_THAT(text.str(), HasSubstr(line)) << "gpu_report --expected prints it";
    }
}

}  // namespace
}  // namespace evalrun::engine::gpu_report
