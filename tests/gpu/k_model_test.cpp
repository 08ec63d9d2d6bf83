// Models whose matrices are K-quants on the device, each as its file has it: the numbers of the
// same weights in float32, bits that are a row's own, and memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/cuda/dense.h"
#include "engine/cuda/device_model.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/memory_plan.h"
#include "engine/model/low_rank.h"
#include "tests/engine/random_models.h"
#include "tests/formats/weight_models.h"
#ifdef EVALRUN_CUDA_EMULATED
#include "tests/gpu/emulator/include/emulator.h"
#endif

namespace evalrun::engine::cuda::testing {
namespace {

using namespace engine::testing;  // NOLINT: helpers of the engine's tests

const Path kStoredPath{"", WeightFormat::kStored, "", false, "cuda"};

std::shared_ptr<const Model> k_model_of(const TempFolder& folder, GgufModel m) {
  m.context = 256;
  LoadOptions options;
  options.format = WeightFormat::kAuto;
  options.need_tokenizer = false;
  return load_model(write_gguf(folder, "m.gguf", m), options);
}

// Random updates of every matrix, small beside it.
LowRankDelta random_delta(const Model& model, WeightStorage storage) {
  LowRankDelta delta;
  uint64_t seed = 40;
  const auto factor = [&](const WeightMatrix& of) {
    constexpr int kRank = 3;
    LowRankFactor f{.scale = 0.5f,
                    .a = WeightMatrix(storage, kRank, of.in()),
                    .b = WeightMatrix(storage, of.out(), kRank)};
    for (WeightMatrix* m : {&f.a, &f.b})
      for (int o = 0; o < m->out(); ++o) {
        std::vector<float> row = random_floats(m->in(), ++seed);
        for (float& x : row) x *= 0.05f;
        m->set_row(o, row);
      }
    return f;
  };
  for (int l = 0; l < model.config().n_layers; ++l) {
    const LayerWeights& w = model.layer(l);
    delta.layers.push_back({factor(w.q), factor(w.k), factor(w.v), factor(w.o), factor(w.gate),
                            factor(w.up), factor(w.down)});
  }
  return delta;
}

// The same bounds as of other formats (Backend.EqualsTheCpu). Gate and up of the mixed model are of
// two storages, and so are its queries, keys and values.
TEST(KModelOnTheDevice, HasTheNumbersOfItsWeightsInFloat32) {
  const TempFolder folder;
  for (const GgufModel& m : {medium_k_model(), mixed_k_model()}) {
    const auto model = k_model_of(folder, m);
    ASSERT_EQ(model->format(), WeightFormat::kStored);
    const LowRankDelta delta = random_delta(*model, WeightStorage::kBf16);
    auto gpu = open(model, kStoredPath, 1, 256), cpu = open_reference(model, kStoredPath, 256);
    const auto prompt = random_tokens(140, m.vocabulary, 3);
    gpu->prefill(prompt), cpu->prefill(prompt);
    const int layers[] = {0, 1, 2};
    double sum = 0;
    int compared = 0;
    for (const bool updated : {false, true})
      for (const int n : {1, 7, 20}) {
        auto tree = random_tree(n, m.vocabulary, static_cast<uint64_t>(n), 2);
        for (Row& r : tree) r.low_rank = updated && r.token % 2 == 0;
        const ForwardRequest request{
            .rows = tree, .low_rank = updated ? &delta : nullptr, .residual_layers = layers};
        const ForwardResult a = gpu->forward(request), b = cpu->forward(request);
        const auto compare = [&](std::span<const float> got, std::span<const float> want) {
          const double error = relative_error(got, want);
          EXPECT_LT(error, 0.06) << n << " rows" << (updated ? ", updated" : "");
          sum += error, ++compared;
        };
        for (int i = 0; i < n; ++i) {
          compare(a.logits_row(i), b.logits_row(i));
          compare(a.hidden_row(i), b.hidden_row(i));
          for (size_t l = 0; l < 3; ++l) compare(a.residual[l].row(i), b.residual[l].row(i));
        }
      }
    EXPECT_LT(sum / compared, 0.015);
  }
}

TEST(KModelOnTheDevice, RowsHaveBitsOfTheirOwn) {
  const TempFolder folder;
  for (const GgufModel& m : {medium_k_model(3), mixed_k_model()}) {
    const auto model = k_model_of(folder, m);
    const auto prompt = random_tokens(20, m.vocabulary, 7);
    auto session = open(model, kStoredPath, 1, 128), plain = open(model, kStoredPath, 1, 128);
    session->prefill(prompt), plain->prefill(prompt);
    for (const int rows : tests::sample({2, 3, 8, 9, 16, 17, 33, 64}, 3)) {
      const auto tree = random_tree(rows, m.vocabulary, static_cast<uint64_t>(rows), 3);
      const ForwardResult r = session->forward({.rows = tree});
      size_t compared = 0;
      ASSERT_TRUE(path_has_bits_of_plain(r, tree, rows - 1, *plain, compared)) << rows;
    }
  }
}

// The unpacked weights of all pieces find room.
TEST(KModelOnTheDevice, PrefillByCublasGivesTheSameNumbers) {
  ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "1", 1), 0);
  const bool found = Dense::find(nullptr) != nullptr;
  const TempFolder folder;
  for (const GgufModel& m : {medium_k_model(), mixed_k_model()}) {
    if (!found) continue;
    const auto model = k_model_of(folder, m);
    const auto prompt = random_tokens(100, m.vocabulary, 3);
    ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "0", 1), 0);
    auto own = open(model, kStoredPath, 1, 128);
    ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "1", 1), 0);
    auto dense = open(model, kStoredPath, 1, 128);
    own->prefill(prompt), dense->prefill(prompt);
    EXPECT_LT(relative_error(decode_alone(*dense, {5}), decode_alone(*own, {5})), 0.06);
  }
  ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "0", 1), 0);
  if (!found) GTEST_SKIP() << "no cuBLAS here";
}

