// The CUDA backend as a whole: against the CPU's numbers, as a graph and launch by launch, and when
// memory or the device fails.
#include "engine/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <utility>

#include "engine/answers.h"
#include "engine/base/error.h"
#include "engine/cuda/dense.h"
#include "engine/cuda/device_model.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/memory_plan.h"
#include "engine/cuda/runtime/graphs.h"
#include "engine/device_time.h"
#include "tests/engine/cache_compare.h"
#include "tests/engine/random_models.h"
#include "tests/sample.h"
#ifdef EVALRUN_CUDA_EMULATED
#include "tests/gpu/emulator/include/emulator.h"
#endif

namespace evalrun::engine::cuda::testing {
namespace {

using namespace engine::testing;  // NOLINT: helpers of the engine's tests
using ::testing::HasSubstr;

// What the rules below say of prefill is about our kernels; cuBLAS has its test.
[[maybe_unused]] const int kWithoutCublas = setenv("EVALRUN_CUDA_CUBLAS", "0", 1);

// These models' larger matrices are spread over thread blocks, as large models' are.
[[maybe_unused]] const int64_t kSmall = small_matrix() = 2048;

class Backend : public ::testing::TestWithParam<Path> {};

// Logits, hidden states and residual streams: the CPU's bits in float32. Elsewhere the numbers of
// the same weights in float32, but for the rounding of inputs, keys and probabilities to bfloat16:
// 1 % of these small models' logits (the CPU's bf16 path: 1 %, too).
TEST_P(Backend, EqualsTheCpu) {
  // All models in one format: every kernel is met in every run.
  const WeightFormat format = GetParam().format;
  for (const NamedModel& m :
       format == WeightFormat::kBf16
           ? feature_models(format)
           : tests::sample(feature_models(format), looks_at_accesses() ? 1 : 2)) {
    const int vocab = m.model->config().vocab_size;
    const bool exact = GetParam().format == WeightFormat::kF32;
    auto gpu = open(m.model, GetParam());
    auto cpu = open_reference(m.model, GetParam());
    const auto prompt = random_tokens(140, vocab, 3);
    gpu->prefill(prompt), cpu->prefill(prompt);
    const int layers[] = {0, 1, 2};
    double sum = 0;
    int compared = 0;
    for (const int n : {1, 7, 40}) {
      const auto tree = random_tree(n, vocab, static_cast<uint64_t>(n), 2);
      const ForwardRequest request{.rows = tree, .residual_layers = layers};
      const ForwardResult a = gpu->forward(request), b = cpu->forward(request);
      const auto compare = [&](std::span<const float> got, std::span<const float> want) {
        if (exact) {
          EXPECT_TRUE(same_bits(got, want)) << m.name << ", " << n << " rows";
          return;
        }
        const double error = relative_error(got, want);
        EXPECT_LT(error, own_error(GetParam()).most) << m.name << ", " << n << " rows";
        sum += error, ++compared;
      };
      for (int i = 0; i < n; ++i) {
        compare(a.logits_row(i), b.logits_row(i));
        compare(a.hidden_row(i), b.hidden_row(i));
        for (size_t l = 0; l < 3; ++l) compare(a.residual[l].row(i), b.residual[l].row(i));
      }
    }
    if (!exact) {
      EXPECT_LT(sum / compared, own_error(GetParam()).mean) << m.name;
    }
  }
}

// Chunks of many rows go through cuBLAS, where it is: the same numbers in another order, and bits
// that depend on the chunks alone.
TEST_P(Backend, PrefillByCublasGivesTheSameNumbers) {
  ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "1", 1), 0);
  const bool found = Dense::find(nullptr) != nullptr;
  ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "0", 1), 0);
  if (!found) GTEST_SKIP() << "no cuBLAS here";
  for (const NamedModel& m : some_models(GetParam())) {
    const auto prompt = random_tokens(200, m.model->config().vocab_size, 3);
    auto own = open(m.model, GetParam());
    ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "1", 1), 0);
    auto dense = open(m.model, GetParam()), again = open(m.model, GetParam());
    ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "0", 1), 0);
    own->prefill(prompt), dense->prefill(prompt), again->prefill(prompt);
    const auto a = decode_alone(*own, {5}), b = decode_alone(*dense, {5});
    EXPECT_TRUE(as_reference(GetParam(), b, a)) << m.name;
    EXPECT_TRUE(same_bits(b, decode_alone(*again, {5}))) << m.name;
  }
}

