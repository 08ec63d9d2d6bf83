// When a call fails on its way: nothing stale is left, and nothing is freed under work that is
// still queued, which the emulated device stops at (tests/gpu/emulator/runtime.h). Calls are made
// to fail one after the other.
#include "engine/base/error.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/cuda/kernels/device_matrix.h"
#include "engine/cuda/kv_memory.h"
#include "engine/cuda/runtime/queue.h"
#include "engine/row_program.h"
#include "tests/engine/random_models.h"
#include "tests/gpu/device_memory.h"
#include "tests/sample.h"
#ifdef EVALRUN_CUDA_EMULATED
#include "tests/gpu/emulator/include/emulator.h"

namespace evalrun::engine::cuda::testing {
namespace {

using namespace engine::testing;  // NOLINT: helpers of the engine's tests

// Each of the calls that `work` makes fails in turn: how often it threw. What frees does not throw.
template <typename Work>
int fail_each_call(const Work& work) {
  int failures = 0;
  for (int call = 0;; ++call) {
    emulator::fail_after(call, cudaErrorMemoryAllocation, false);
    try {
      work();
    } catch (const base::Error&) {
      ++failures;
    }
    if (emulator::clear_fault()) return failures;  // it makes fewer
  }
}

// A forward that finds no memory on its way, wherever that is, changes nothing for the next: no
// graph goes on with buffers that have moved.
TEST(CudaBackend, AnErrorOnTheWayLeavesNothingStale) {
  const auto m = feature_models(WeightFormat::kBf16)[0];
  std::vector<Row> small(1);
  small[0].token = 3, small[0].logits = false, small[0].hidden = small[0].top = true;
  const auto large = random_tree(100, 101, 5, 2);  // more than there is room for at first
  int failures = 0;
  // The large one takes more than a hundred calls. One of five, others in other runs.
  const int step = tests::test_everything() ? 1 : 5;
  for (int call = static_cast<int>(tests::sample_seed()) % step; call < 140; call += step) {
    SessionOptions o;
    o.device = "cuda", o.max_tokens = 128;
    auto s = Session::create(m.model, o);
    std::vector<float> expected;
    for (int i = 0; i < 3; ++i) expected = copy(s->forward({.rows = small}).hidden_row(0));
    emulator::fail_after(call, cudaErrorMemoryAllocation, false);
    try {
      (void)s->forward({.rows = large});
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kData);
      ++failures;
    }
    emulator::clear_fault();
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(same_bits(s->forward({.rows = small}).hidden_row(0), expected)) << call;
  }
  EXPECT_GE(failures, 100 / step);
}

TEST(CudaErrors, BuffersAreNotFreedBeforeTheyAreClearedOrFilled) {
  const std::vector<float> values = random_floats(300, 4);
  EXPECT_GE(fail_each_call([&] { (void)on_device(values); }), 4);
}

TEST(CudaErrors, MatricesAreNotFreedWhileTheyArePacked) {
  const Queue queue(false);
  std::vector<WeightMatrix> parts;
  for (const int out : {20, 40}) {
    parts.emplace_back(WeightStorage::kQ4Group, out, 96);
    for (int o = 0; o < out; ++o) parts.back().set_row(o, random_floats(96, 7));
  }
  const WeightMatrix* const two[] = {&parts[0], &parts[1]};
  EXPECT_GE(fail_each_call([&] { (void)DeviceMatrix(two, Joint::kBehind, queue.stream()); }), 10);
  Upload upload(256);  // pieces: halves are waited for on the way
  EXPECT_GE(
      fail_each_call([&] { (void)DeviceMatrix(two, Joint::kBehind, queue.stream(), &upload); }),
      10);
}

TEST(CudaErrors, RowsAreNotFreedWhileTheyAreCopied) {
  const Queue queue(false);
  const ModelConfig c = small_config();
  const int failures = fail_each_call([&] {
    KvMemory kv(c, 1, 64, KvType::kBf16, head_stride_for(c.head_dim));
    (void)kv.room_for_rows(10, false, queue.stream());
    (void)kv.room_for_rows(100, true, queue.stream());
  });
  EXPECT_GE(failures, 20);
}

TEST(CudaErrors, AStretchThatFailedToEndEndsLater) {
  const DeviceBuffer memory(64);
  for (int call = 0, fired = 1; fired != 0; ++call) {
    Queue queue(true);
    emulator::fail_after(call, cudaErrorMemoryAllocation, false);
    try {
      queue.begin();
      EVALRUN_CUDA(cudaMemsetAsync(memory.as<void>(), 1, 64, queue.stream()));
      queue.wait();
    } catch (const base::Error&) {
    }
    fired = emulator::clear_fault() ? 0 : 1;
    EXPECT_NO_THROW(queue.wait()) << "call " << call;
  }
}

constexpr int kHeadIn = 64, kHeadOut = 512;

std::unique_ptr<WeightMatrix> head_of(uint64_t seed) {
  auto w = std::make_unique<WeightMatrix>(WeightStorage::kBf16, kHeadOut, kHeadIn);
  for (int o = 0; o < kHeadOut; ++o)
    w->set_row(o, random_floats(kHeadIn, seed + static_cast<uint64_t>(o)));
  return w;
}

// What a caller lends goes with it, at the latest when the exception has passed it.
TEST(CudaErrors, WhatACallThatThrewWasLentMayGo) {
  const auto m = feature_models(WeightFormat::kBf16)[0];
  auto s = open(m.model, {.isa = {}, .format = WeightFormat::kBf16, .device = "cuda"});
  const std::vector<float> x = random_floats(kHeadIn, 3);
  const SamplingParams sampling{.temperature = 1};
  const double uniform[] = {0.4};
  const DistributionDraw draw{0, 0, uniform};
  const auto head = head_of(1);
  const WeightMatrix* const heads[] = {head.get()};
  const auto drawn = [&] {
    const auto dists = s->make_distributions(1, kHeadOut, {});
    return s->draw(heads, {x.data(), 1, kHeadIn}, {&sampling, dists.get(), {&draw, 1}})[0];
  };
  const int32_t token = drawn();
  EXPECT_GE(fail_each_call([&] { EXPECT_EQ(drawn(), token); }), 10);
}

// A drafter queues a program and goes before anyone has waited for it.
TEST(CudaErrors, AProgramOutlivesItsDrafter) {
  const auto m = feature_models(WeightFormat::kBf16)[0];
  auto s = open(m.model, {.isa = {}, .format = WeightFormat::kBf16, .device = "cuda"});
  const std::vector<float> x = random_floats(4 * kHeadIn, 3);
  const auto bias = [] {
    return std::make_shared<const std::vector<float>>(random_floats(kHeadOut, 8));
  };
  const auto compute = [&](const WeightMatrix& w, const SharedVector& b) {
    RowProgram p;
    const int from = p.given({x.data(), 1, kHeadIn}), to = p.value(1, kHeadOut);
    p.product({to, 0, 0}, w, {from, 0, 0}, 1, b);
    (void)s->compute(p, to);
  };
  // Another session has these on the device already: bringing them would be a wait.
  auto neighbour = open(m.model, {.isa = {}, .format = WeightFormat::kBf16, .device = "cuda"});
  std::vector<std::unique_ptr<WeightMatrix>> others;
  for (uint64_t drafter = 1; drafter < 4; ++drafter) {
    const auto compute_own = [&] {
      const auto own = head_of(drafter);
      compute(*own, bias());
    };
    others.push_back(head_of(100 * drafter));
    (void)neighbour->multiply(*others.back(), {x.data(), 1, kHeadIn});
    compute_own();
    (void)s->multiply(*others.back(), {x.data(), 1, kHeadIn});
  }
  // As a graph; more room for another product is none for graphs that know the old one.
  const auto own = head_of(5);
  const SharedVector own_bias = bias();
  for (int i = 0; i < 3; ++i) compute(*own, own_bias);
  (void)s->multiply(*others.back(), {x.data(), 4, kHeadIn});
}

}  // namespace
}  // namespace evalrun::engine::cuda::testing
#endif
