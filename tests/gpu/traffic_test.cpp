// What hot kernels ask of memory, counted (report/traffic.h): weights once, sectors and banks in
// full.
#include "tests/gpu/report/traffic.h"

#include <gtest/gtest.h>

#include "engine/cuda/kernels/products.h"
#include "tests/sample.h"

namespace evalrun::engine::gpu_report {
namespace {

// Heads, widths and storages as of SmolLM2-135M, one layer and few tokens: seconds, not minutes.
Shape shape(WeightFormat format) {
  Shape s{"counted", {}, format};
  ModelConfig& c = s.config;
  c.architecture = "llama", c.name = "counted";
  c.n_layers = 1, c.d_model = 576, c.n_heads = 9, c.n_kv_heads = 3, c.head_dim = 64;
  c.d_ffn = 768, c.vocab_size = 512, c.max_context = 1024;
  return s;
}

class Small {
 public:
  explicit Small(int64_t weights) : usual_(std::exchange(cuda::small_matrix(), weights)) {}
  ~Small() { cuda::small_matrix() = usual_; }

 private:
  int64_t usual_;
};

constexpr int kContext = 450;

TEST(KernelTraffic, PlainDecodingReadsEveryWeightOnce) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kQ4}) {
    SCOPED_TRACE(name_of(format));
    const StepTraffic step = count_step(shape(format), 1, kContext);
    const auto read = static_cast<double>(step.kernels.at("narrow_product").counts.read) +
                      static_cast<double>(step.kernels.at("attend_chunk").counts.read);
    const auto floor = static_cast<double>(step.floor);
    EXPECT_GE(read, floor);
    EXPECT_LE(read, 1.02 * floor);  // and what is multiplied, added to, and said of the step
  }
}

// Half of the pairs of format and rows, five seconds each.
TEST(KernelTraffic, SectorsAndBanksAreUsedInFull) {
  const Small all_wide(0);
  std::vector<std::pair<WeightFormat, int>> all;
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kQ4})
    for (const int rows : {16, 64}) all.emplace_back(format, rows);
  for (const auto& [format, rows] : tests::sample(all, 3)) {
    SCOPED_TRACE(fmt::format("{}, {} rows", name_of(format), rows));
    const StepTraffic step = count_step(shape(format), rows, kContext);
    ASSERT_TRUE(step.kernels.contains(rows > 16 ? "wide_product" : "narrow_product"));
    for (const char* kernel : {"narrow_product", "wide_product", "attend_chunk"}) {
      const auto found = step.kernels.find(kernel);
      if (found == step.kernels.end()) continue;
      const emulator::traffic::Counts& c = found->second.counts;
      // Short of all: ragged ends of outputs; keys and values of the tree itself, which lie where
      // its rows do.
      const double least = found->first == "attend_chunk" ? .9 : .97;
      EXPECT_GE(static_cast<double>(c.sectors_least), least * static_cast<double>(c.sectors))
          << kernel;
      EXPECT_GE(static_cast<double>(c.wavefronts_least), .97 * static_cast<double>(c.wavefronts))
          << kernel;
    }
  }
}

}  // namespace
}  // namespace evalrun::engine::gpu_report