// What the device finds among logits is what the host finds in them.
TEST_P(Backend, AnswersAreThoseOfTheLogits) {
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam());
  s->prefill(random_tokens(30, 101, 3));
  ASSERT_TRUE(s->draws_cheaply());
  const SamplingParams sampling{.temperature = 0.8, .top_k = 0, .top_p = 0.9};
  base::Rng rng(5);
  std::vector<Row> rows(20);
  for (int i = 0; i < 20; ++i) {
    Row& r = rows[static_cast<size_t>(i)];
    r = {.token = i, .logits = false};
    r.top = i % 2 == 0;
    r.best = i % 3 == 0;
    if (i % 5 != 1) r.uniform = rng.uniform();
    if (!r.top && !r.best && r.uniform < 0) r.logits = true;
  }
  // Twice each, the second time as a graph.
  for (const bool with_sampling : {true, false}) {
    if (!with_sampling)
      for (Row& r : rows) r.uniform = -1, r.top |= !r.best;
    ForwardRequest request{.rows = rows, .best = 7, .log_sums = true};
    if (with_sampling) request.sampling = &sampling;
    for (int time = 0; time < 3; ++time) {
      const ForwardResult without = s->forward(request);
      const std::vector<int32_t> top(without.top.begin(), without.top.end()),
          drawn(without.drawn.begin(), without.drawn.end());
      std::vector<std::vector<TokenLogit>> best(20);
      std::vector<double> sums(20);
      for (int i = 0; i < 20; ++i) {
        if (!rows[static_cast<size_t>(i)].best) continue;
        const RowScores scores = without.scores(i);
        EXPECT_TRUE(scores.logits.empty());
        best[static_cast<size_t>(i)].assign(scores.best.begin(), scores.best.end());
        sums[static_cast<size_t>(i)] = scores.log_sum;
      }
      std::vector<Row> all = rows;
      for (Row& r : all) r.logits = true;
      ForwardRequest with_logits = request;
      with_logits.rows = all;
      const ForwardResult with = s->forward(with_logits);
      WarpScratch scratch;
      for (int i = 0; i < 20; ++i) {
        const Row& r = rows[static_cast<size_t>(i)];
        const auto at = static_cast<size_t>(i);
        const auto logits = with.logits_row(i);
        EXPECT_EQ(top[at], r.top ? argmax(logits) : -1) << i;
        EXPECT_EQ(top[at], with.top[at]) << i;
        EXPECT_EQ(drawn[at], r.uniform < 0 ? -1 : draw(logits, sampling, r.uniform, scratch)) << i;
        EXPECT_EQ(drawn[at], with.drawn[at]) << i;
        if (!r.best) continue;
        const auto want = top_k(logits, 7);
        ASSERT_EQ(best[at].size(), 7u);
        for (size_t k = 0; k < 7; ++k) {
          EXPECT_EQ(best[at][k].token, want[k].token) << i << ", " << k;
          EXPECT_EQ(best[at][k].logit, want[k].logit) << i << ", " << k;
        }
        EXPECT_EQ(sums[at], log_sum(logits)) << i;
      }
    }
  }
}

struct CountedGraphs final : LaunchObserver {
  int n = 0;
  void before(const char* kernel, cudaStream_t) override {
    n += std::string_view(kernel) == kGraphLaunch ? 1 : 0;
  }
  void after(const char*, cudaStream_t) override {}
};