// Whole tiles take what their panels take on the CPU, at most: the file's bytes and 5 %.
TEST(KModelOnTheDevice, MatricesTakeTheFilesBytes) {
  for (const DType type : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const WeightStorage s = WeightMatrix::storage_of(type);
    const size_t bytes = DeviceMatrix::bytes_for(s, 48, 1024);
    EXPECT_LE(bytes, WeightMatrix::bytes_for(s, 48, 1024)) << dtype_name(type);
    EXPECT_LE(static_cast<double>(bytes), 1.05 * static_cast<double>(48 * bytes_of(type, 1024)));
  }
}

#ifdef EVALRUN_CUDA_EMULATED
// A plan of several storages is for the largest: nothing is taken that was not planned.
TEST(KModelOnTheDevice, TakesNoMoreThanWasPlanned) {
  ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "1", 1), 0);
  const TempFolder folder;
  for (const GgufModel& m : {medium_k_model(), mixed_k_model()}) {
    const auto model = k_model_of(folder, m);
    SessionOptions o;
    o.device = "cuda", o.max_tokens = 200;
    const auto plan = plan_memory(*model, o, head_stride_for(model->config().head_dim),
                                  DeviceModel::missing_bytes(*model, 0));
    const size_t before = emulator::live_device_bytes();
    auto s = Session::create(model, o);
    const size_t created = emulator::live_device_bytes() - before;
    EXPECT_LE(created, plan.total() - plan.driver);
    EXPECT_GE(created, (plan.total() - plan.driver) * 7 / 10);
    const size_t buffers = s->workspace_bytes();
    s->prefill(random_tokens(130, m.vocabulary, 3));
    (void)s->forward({.rows = random_tree(64, m.vocabulary, 5, 2)});
    EXPECT_EQ(s->workspace_bytes(), buffers) << "something was allocated on the way";
  }
  ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "0", 1), 0);
}
#endif

}  // namespace
}  // namespace evalrun::engine::cuda::testing
