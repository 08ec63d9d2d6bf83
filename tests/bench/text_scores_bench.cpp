// ROUGE and BLEU, per pair of texts: a one-sentence summary against a reference (24 and 22 words,
// as in XSum), a paragraph (120 and 110), and 5,000 words. Python's times of the same pairs:
// tests/bench/text_scores_python.py, which makes the texts the same way; docs/evaluators.md has the
// ratios.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "evaluators/text/bleu.h"
#include "evaluators/text/rouge.h"

namespace evalrun::evaluators {
namespace {

// Numerical Recipes' generator, in its own words so that Python has the same one.
struct Generator {
  uint32_t state;
  uint32_t next(uint32_t n) {
    state = state * 1664525u + 1013904223u;
    return static_cast<uint32_t>((uint64_t{state} * n) >> 32);
  }
};

// Words of 2 to 9 letters, small ones more often; a sentence ends after twelve words or so.
std::string make_text(uint32_t seed, int n_words) {
  Generator draw{seed};
  std::string text;
  for (int i = 0; i < n_words; ++i) {
    const uint32_t word = draw.next(draw.next(2000) + 1);
    if (i > 0) text += ' ';
    for (uint32_t k = 0; k < 2 + word % 8; ++k)
      text += static_cast<char>('a' + (word * 7 + k * 11) % 26);
    if (draw.next(12) == 0) text += draw.next(4) == 0 ? ".\n" : ".";
  }
  return text;
}

struct Texts {
  explicit Texts(const benchmark::State& state)
      : reference(make_text(1, static_cast<int>(state.range(0)))),
        answer(make_text(2, static_cast<int>(state.range(0)) * 11 / 12)) {}
  std::string reference, answer;
};

template <RougeKind kKind>
void pltrdy(benchmark::State& state) {
  const Texts texts(state);
  for (auto _ : state)
    benchmark::DoNotOptimize(rouge_pltrdy(kKind, texts.answer, texts.reference).f);
}

template <RougeKind kKind>
void google(benchmark::State& state) {
  const Texts texts(state);
  for (auto _ : state)
    benchmark::DoNotOptimize(rouge_google(kKind, texts.answer, texts.reference).f);
}

void bleu(benchmark::State& state) {
  const Texts texts(state);
  for (auto _ : state) benchmark::DoNotOptimize(sentence_bleu(texts.answer, texts.reference).bleu);
}

#define EVALRUN_LENGTHS ->Arg(24)->Arg(120)->Arg(5000)->Unit(benchmark::kMicrosecond)
BENCHMARK(pltrdy<RougeKind::kRouge1>)->Name("rouge1@pltrdy") EVALRUN_LENGTHS;
BENCHMARK(pltrdy<RougeKind::kRouge2>)->Name("rouge2@pltrdy") EVALRUN_LENGTHS;
BENCHMARK(pltrdy<RougeKind::kRougeL>)->Name("rougeL@pltrdy") EVALRUN_LENGTHS;
BENCHMARK(google<RougeKind::kRouge1>)->Name("rouge1@rouge_score") EVALRUN_LENGTHS;
BENCHMARK(google<RougeKind::kRouge2>)->Name("rouge2@rouge_score") EVALRUN_LENGTHS;
BENCHMARK(google<RougeKind::kRougeL>)->Name("rougeL@rouge_score") EVALRUN_LENGTHS;
BENCHMARK(google<RougeKind::kRougeLsum>)->Name("rougeLsum@rouge_score") EVALRUN_LENGTHS;
BENCHMARK(bleu)->Name("bleu@sacrebleu") EVALRUN_LENGTHS;
#undef EVALRUN_LENGTHS

}  // namespace
}  // namespace evalrun::evaluators

BENCHMARK_MAIN();