// Without a cache the context is prefilled in every step, so that a library whose sums depend on
// the number of rows must not do it.
TEST_P(Backend, WithoutACacheCublasHasNoPart) {
  const auto m = feature_models(GetParam().format)[1];
  const auto prompt = random_tokens(100, m.model->config().vocab_size, 3);
  auto own = open(m.model, GetParam());
  ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "1", 1), 0);
  SessionOptions o;
  o.device = "cuda", o.max_tokens = 256, o.kv_cache = false, o.kv_dtype = GetParam().kv_dtype;
  auto anew = Session::create(m.model, o);
  ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "0", 1), 0);
  own->prefill(prompt), anew->prefill(prompt);
  EXPECT_TRUE(same_bits(decode_alone(*own, {5}), decode_alone(*anew, {5})));
}

// The first forward of a kind is queued launch by launch and captured, the others are replayed.
TEST_P(Backend, GraphsGiveTheBitsOfSingleLaunches) {
  const auto m = feature_models(GetParam().format)[3];  // with a window
  auto graphs = open(m.model, GetParam());
  ASSERT_EQ(setenv("EVALRUN_CUDA_GRAPHS", "0", 1), 0);
  auto launches = open(m.model, GetParam());
  ASSERT_EQ(unsetenv("EVALRUN_CUDA_GRAPHS"), 0);
  CountedGraphs counted;
  const int64_t misses = device_time().graph_misses;
  const int steps = kFewCases && !tests::test_everything() ? 6 : 12;
  for (int step = 0; step < steps; ++step) {
    const auto tree = random_tree(5, 101, static_cast<uint64_t>(step), 2);
    launch_observer() = &counted;
    const auto a = copy(graphs->forward({.rows = tree}).logits_row(4));
    launch_observer() = nullptr;
    ASSERT_TRUE(same_bits(a, launches->forward({.rows = tree}).logits_row(4))) << "step " << step;
    const int zero = 0;
    graphs->commit({&zero, 1}), launches->commit({&zero, 1});
  }
  EXPECT_EQ(counted.n, steps - 1) << "one shape: all forwards but the first";
  EXPECT_EQ(device_time().graph_misses - misses, 1);
}

// Long contexts are merged in several batches of chunks; how many does not matter.
TEST_P(Backend, BatchesOfChunksGiveTheSameBits) {
  const int usual = std::exchange(merge_batch(), 2);
  const auto m = feature_models(GetParam().format)[0];
  const auto prompt = random_tokens(530, 101, 5);  // five chunks: three batches, one not full
  auto small = open(m.model, GetParam(), 1, 1024);
  small->prefill(prompt);
  const auto got = decode_alone(*small, {5});
  merge_batch() = usual;
  auto large = open(m.model, GetParam(), 1, 1024);
  large->prefill(prompt);
  EXPECT_TRUE(same_bits(got, decode_alone(*large, {5})));
}

// Every key and value of the first `n` tokens, and logits after them.
std::vector<float> all_of(Session& s, const ModelConfig& c, int n) {
  std::vector<float> all;
  std::vector<float> k(static_cast<size_t>(c.kv_dim())), v(k.size());
  for (int l = 0; l < c.n_layers; ++l)
    for (int position = 0; position < n; ++position) {
      s.read_kv(l, position, 0, k, v);
      all.insert(all.end(), k.begin(), k.end());
      all.insert(all.end(), v.begin(), v.end());
    }
  const auto logits = decode_alone(s, {5, 7});
  all.insert(all.end(), logits.begin(), logits.end());
  return all;
}

