// Host side of drafting against the size of what is looked through: prompt lookup by the length of
// the text, gram pools by what they hold, whole steps of the methods on a session that computes
// next to nothing. Corpora: corpus_bench.cpp.
#include <benchmark/benchmark.h>

#include <cmath>

#include "methods/lookup/gram_pool.h"
#include "methods/lookup/ngram_index.h"
#include "methods/token_tree.h"
#include "methods/verifier.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests {
namespace {

constexpr int kVocab = 49152;

// Text in which n-grams recur as in prose: tokens by Zipf's distribution over 2,000 ids.
Tokens zipf_text(size_t n) {
  base::Rng rng(7);
  Tokens text(n);
  for (int32_t& token : text) token = static_cast<int32_t>(std::exp(rng.uniform() * 7.6)) - 1;
  return text;
}

// One look-up after each of kMore tokens, the text growing.
constexpr int kMore = 20000;
void lookup(benchmark::State& state) {
  const auto n = static_cast<size_t>(state.range(0));
  const Tokens text = zipf_text(n + kMore);
  methods::NgramIndex index(1, 3, methods::NgramIndex::Match::kRecent);
  index.start(static_cast<int>(text.size()));
  index.find(std::span<const int32_t>(text).first(n));
  size_t at = n;
  for (auto _ : state)
    benchmark::DoNotOptimize(index.find(std::span<const int32_t>(text).first(++at)));
}
BENCHMARK(lookup)->RangeMultiplier(10)->Range(100, 1000000)->Iterations(kMore);

// What Lookahead does to its pool in a step (W = 15 insertions) and reads from it, by the keys in
// it.
void pool_step(benchmark::State& state) {
  const auto keys = static_cast<int>(state.range(0));
  methods::GramPool pool(kVocab, 4, 15);
  base::Rng rng(3);
  const auto insert = [&] {
    int32_t gram[4];
    for (int32_t& token : gram) token = static_cast<int32_t>(rng.below(50));
    pool.insert(static_cast<int32_t>(rng.below(static_cast<uint64_t>(keys))), gram);
  };
  for (int i = 0; i < 20 * keys; ++i) insert();
  methods::TokenTree tree;
  tree.reserve(engine::kMaxRows);
  for (auto _ : state) {
    for (int i = 0; i < 15; ++i) insert();
    tree.reset(0);
    const auto key = static_cast<int32_t>(rng.below(static_cast<uint64_t>(keys)));
    for (int i = 0; i < pool.count(key); ++i) tree.add_path(pool.gram(key, i), true);
    benchmark::DoNotOptimize(tree.size());
  }
}
BENCHMARK(pool_step)->RangeMultiplier(10)->Range(10, 40000);

// Greedy verification of a tree of n nodes, all on one path: the most there is to walk.
void verify_chain(benchmark::State& state) {
  const auto n = static_cast<int>(state.range(0));
  methods::TokenTree tree;
  tree.reset(0);
  for (int i = 0; i < n; ++i) tree.add(1, i);
  methods::Verifier verifier({});
  verifier.reserve(engine::kMaxRows);
  methods::KeyedUniforms uniform{base::KeyedChance(1)};
  const auto top = [](int) { return 1; };
  const auto q = [](int) { return std::span<const double>(); };
  for (auto _ : state)
    benchmark::DoNotOptimize(
        verifier.verify(tree, methods::TargetView::with_top(top), q, uniform).bonus);
}
BENCHMARK(verify_chain)->RangeMultiplier(4)->Range(4, 256);

// Drafting time of whole steps after prompts of n tokens, per step, as the harness counts it. The
// session's forward is outside.
void draft_time(benchmark::State& state, const char* spec) {
  const auto n = static_cast<size_t>(state.range(0));
  constexpr int kIds = 2000, kNew = 128;
  const Tokens prompt = zipf_text(n);
  FakeSession session(kIds, static_cast<int>(n) + 1000,
                      [](std::span<const int32_t> context, std::span<float> logits) {
                        // Cheap, and the text repeats itself now and then.
                        std::fill(logits.begin(), logits.end(), 0.0f);
                        logits[static_cast<size_t>(context.back() * 31 % 97)] = 1;
                      });
  const auto method = build_method(spec, small_model(1, kIds), 4000);
  for (auto _ : state) {
    session.reset();
    Turn turn{prompt};
    turn.max_new = kNew;
    int64_t ns = 0, steps = 0;
    for (const auto& step : run(*method, session, turn).steps) {
      ns += step.draft_ns;
      ++steps;
    }
    state.SetIterationTime(1e-9 * static_cast<double>(ns) / static_cast<double>(steps));
  }
}
#define EVALRUN_DRAFT_BENCH(name, spec)     \
  BENCHMARK_CAPTURE(draft_time, name, spec) \
      ->RangeMultiplier(10)                 \
      ->Range(100, 10000)                   \
      ->UseManualTime()                     \
      ->Iterations(5)
EVALRUN_DRAFT_BENCH(pld, "pld");
EVALRUN_DRAFT_BENCH(pld_frequent_3, "pld:match=frequent,candidates=3");
EVALRUN_DRAFT_BENCH(lookahead, "lookahead:window=15,guesses=15");
EVALRUN_DRAFT_BENCH(self_draft, "self_draft");
EVALRUN_DRAFT_BENCH(self_draft_adaptive, "self_draft:adaptive=true");

}  // namespace
}  // namespace evalrun::tests

BENCHMARK_MAIN();
