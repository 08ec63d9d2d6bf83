// What hot kernels ask of memory, counted (report/traffic.h): weights once, sectors and banks in
// full.
#include "tests/gpu/report/traffic.h"

#include <gtest/gtest.h>

#include "engine/cuda/kernels/products.h"
#include "tests/gpu/on_path.h"
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

// Counts of large products are put together from small parts of them.
TEST(KernelTraffic, LargeProductsFollowFromParts) {
  using cuda::testing::OnPath;
  struct Case {
    WeightStorage storage;
    int tiles, in, rows;
    CountedProduct::Result result;
  };
  for (const cuda::ProductPath path : {cuda::ProductPath::kPortable, cuda::ProductPath::kHopper})
    for (const Case& c : {Case{WeightStorage::kBf16, 160, 1024, 17, CountedProduct::kWritten},
                          {WeightStorage::kInt8Group, 192, 768, 1, CountedProduct::kAdded},
                          {WeightStorage::kQ4Group, 128, 1536, 40, CountedProduct::kActivated}}) {
      const OnPath on(path);
      const Small all_wide(0);
      cuda::prepare_products();
      cuda::clusters_together() = 4;
      const CountedProduct p = {c.storage, c.tiles, c.in, c.result};
      const emulator::traffic::Counts whole = count_product(p, c.rows),
                                      large = count_large_product(p, c.rows);
      for (const auto figure : emulator::traffic::kFigures)
        // Counters of several places share a sector.
        EXPECT_NEAR(static_cast<double>(large.*figure), static_cast<double>(whole.*figure),
                    path == cuda::ProductPath::kHopper ? 0 : 128)
            << name_of(path) << ", " << c.tiles << " tiles, figure " << whole.requests;
    }
}

TEST(KernelTraffic, HopperReadsEveryWeightOnceAndWritesNoPartialSums) {
  using cuda::testing::OnPath;
  std::vector<std::pair<WeightFormat, int>> all;
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kQ4})
    for (const int rows : {1, 16, 64}) all.emplace_back(format, rows);
  for (const auto& [format, rows] : tests::sample(all, 4)) {
    SCOPED_TRACE(fmt::format("{}, {} rows", name_of(format), rows));
    const auto products = layer_products(shape(format).config, format);
    const auto count = [&](cuda::ProductPath path) {
      const OnPath on(path);
      const Small all_wide(0);
      cuda::prepare_products();
      emulator::traffic::Counts sum;
      for (const CountedProduct& p : products) sum += count_product(p, rows);
      return sum;
    };
    const emulator::traffic::Counts hopper = count(cuda::ProductPath::kHopper),
                                    portable = count(cuda::ProductPath::kPortable);
    uint64_t weights = 0, outputs = 0;
    for (const CountedProduct& p : products) {
      weights += p.weight_bytes();
      outputs += static_cast<uint64_t>(p.tiles * cuda::kTile);
    }
    EXPECT_EQ(portable.lasting, weights);
    EXPECT_EQ(portable.bulk, 0u);
    EXPECT_EQ(portable.cluster, 0u);
    EXPECT_EQ(portable.again > 0, rows > 16);
    EXPECT_EQ(hopper.lasting, weights);
    EXPECT_EQ(hopper.bulk, weights);
    EXPECT_EQ(hopper.again, 0u);
    // Slices meet in the cluster: of eight seven send their sums to the one that adds them.
    EXPECT_EQ(hopper.cluster, 7 * sizeof(float) * outputs * static_cast<uint64_t>(rows));
    EXPECT_GE(static_cast<double>(hopper.sectors_least), .97 * static_cast<double>(hopper.sectors));
    EXPECT_GE(static_cast<double>(hopper.wavefronts_least),
              .97 * static_cast<double>(hopper.wavefronts));
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