// Rows of a prompt attended to with running sums, or chunk by chunk: the same bits. Heads of up to
// 136 dimensions, 1 to 20 a key head, windows, and prompts that begin and end anywhere.
class PromptsAtOnce : public ::testing::TestWithParam<const char*> {};
TEST_P(PromptsAtOnce, GiveTheSameBits) {
  const Path path = {"", WeightFormat::kBf16, GetParam(), false, "cuda"};
  auto models = tests::sample(feature_models(path.format), 1);
  ModelConfig wide = small_config();
  wide.n_heads = 20, wide.n_kv_heads = 1, wide.head_dim = 136;
  wide.n_layers = 2;  // a prompt is not attended to in the last layer: nobody reads its results
  models.push_back({"wide_heads", make_random_model(wide, 5, path.format)});
  if (looks_at_accesses()) models = tests::sample(models, 1);
  for (const NamedModel& m : models) {
    SCOPED_TRACE(m.name);
    const ModelConfig& c = m.model->config();
    const int last = m.name != "wide_heads" ? 290 : looks_at_accesses() ? 172 : 180;
    const int ends[] = {1, 130, 169, last};
    const auto prompt = random_tokens(static_cast<size_t>(ends[3]), c.vocab_size, 5);
    const auto run = [&](int enough) {
      const int usual = std::exchange(enough_prompt_tiles(), enough);
      auto s = open(m.model, path, 1, 1024);
      for (int from = 0; const int to : ends) {
        s->prefill(
            std::span(prompt).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
        from = to;
      }
      enough_prompt_tiles() = usual;
      return all_of(*s, c, ends[3]);
    };
    EXPECT_TRUE(same_bits(run(1 << 30), run(1)));
  }
}
INSTANTIATE_TEST_SUITE_P(Cache, PromptsAtOnce, ::testing::Values("bf16", "int8", "fp8"),
                         [](const auto& type) { return type.param; });

// Large prompts are attended to at once, and so are those whose partial results would be large.
TEST(CudaBackend, PromptsAreAttendedToAtOnceWhereItPays) {
  EXPECT_TRUE(attends_at_once(1024, 1024, 32, 32, 128)) << "7B: 2048 warps";
  EXPECT_TRUE(attends_at_once(1024, 1024, 32, 8, 128)) << "8B";
  EXPECT_FALSE(attends_at_once(1024, 1024, 9, 3, 64))
      << "135M: 615 warps are too few to fill a GPU";
  EXPECT_TRUE(attends_at_once(1024, 8192, 9, 3, 64)) << "but 156 MB would be too many";
  EXPECT_FALSE(attends_at_once(64, 32768, 32, 32, 128)) << "a step of 64 rows takes as much";
  EXPECT_TRUE(attends_at_once(65, 32768, 32, 32, 128));
}

// A chunk of a prompt ends where the device says, wherever the prompt began.
TEST(CudaBackend, ChunksOfAPromptEndAtTheDevicesBorders) {
  const Path path = {"", WeightFormat::kBf16, "", false, "cuda"};
  const auto m = feature_models(path.format)[0];
  const auto prompt = random_tokens(kPromptChunk + 100, 101, 5);
  const auto run = [&](int first) {
    auto s = open(m.model, path, 1, 2048);
    s->prefill(std::span(prompt).first(static_cast<size_t>(first)));
    s->prefill(std::span(prompt).subspan(static_cast<size_t>(first)));
    return decode_alone(*s, {5});
  };
  EXPECT_TRUE(same_bits(run(kPromptChunk), run(40)));
}

TEST_P(Backend, ForkedSequencesGoTheirOwnWays) {
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam(), 1, 512, 2);
  s->prefill(random_tokens(150, 101, 5), 0);
  s->fork(0, 1);
  const std::vector<Row> rows = {{.token = 5, .sequence = 0}, {.token = 5, .sequence = 1}};
  const ForwardResult r = s->forward({.rows = rows});
  EXPECT_TRUE(same_bits(copy(r.logits_row(0)), r.logits_row(1)));
  const int path[] = {1};
  s->commit(path, 1);
  EXPECT_EQ(s->length(0), 150);
  EXPECT_EQ(s->length(1), 151);
}

