// What it costs threads to meet, per number of threads: a barrier, an empty region, an empty region
// after a pause in which the workers fell asleep. Wall time; on cores shared with other processes
// only the smallest of many repetitions means anything.
//   build/release/bin/thread_pool_bench --benchmark_repetitions=9
#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>

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

void threads(benchmark::internal::Benchmark* b) {
  b->ArgName("threads")->Arg(1)->Arg(2);
  for (int n = 4; n <= static_cast<int>(std::thread::hardware_concurrency()); n *= 2) b->Arg(n);
}
BENCHMARK(barrier)->Apply(threads)->UseRealTime();
BENCHMARK(region)->Apply(threads)->UseRealTime();
BENCHMARK(region_after_sleep)->Apply(threads)->UseManualTime()->Iterations(200);

}  // namespace

BENCHMARK_MAIN();
