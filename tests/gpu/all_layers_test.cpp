// The layers of a step by one kernel (EVALRUN_CUDA_PATH=persistent): the bits of launches of their
// own, for every number of rows, every cut of heads and any number of thread blocks; and which
// models and steps do not go that way.
#include "engine/cuda/kernels/all_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "engine/cuda/runtime/check.h"
#include "engine/cuda/runtime/graphs.h"
#include "tests/engine/cache_compare.h"
#include "tests/engine/random_models.h"
#include "tests/gpu/on_path.h"
#include "tests/sample.h"

namespace evalrun::engine::cuda::testing {
namespace {

using namespace engine::testing;  // NOLINT: helpers of the engine's tests

// Kernels by name, while it lives.
class Launches final : public LaunchObserver {
 public:
  Launches() : usual_(std::exchange(launch_observer(), this)) {}
  ~Launches() override { launch_observer() = usual_; }
  void before(const char* kernel, cudaStream_t) override { ++n_[kernel]; }
  void after(const char*, cudaStream_t) override {}
  int of(const std::string& kernel) const {
    const auto found = n_.find(kernel);
    return found == n_.end() ? 0 : found->second;
  }

 private:
  LaunchObserver* usual_;
  std::map<std::string, int> n_;
};

// The emulated device's multiprocessors, for a scope: how many thread blocks there are at most.
class Multiprocessors {
 public:
  explicit Multiprocessors(int n) {
#ifdef EVALRUN_CUDA_EMULATED
    emulator::set_device_multiprocessors(n);
#else
    (void)n;
#endif
  }
  ~Multiprocessors() {
#ifdef EVALRUN_CUDA_EMULATED
    emulator::reset_from_environment();
#endif
  }
  Multiprocessors(const Multiprocessors&) = delete;
  Multiprocessors& operator=(const Multiprocessors&) = delete;
};

// Sessions of one model on both paths.
struct Pair {
  std::unique_ptr<Session> at_once, apart;
  Pair(const std::shared_ptr<const Model>& model, const Path& path, int max_tokens = 512,
       int sequences = 1) {
    {
      const OnPath persistent(ProductPath::kPersistent);
      at_once = open(model, path, 2, max_tokens, sequences);
    }
    const OnPath portable(ProductPath::kPortable);
    apart = open(model, path, 2, max_tokens, sequences);
  }
};

::testing::AssertionResult same_results(const ForwardResult& a, const ForwardResult& b, int n) {
  for (int i = 0; i < n; ++i) {
    if (!same_bits(a.logits_row(i), b.logits_row(i)))
      return ::testing::AssertionFailure() << "logits of row " << i << " of " << n;
    if (!same_bits(a.hidden_row(i), b.hidden_row(i)))
      return ::testing::AssertionFailure() << "hidden state of row " << i << " of " << n;
  }
  return ::testing::AssertionSuccess();
}

// A step of both: how it went, and that its bits are the same.
void same_step(Pair& s, const std::vector<Row>& rows, bool goes, const ForwardRequest& more = {}) {
  ForwardRequest request = more;
  request.rows = rows;
  const Launches launches;
  const ForwardResult a = s.at_once->forward(request);
  if (launches.of(kGraphLaunch) == 0) {  // the first step of its kind
    EXPECT_EQ(launches.of("all_layers") > 0, goes);
    EXPECT_EQ(launches.of("rotate") > 0, !goes);
  }
  const ForwardResult b = s.apart->forward(request);
  EXPECT_TRUE(same_results(a, b, static_cast<int>(rows.size())));
}

struct Shape {
  std::string name;
  ModelConfig config;
};
// Both ways of cutting heads: halves of whole tiles (64, 32), whole heads of 1 and 3 tiles (8, 16,
// 24), some of whose items are not full.
std::vector<Shape> shapes() {
  std::vector<Shape> all;
  const auto add = [&](int head_dim, int heads, int kv_heads, int d, int d_ffn, bool bias) {
    ModelConfig c = small_config();
    c.n_layers = 3;
    c.head_dim = head_dim, c.n_heads = heads, c.n_kv_heads = kv_heads;
    c.d_model = d, c.d_ffn = d_ffn;
    if (bias) c.architecture = "qwen2", c.qkv_bias = true;
    all.push_back({fmt::format("heads of {}", head_dim), c});
  };
  add(64, 3, 1, 192, 160, false);
  add(32, 4, 2, 72, 96, true);
  add(24, 4, 1, 40, 72, false);
  add(16, 4, 2, 48, 80, true);
  add(8, 6, 3, 32, 48, false);
  return all;
}

class AllLayers : public ::testing::TestWithParam<WeightFormat> {
 protected:
  Path path() const { return {"", GetParam(), "", false, "cuda"}; }
};
INSTANTIATE_TEST_SUITE_P(Cuda, AllLayers,
                         ::testing::Values(WeightFormat::kBf16, WeightFormat::kInt8,
                                           WeightFormat::kInt8Fast, WeightFormat::kQ4),
                         [](const auto& p) {
                           std::string name(name_of(p.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(AllLayers, HaveTheBitsOfLaunchesOfTheirOwn) {
  const auto some = [](const std::vector<int>& all, size_t n) {
    return looks_at_accesses() ? tests::sample(all, 1) : tests::sample(all, n);
  };
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    const auto model = make_random_model(shape.config, 5, GetParam());
    // One multiprocessor has three thread blocks or so, which all have several items.
    for (const int multiprocessors : some({1, 2, 5}, 1)) {
      const Multiprocessors device(multiprocessors);
      Pair s(model, path());
      for (const int context : some({0, 127, 140, 300}, kFewCases ? 1 : 4)) {
        s.at_once->reset(), s.apart->reset();
        const auto prompt = random_tokens(static_cast<size_t>(context), 101, 7);
        s.at_once->prefill(prompt), s.apart->prefill(prompt);
        const auto sizes =
            some({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, kFewCases ? 2 : 16);
        for (const int n : sizes) {
          SCOPED_TRACE(
              fmt::format("{} multiprocessors, context {}, {} rows", multiprocessors, context, n));
          const auto tree = random_tree(n, 101, static_cast<uint64_t>(n), n % 4);
          same_step(s, tree, true);
          const auto path_to = path_nodes(tree, n - 1);
          s.at_once->commit(path_to), s.apart->commit(path_to);
        }
        EXPECT_TRUE(same_sequences(*s.at_once, *s.apart));
      }
    }
  }
}

// Every number of rows at least once, whatever the samples above were.
TEST_P(AllLayers, TakeOneToSixteenRowsAndNoMore) {
  const auto model = make_random_model(shapes()[3].config, 6, GetParam());
  const Multiprocessors device(2);
  Pair s(model, path());
  const auto prompt = random_tokens(20, 101, 3);
  s.at_once->prefill(prompt), s.apart->prefill(prompt);
  for (int n = 1; n <= kMostLayerRows + 1; n += looks_at_accesses() ? 8 : 1)
    same_step(s, random_tree(n, 101, static_cast<uint64_t>(n), 2), n <= kMostLayerRows);
}

TEST_P(AllLayers, TakeRowsOfSeveralSequences) {
  const auto model = make_random_model(shapes()[0].config, 7, GetParam());
  const Multiprocessors device(1);  // so that thread blocks have several items in every phase
  Pair s(model, path(), 512, 3);
  const std::vector<int> lengths = {130, 0, 9}, all = {0, 1, 2};
  for (int i = 0; i < 3; ++i) {
    const auto prompt = random_tokens(static_cast<size_t>(lengths[static_cast<size_t>(i)]), 101,
                                      static_cast<uint64_t>(i));
    s.at_once->prefill(prompt, i), s.apart->prefill(prompt, i);
  }
  for (uint64_t step = 0; step < 2; ++step) {
    const ManyTrees t = trees_of(all, 5, 101, step);
    same_step(s, t.rows, true);
    s.at_once->commit(commits_of(all, t)), s.apart->commit(commits_of(all, t));
  }
  EXPECT_TRUE(same_sequences(*s.at_once, *s.apart));
}

// As a graph from the second step of a kind on.
TEST_P(AllLayers, ReplayAsGraphs) {
  const auto model = make_random_model(shapes()[0].config, 8, GetParam());
  Pair s(model, path());
  const auto prompt = random_tokens(30, 101, 3);
  s.at_once->prefill(prompt), s.apart->prefill(prompt);
  for (int time = 0; time < 4; ++time) {
    const auto tree = random_tree(3, 101, static_cast<uint64_t>(time), 1);
    const Launches launches;
    const ForwardResult a = s.at_once->forward({.rows = tree});
    EXPECT_EQ(launches.of("all_layers"), time == 0 ? 2 : 0) << "launched and captured, or replayed";
    EXPECT_EQ(launches.of(kGraphLaunch), time == 0 ? 0 : 1);
    const ForwardResult b = s.apart->forward({.rows = tree});
    EXPECT_TRUE(same_results(a, b, 3));
    const int root = 0;
    s.at_once->commit({&root, 1}), s.apart->commit({&root, 1});
  }
  EXPECT_TRUE(same_sequences(*s.at_once, *s.apart));
}

// What a step may ask for that has no place between the layers of one kernel.
TEST_P(AllLayers, LeaveOtherStepsToLaunchesOfTheirOwn) {
  const auto model = make_random_model(shapes()[3].config, 9, GetParam());
  Pair s(model, path());
  const auto prompt = random_tokens(20, 101, 3);
  {
    const Launches launches;
    s.at_once->prefill(prompt);
    EXPECT_EQ(launches.of("all_layers"), 0) << "a prompt";
  }
  s.apart->prefill(prompt);
  const auto tree = random_tree(4, 101, 4, 1);
  const int layers[] = {1};
  same_step(s, tree, false, {.rows = tree, .residual_layers = layers});
  SkipSet skip;
  skip.mlp = {false, true, false};
  same_step(s, tree, false, {.rows = tree, .skip = &skip});
  same_step(s, tree, true);
}

TEST_P(AllLayers, LeaveOtherModelsToLaunchesOfTheirOwn) {
  const auto refused = [&](const std::string& why, const ModelConfig& c,
                           const std::string& kv_dtype = {}) {
    SCOPED_TRACE(why);
    Path sessions = path();
    sessions.kv_dtype = kv_dtype;
    Pair s(make_random_model(c, 10, GetParam()), sessions);
    const auto prompt = random_tokens(20, c.vocab_size, 3);
    s.at_once->prefill(prompt), s.apart->prefill(prompt);
    same_step(s, random_tree(3, c.vocab_size, 4, 1), false);
  };
  ModelConfig c = shapes()[3].config;
  c.architecture = "qwen3", c.qkv_bias = false, c.qk_norm = true;
  refused("norms of heads", c);
  refused("keys and values in bytes", shapes()[3].config, "int8");
  c = small_config();
  c.architecture = "mistral", c.sliding_window = 16;
  refused("a window", c);
  c = small_config();
  c.head_dim = 40, c.n_kv_heads = 4;
  refused("heads of five tiles", c);
  c = small_config();
  c.head_dim = 128, c.n_heads = 2, c.n_kv_heads = 1;
  refused("large heads", c);
  if (looks_at_accesses() || GetParam() != WeightFormat::kQ4) return;  // once
  c = small_config();
  c.n_layers = 1, c.d_model = kMostLayerWidth + 32;
  refused("wide rows", c);
  c.d_model = kMostLayerWidth, c.d_ffn = kMostLayerWidth + 16;
  refused("a large matrix", c);
  Pair exact(make_random_model(small_config(), 11, WeightFormat::kF32),
             {"", WeightFormat::kF32, "", false, "cuda"});
  same_step(exact, random_tree(3, 101, 4, 1), false);
}

TEST(HeadItemsOfProducts, AreTilesOfWholeHeadsOrOfBothHalves) {
  const auto expect = [](const HeadItems& h, int tiles, int apart, int per_head, int q, int kv) {
    EXPECT_EQ(std::vector<int>({h.tiles, h.apart, h.per_head, h.q, h.kv}),
              std::vector<int>({tiles, apart, per_head, q, kv}));
  };
  expect(head_items(64, 9, 3), 2, 2, 2, 18, 6);  // SmolLM2-135M
  expect(head_items(32, 4, 2), 2, 1, 1, 4, 2);
  expect(head_items(16, 4, 2), 1, 1, 0, 4, 2);
  expect(head_items(8, 4, 1), 1, 1, 0, 2, 1);
  expect(head_items(24, 4, 1), 3, 1, 0, 2, 1);
  EXPECT_EQ(head_items(40, 4, 4).tiles, 0);
  EXPECT_EQ(head_items(128, 4, 4).tiles, 0);
}

}  // namespace
}  // namespace evalrun::engine::cuda::testing