#ifdef EVALRUN_CUDA_EMULATED
// One list, one launch; and nobody waits between the commit and the next forward.
TEST_P(Backend, CommitsOfAllSequencesAreOneLaunch) {
  constexpr int kSequences = 4;
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam(), 1, 256, kSequences);
  auto alone = open(m.model, GetParam(), 1, 256, kSequences);
  std::vector<Row> rows;
  for (int i = 0; i < 2 * kSequences; ++i)  // chains of two, in turn
    rows.push_back(
        {.token = i, .parent = i < kSequences ? -1 : i - kSequences, .sequence = i % kSequences});
  for (int step = 0; step < 3; ++step) {
    (void)s->forward({.rows = rows}), (void)alone->forward({.rows = rows});
    std::vector<std::vector<int>> paths;
    for (int q = 0; q < kSequences; ++q)
      paths.push_back(q == 2 ? std::vector<int>{q} : std::vector<int>{q, q + kSequences});
    std::vector<SequencePath> list;
    for (int q = 0; q < kSequences; ++q) list.push_back({q, paths[static_cast<size_t>(q)]});
    const long launches = emulator::kernel_launches(), waits = emulator::waits();
    s->commit(list);
    EXPECT_EQ(emulator::kernel_launches() - launches, 1);
    EXPECT_EQ(emulator::waits(), waits);
    for (int q = 0; q < kSequences; ++q) alone->commit(paths[static_cast<size_t>(q)], q);
  }
  EXPECT_TRUE(same_sequences(*s, *alone));
}
#endif

// Sessions of one model share its weights on the device; the last one takes them along.
TEST_P(Backend, WeightsAreOnTheDeviceOnce) {
  const auto m = feature_models(GetParam().format)[0];
  const auto missing = [&] { return DeviceModel::missing_bytes(*m.model, 0); };
  EXPECT_GT(missing(), m.model->streamed_bytes() / 2);
  auto one = open(m.model, GetParam());
  EXPECT_EQ(missing(), 0u) << "another session has nothing to load";
  auto two = open(m.model, GetParam());
  auto cut = open(m.model->first_layers(1), GetParam());
  const Row row{.token = 3};
  const auto a = copy(one->forward({.rows = {&row, 1}}).logits_row(0));
  EXPECT_TRUE(same_bits(a, two->forward({.rows = {&row, 1}}).logits_row(0)));
  one.reset();
  EXPECT_EQ(missing(), 0u) << "another session still has them";
  EXPECT_TRUE(same_bits(a, two->forward({.rows = {&row, 1}}).logits_row(0)));
  two.reset(), cut.reset();
  EXPECT_GT(missing(), 0u) << "nobody has them any more";
}

TEST_P(Backend, PhasesAddUpWhenAskedFor) {
  const auto m = feature_models(GetParam().format)[0];
  SessionOptions o;
  o.device = "cuda", o.max_tokens = 64, o.measure_phases = true;
  auto s = Session::create(m.model, o);
  const Row row{.token = 3};
  (void)s->forward({.rows = {&row, 1}});
  EXPECT_GT(s->phases().total(), 0);
}

// A commit is not waited for: it is counted with the next forward, and as a commit.
TEST_P(Backend, DeviceTimeIsCountedByPhase) {
  const auto m = feature_models(GetParam().format)[0];
  SessionOptions o;
  o.device = "cuda", o.max_tokens = 64;
  const Row row{.token = 3};
  const int root = 0;
  const auto counted = [&](bool timed) {
    o.time_device = timed;
    auto s = Session::create(m.model, o);
    const DeviceTime before = device_time();
    std::vector<bool> grown;
    const auto step = [&](DevicePhase phase, const auto& work) {
      const DeviceTime now = device_time();
      device_phase() = phase;
      work();
      for (const DevicePhase p : {DevicePhase::kDraft, DevicePhase::kVerify, DevicePhase::kCommit})
        grown.push_back(device_time()[p] > now[p]);
      device_phase() = DevicePhase::kOther;
    };
    step(DevicePhase::kVerify, [&] { (void)s->forward({.rows = {&row, 1}}); });
    step(DevicePhase::kCommit, [&] { s->commit({&root, 1}); });
    step(DevicePhase::kVerify, [&] { (void)s->forward({.rows = {&row, 1}}); });
    const std::vector<float> x(static_cast<size_t>(m.model->head().in()), 1.0f);
    const MatrixView in = {x.data(), 1, m.model->head().in()};
    step(DevicePhase::kDraft, [&] { (void)s->multiply(m.model->head(), in); });
    EXPECT_EQ(device_time()[DevicePhase::kOther], before[DevicePhase::kOther]);
    return grown;
  };
  const bool y = true, n = false;
  EXPECT_EQ(counted(true), (std::vector<bool>{n, y, n, n, n, n, n, y, y, y, n, n}));
  EXPECT_EQ(counted(false), std::vector<bool>(12, n));
}

