// What it costs threads to meet, per number of threads: a barrier, an empty region, an empty region
// after a pause in which the workers fell asleep. And what it costs them to write to the same
// lines: keys of 16 rows, of a layer of the default model, by rows or by heads. Wall time; on cores
// shared with other processes only the smallest of many repetitions means anything.
//   build/release/bin/thread_pool_bench --benchmark_repetitions=9
#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>
#include <vector>

#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kv_store.h"
#include "engine/cpu/thread_pool.h"

namespace {

using evalrun::engine::cpu::ThreadPool;

void barrier(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  constexpr int kBarriers = 1000;
  for (auto _ : state)
    pool.run([&](int) {
      for (int i = 0; i < kBarriers; ++i) pool.barrier();
    });
  state.counters["per_barrier"] = benchmark::Counter(
      kBarriers, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void region(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) pool.run([](int t) { benchmark::DoNotOptimize(t); });
}

void region_after_sleep(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    const auto wake = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < wake) {
    }
    const auto begin = std::chrono::steady_clock::now();
    pool.run([](int t) { benchmark::DoNotOptimize(t); });
    state.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
}

// A line of a block of keys has two numbers of each of its 16 rows. Barriers included.
void keys(benchmark::State& state, bool by_rows) {
  constexpr int kRows = 16, kHeads = 3, kDim = 64, kWidth = kHeads * kDim, kLayers = 1000;
  const auto& kernels = evalrun::engine::cpu::available_kernels().front();
  ThreadPool pool(static_cast<int>(state.range(0)));
  evalrun::engine::cpu::KvStore<uint16_t> store;
  store.configure(kHeads, kDim);
  store.reserve(kRows);
  const std::vector<float> k(kRows * kWidth, 0.5f);
  for (auto _ : state)
    pool.run([&](int thread) {
      const auto [begin, end] = pool.share(by_rows ? kRows : kHeads, thread);
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int i = begin; i < end; ++i)
          if (by_rows)
            for (int head = 0; head < kHeads; ++head)
              store.write_keys(kernels, head, i, 1, k.data() + i * kWidth + head * kDim, kWidth);
          else
            store.write_keys(kernels, i, 0, kRows, k.data() + i * kDim, kWidth);
        pool.barrier();
      }
    });
  state.counters["per_layer"] = benchmark::Counter(
      kLayers, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void threads(benchmark::internal::Benchmark* b) {
  b->ArgName("threads")->Arg(1)->Arg(2);
  for (int n = 4; n <= static_cast<int>(std::thread::hardware_concurrency()); n *= 2) b->Arg(n);
}
BENCHMARK(barrier)->Apply(threads)->UseRealTime();
BENCHMARK_CAPTURE(keys, by_rows, true)->Apply(threads)->UseRealTime();
BENCHMARK_CAPTURE(keys, by_heads, false)->Apply(threads)->UseRealTime();
BENCHMARK(region)->Apply(threads)->UseRealTime();
BENCHMARK(region_after_sleep)->Apply(threads)->UseManualTime()->Iterations(200);

}  // namespace

BENCHMARK_MAIN();
