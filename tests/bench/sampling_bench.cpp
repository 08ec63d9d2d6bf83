// What sampling costs a step outside the forward, on distributions over 49,152 tokens (the default
// model's vocabulary): argmax, top-k, the warped distribution, a draw, a rejection with its
// residual; and the random numbers themselves, keyed by position and from a stream. `flat` is a
// distribution at temperature 3 whose top-p set holds some thirty thousand tokens, `peaked` one at
// temperature 1 whose set holds a few. Each case checks its result before it is timed.
//   build/release/bin/sampling_bench
//   build/release/bin/sampling_bench --benchmark_filter=chance
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/sampling.h"
#include "methods/verifier.h"

namespace {

using namespace evalrun;
constexpr size_t kVocab = 49152;

// Normal logits of deviation 2; peaked: with ten tokens that stand out, as after most contexts.
std::vector<float> logits(bool peaked) {
  base::Rng rng(1);
  std::vector<float> l(kVocab);
  for (float& x : l)
    x = static_cast<float>(2 * std::sqrt(-2 * std::log(1 - rng.uniform())) *
                           std::cos(6.283185307179586 * rng.uniform()));
  if (peaked)
    for (int i = 0; i < 10; ++i) l[rng.below(kVocab)] = static_cast<float>(18 + 4 * rng.uniform());
  return l;
}

void argmax(benchmark::State& state) {
  const auto l = logits(true);
  if (engine::argmax(l) != std::max_element(l.begin(), l.end()) - l.begin()) {
    state.SkipWithError("not the largest logit");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(engine::argmax(l));
}
BENCHMARK(argmax)->Unit(benchmark::kMicrosecond);

void top_k(benchmark::State& state) {
  auto l = logits(false);
  const auto k = static_cast<int>(state.range(0));
  const auto best = engine::top_k(l, k);
  const float border = best.back().logit;
  if (std::count_if(l.begin(), l.end(), [&](float x) { return x > border; }) >= k) {
    state.SkipWithError("not the k largest logits");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(engine::top_k(l, k).data());
}
BENCHMARK(top_k)->Arg(10)->Arg(1000)->Unit(benchmark::kMicrosecond);

void warp(benchmark::State& state, bool peaked, const engine::SamplingParams& params) {
  const auto l = logits(peaked);
  std::vector<double> p;
  engine::WarpScratch scratch;
  engine::warp(l, params, p, scratch);
  double sum = 0, kept = 0;
  for (const double x : p) sum += x, kept += x > 0;
  if (std::abs(sum - 1) > 1e-12) {
    state.SkipWithError("not a distribution");
    return;
  }
  for (auto _ : state) {
    engine::warp(l, params, p, scratch);
    benchmark::DoNotOptimize(p.data());
  }
  state.counters["kept"] = kept;
}
BENCHMARK_CAPTURE(warp, flat_T3, false, {3.0, 0, 1.0})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(warp, flat_T3_top_p_95, false, {3.0, 0, 0.95})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(warp, peaked_T1_top_p_95, true, {1.0, 0, 0.95})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(warp, flat_T3_top_k_50_top_p_95, false, {3.0, 50, 0.95})
    ->Unit(benchmark::kMicrosecond);

void draw(benchmark::State& state) {
  std::vector<double> p;
  engine::WarpScratch scratch;
  engine::warp(logits(false), {3.0, 0, 1.0}, p, scratch);
  base::Rng rng(1);
  for (auto _ : state) benchmark::DoNotOptimize(engine::draw(p, rng));
}
BENCHMARK(draw)->Unit(benchmark::kMicrosecond);

// A token straight from logits, as verification by matching takes it.
void draw_of_logits(benchmark::State& state, const engine::SamplingParams& params) {
  const auto l = logits(false);
  engine::WarpScratch scratch;
  base::Rng rng(1);
  for (auto _ : state) benchmark::DoNotOptimize(engine::draw(l, params, rng.uniform(), scratch));
}
BENCHMARK_CAPTURE(draw_of_logits, flat_T3, {3.0, 0, 1.0})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(draw_of_logits, flat_T3_top_p_95, {3.0, 0, 0.95})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(draw_of_logits, peaked_T1_noise, {1.0, 0, 1.0, engine::Sampler::kGumbel})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(draw_of_logits, flat_T3_noise, {3.0, 0, 1.0, engine::Sampler::kGumbel})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(draw_of_logits, flat_T3_top_p_95_noise, {3.0, 0, 0.95, engine::Sampler::kGumbel})
    ->Unit(benchmark::kMicrosecond);
void log_sum(benchmark::State& state) {
  const auto l = logits(false);
  for (auto _ : state) benchmark::DoNotOptimize(engine::log_sum(l));
}
BENCHMARK(log_sum)->Unit(benchmark::kMicrosecond);

// Rejects every draft; counts what is accepted as nothing.
class Rejecting final : public methods::UniformSource {
 public:
  bool accept(double, double) override { return false; }
  int32_t draw(std::span<const double> prob) override { return engine::draw(prob, rng_); }

 private:
  base::Rng rng_{1};
};

// Rejection sampling with one drafted token that is rejected: target distribution, residual, draw
// from it.
void reject(benchmark::State& state) {
  const auto l = logits(false);
  std::vector<double> q;
  engine::WarpScratch scratch;
  const engine::SamplingParams params{3.0, 0, 1.0};
  engine::warp(logits(true), params, q, scratch);
  methods::TokenTree tree;
  tree.reset(0);
  tree.add(17, 0);
  methods::Verifier verifier(params);
  Rejecting uniform;
  const auto logits_of = [&](int) { return std::span<const float>(l); };
  const auto q_of = [&](int) { return std::span<const double>(q); };
#ifdef EVALRUN_BENCH_BEFORE
  for (auto _ : state)
    benchmark::DoNotOptimize(verifier.verify(tree, logits_of, q_of, uniform).bonus);
#else
  for (auto _ : state)
    benchmark::DoNotOptimize(
        verifier.verify(tree, methods::TargetView::with_logits(logits_of), q_of, uniform).bonus);
#endif
}
BENCHMARK(reject)->Unit(benchmark::kMicrosecond);

// What decides a position of an answer: a number for the target's draw, or a test of a drafted
// token. Keyed as methods have it, or the next one of a stream.
class KeyedSource {
 public:
  double target() {
    uniform_.begin_step(position_++);
    return uniform_.target(0);
  }
  bool accept(double p) {
    uniform_.begin_step(position_++);
    uniform_.at(0);
    return uniform_.accept(p, 1.0);
  }

 private:
  methods::KeyedUniforms uniform_{base::KeyedChance(1)};
  int64_t position_ = 0;
};

class StreamSource {
 public:
  double target() { return rng_.uniform(); }
  bool accept(double p) { return rng_.uniform() < p; }

 private:
  base::Rng rng_{1};
};

constexpr int kChecked = 100'000;

template <typename Source>
void chance_target(benchmark::State& state) {
  Source source;
  double sum = 0;
  for (int i = 0; i < kChecked; ++i) sum += source.target();
  // Six standard deviations of a mean of uniform numbers.
  if (std::abs(sum / kChecked - 0.5) > 6 / std::sqrt(12.0 * kChecked)) {
    state.SkipWithError("not uniform");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(source.target());
}
BENCHMARK_TEMPLATE(chance_target, KeyedSource);
BENCHMARK_TEMPLATE(chance_target, StreamSource);

template <typename Source>
void chance_accept(benchmark::State& state) {
  Source source;
  int accepted = 0;
  for (int i = 0; i < kChecked; ++i) accepted += source.accept(0.3);
  if (std::abs(accepted - 0.3 * kChecked) > 6 * std::sqrt(0.21 * kChecked)) {
    state.SkipWithError("not accepted with that probability");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(source.accept(0.3));
}
BENCHMARK_TEMPLATE(chance_accept, KeyedSource);
BENCHMARK_TEMPLATE(chance_accept, StreamSource);

}  // namespace

BENCHMARK_MAIN();