INSTANTIATE_TEST_SUITE_P(Cuda, Backend, ::testing::ValuesIn(cuda_paths()),
                         [](const auto& path) { return path.param.name(); });

TEST(CudaBackend, AContextThatDoesNotFitIsRefusedBeforeAnythingIsAllocated) {
  ModelConfig c = small_config();
  c.n_layers = 4, c.n_kv_heads = 4, c.max_context = 1 << 27;
  SessionOptions o;
  o.device = "cuda", o.max_tokens = 40'000'000, o.n_sequences = 100;
  try {
    (void)Session::create(make_random_model(c, 1, WeightFormat::kBf16), o);
    FAIL() << "created";
  } catch (const base::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("GPU memory"));
    EXPECT_THAT(e.what(), HasSubstr("B are free"));
    EXPECT_EQ(e.code(), base::ExitCode::kData);
  }
}

#ifdef EVALRUN_CUDA_EMULATED
// A session that is not refused finds what it needs, and is not refused for much more: the longest
// prompt and full steps after it take what was planned for them.
TEST(CudaBackend, TheMemoryPlanIsWhatIsTaken) {
  ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "1", 1), 0);
  for (const auto& [format, kv] :
       {std::pair{WeightFormat::kF32, ""}, std::pair{WeightFormat::kBf16, ""},
        std::pair{WeightFormat::kQ4, ""}, std::pair{WeightFormat::kF32, "int8"},
        std::pair{WeightFormat::kQ4, "int8"}, std::pair{WeightFormat::kF32, "fp8"},
        std::pair{WeightFormat::kQ4, "fp8"}})
    for (const NamedModel& m : tests::sample(feature_models(format), 2)) {
      SCOPED_TRACE(fmt::format("{}, {}, {}", m.name, name_of(format), kv));
      const bool bf16 = format != WeightFormat::kF32;
      SessionOptions o;
      o.device = "cuda", o.max_tokens = 600, o.n_sequences = 2, o.kv_dtype = kv;
      const ModelConfig& c = m.model->config();
      const auto plan = plan_memory(*m.model, o, bf16 ? head_stride_for(c.head_dim) : c.head_dim,
                                    DeviceModel::missing_bytes(*m.model, 0));
      EXPECT_EQ(plan_memory(c, format, o).total(), plan.total()) << "of the shape alone";
      const size_t planned = plan.buffers - (bf16 ? Dense::kWorkspaceBytes : 0);
      const size_t before = emulator::live_device_bytes();
      auto s = Session::create(m.model, o);
      // Taken when it is created, so that what the next one finds free is free.
      const size_t created = emulator::live_device_bytes() - before;
      EXPECT_LE(created, plan.total() - plan.driver);
      EXPECT_GE(created, (plan.total() - plan.driver) * 8 / 10);
      const size_t buffers = s->workspace_bytes();
      s->prefill(random_tokens(530, 101, 3));
      auto tree = random_tree(64, 101, 5, 2);
      (void)s->forward({.rows = tree});
      for (Row& r : tree) r.logits = false, r.best = true;
      (void)s->forward({.rows = tree, .best = 64, .log_sums = true});
      EXPECT_EQ(s->workspace_bytes(), buffers) << "something was allocated on the way";
      EXPECT_LE(s->workspace_bytes(), planned);
      EXPECT_GE(s->workspace_bytes(), planned * 9 / 10);
      s.reset();
      // A byte less is refused.
      emulator::set_device_memory(before + plan.total());
      EXPECT_NO_THROW((void)Session::create(m.model, o));
      emulator::set_device_memory(before + plan.total() - 1);
      try {
        (void)Session::create(m.model, o);
        ADD_FAILURE() << "created";
      } catch (const base::Error& e) {
        EXPECT_THAT(e.what(), HasSubstr("to compute in"));
      }
      emulator::reset_from_environment();
    }
  ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "0", 1), 0);
}

// Bytes: a number each, and a scale of four a head, where bfloat16 has two a number.
TEST(CudaBackend, CachesOfBytesAreAboutHalf) {
  for (const auto& [head_dim, share] : {std::pair{128, 132.0 / 256}, std::pair{64, 68.0 / 128}}) {
    ModelConfig c = small_config();
    c.head_dim = head_dim, c.n_layers = 1;
    SessionOptions o;
    o.device = "cuda", o.max_tokens = 256;
    const auto model = make_random_model(c, 1, WeightFormat::kBf16);
    const size_t usual = Session::create(model, o)->kv_bytes();
    for (const char* kv : {"int8", "fp8"}) {
      o.kv_dtype = kv;
      const auto s = Session::create(model, o);
      EXPECT_EQ(static_cast<double>(s->kv_bytes()), share * static_cast<double>(usual));
      EXPECT_EQ(s->options().kv_dtype, kv);
      EXPECT_EQ(256 * (s->bytes_per_forward(1) - s->bytes_per_forward(0)), s->kv_bytes());
    }
  }
}

// What a plan of several sessions adds up: the driver's part is left out on both sides.
TEST(CudaBackend, SequencesOfAPlanTakeTheirCaches) {
  const auto model = make_random_model(small_config(), 1, WeightFormat::kBf16);
  SessionOptions o;
  o.device = "cuda", o.max_tokens = 600;
  const auto bytes = [&](int sequences) {
    o.n_sequences = sequences;
    return cuda_session_bytes(*model, o);
  };
  const int stride = head_stride_for(model->config().head_dim);
  EXPECT_EQ(bytes(7) - bytes(5), 2 * (bytes(2) - bytes(1)));
  EXPECT_GT(bytes(2), bytes(1));
  EXPECT_EQ(cuda_missing_weights(*model, o),
            static_cast<double>(DeviceModel::missing_bytes(*model, 0)));
  const auto plan = plan_memory(*model, o, stride, DeviceModel::missing_bytes(*model, 0));
  EXPECT_EQ(bytes(o.n_sequences) + cuda_missing_weights(*model, o),
            static_cast<double>(plan.total() - plan.driver));
  emulator::set_device_memory(emulator::live_device_bytes() + plan.driver + 1234);
  EXPECT_EQ(cuda_free_bytes("cuda:0"), 1234);
  emulator::set_device_memory(emulator::live_device_bytes() + 1234);
  EXPECT_EQ(cuda_free_bytes("cuda:0"), 0) << "the driver takes it";
  emulator::reset_from_environment();
}

// Updates of small matrices cost launches: one for all A of a product, one for all that follows it.
TEST(CudaBackend, LowRankUpdatesAreTwoLaunchesAProduct) {
  for (const NamedModel& m : feature_models(WeightFormat::kBf16)) {
    LowRankDelta delta;
    for (int l = 0; l < m.model->config().n_layers; ++l) {
      const LayerWeights& w = m.model->layer(l);
      const auto factor = [](const WeightMatrix& of) {
        return LowRankFactor{.a = WeightMatrix(WeightStorage::kBf16, 3, of.in()),
                             .b = WeightMatrix(WeightStorage::kBf16, of.out(), 3)};
      };
      delta.layers.push_back({factor(w.q), factor(w.k), factor(w.v), factor(w.o), factor(w.gate),
                              factor(w.up), factor(w.down)});
    }
    auto s = open(m.model, {.isa = {}, .format = WeightFormat::kBf16, .device = "cuda"});
    const auto launches = [&](int n, const LowRankDelta* updates) {
      const std::vector<Row> rows(static_cast<size_t>(n),
                                  {.token = 3, .low_rank = updates != nullptr});
      const long before = emulator::kernel_launches();
      (void)s->forward({.rows = rows, .low_rank = updates});
      return emulator::kernel_launches() - before;
    };
    (void)launches(2, &delta);  // brings the updates to the device
    const long without = launches(1, nullptr);
    EXPECT_EQ(launches(1, &delta), without + 8 * m.model->config().n_layers) << m.name;
  }
}

// A graph that finds no memory is no reason to stop: its kernels are launched one by one.
// One session serves many arms: what a drafter brought goes when the next one brings its own.
TEST(CudaBackend, MatricesOfDraftersGoWithThem) {
  const auto m = feature_models(WeightFormat::kBf16)[0];
  auto s = open(m.model, {.isa = {}, .format = WeightFormat::kBf16, .device = "cuda"});
  constexpr int kIn = 64, kOut = 512;
  const std::vector<float> x = random_floats(kIn, 3);
  const auto multiply = [&](const WeightMatrix& w) {
    return copy(s->multiply(w, {x.data(), 1, kIn}).row(0));
  };
  const auto matrix = [&](uint64_t seed) {
    auto w = std::make_unique<WeightMatrix>(WeightStorage::kBf16, kOut, kIn);
    for (int o = 0; o < kOut; ++o)
      w->set_row(o, random_floats(kIn, seed + static_cast<uint64_t>(o)));
    return w;
  };
  const auto kept = matrix(1);
  const std::vector<float> y = multiply(*kept);
  (void)multiply(*matrix(2));
  const size_t two = emulator::live_device_bytes();
  for (uint64_t seed = 3; seed < 9; ++seed) {
    (void)multiply(*matrix(seed));
    EXPECT_EQ(emulator::live_device_bytes(), two) << "matrices of the dead stay";
  }
  EXPECT_TRUE(same_bits(multiply(*kept), y));
}

TEST(CudaBackend, WithoutMemoryForAGraphThereAreLaunches) {
  const auto m = feature_models(WeightFormat::kBf16)[0];
  const std::vector<Row> row = {{.token = 3}};
  SessionOptions o;
  o.device = "cuda", o.max_tokens = 64;
  const auto expected = copy(Session::create(m.model, o)->forward({.rows = row}).logits_row(0));
  int without_graph = 0, refused = 0;
  for (int call = 0; call < 160; ++call) {  // a forward and its capture take fewer
    auto s = Session::create(m.model, o);
    emulator::fail_after(call, cudaErrorMemoryAllocation, false);
    bool done = true;
    try {
      ASSERT_TRUE(same_bits(s->forward({.rows = row}).logits_row(0), expected)) << call;
    } catch (const base::Error&) {
      ++refused, done = false;
    }
    emulator::clear_fault();
    CountedGraphs counted;
    launch_observer() = &counted;
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(same_bits(s->forward({.rows = row}).logits_row(0), expected)) << call;
    launch_observer() = nullptr;
    without_graph += done && counted.n == 2;  // the second made one
    EXPECT_GE(counted.n, 2);
  }
  EXPECT_EQ(without_graph, 1);
  EXPECT_GT(refused, 10);
}
#endif

TEST(CudaBackend, HeadsLargerThanTheKernelsAreRefused) {
  ModelConfig c = small_config();
  c.head_dim = 264;
  SessionOptions o;
  o.device = "cuda", o.max_tokens = 32;
  for (const char* kv : {"bf16", "int8", "fp8"}) {
    o.kv_dtype = kv;
    EXPECT_THROW((void)Session::create(make_random_model(c, 1, WeightFormat::kBf16), o),
                 base::Error);
  }
}

}  // namespace
}  // namespace evalrun::engine::cuda::testing
