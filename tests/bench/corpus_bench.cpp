// What corpora cost: looking up n-grams, drafting with REST, and building both, by the size of the
// text. The text is made up (tests/bench/made_up_text.h). Drafting is what a step of the
// method times as its draft phase, on prompts that the corpus does not hold. Each case checks a
// look-up against a scan before it is timed.
//   build/release/bin/corpus_bench                          # to 10^7 tokens
//   EVALRUN_BENCH_LARGE=1 build/release/bin/corpus_bench    # and 10^8: minutes, 3 GB
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "methods/corpus/ngram_corpus.h"
#include "methods/corpus/suffix_corpus.h"
#include "methods/step.h"
#include "tests/bench/made_up_text.h"
#include "tests/methods/support/corpora.h"
#include "tests/methods/support/fake_session.h"

namespace {

using namespace evalrun;
using tests::made_up_text;
constexpr int kVocab = tests::kMadeUpVocab;
constexpr size_t kDocument = 2000;  // tokens
constexpr size_t kPrompt = 64;

const tests::TempFolder& folder() {
  static const tests::TempFolder folder;
  return folder;
}

methods::CorpusText packed_text(size_t n) {
  const tests::Tokens text = made_up_text(n, n);
  methods::CorpusText packed({"", kVocab});
  for (size_t i = 0; i < n; i += kDocument)
    packed.add_document(std::span(text).subspan(i, std::min(kDocument, n - i)));
  return packed;
}

// The file of one kind and size, made once.
const std::string& built(methods::CorpusKind kind, size_t n) {
  static std::map<std::string, std::string> all;
  const std::string name = fmt::format("{}.{}", n, methods::to_string(kind));
  std::string& path = all[name];
  if (!path.empty()) return path;
  path = folder().file(name);
  if (kind == methods::CorpusKind::kSuffixes)
    methods::build_suffix_corpus(path, packed_text(n));
  else
    methods::build_ngram_corpus(path, packed_text(n), {});
  return path;
}

void build_suffixes(benchmark::State& state) {
  const methods::CorpusText text = packed_text(static_cast<size_t>(state.range(0)));
  uint64_t bytes = 0;
  for (auto _ : state)
    bytes = methods::build_suffix_corpus(folder().file("bench"), text).file_bytes;
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["MB"] = static_cast<double>(bytes) / 1e6;
}

void build_ngrams(benchmark::State& state) {
  const methods::CorpusText text = packed_text(static_cast<size_t>(state.range(0)));
  uint64_t bytes = 0;
  for (auto _ : state)
    bytes = methods::build_ngram_corpus(folder().file("bench"), text, {}).file_bytes;
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["MB"] = static_cast<double>(bytes) / 1e6;
}

// Grams for the last four tokens, longest key first, at most 20 of them.
void ngram_lookup(benchmark::State& state) {
  const methods::NgramCorpus corpus(
      built(methods::CorpusKind::kNgrams, static_cast<size_t>(state.range(0))));
  const tests::Tokens text = made_up_text(100000, 1);
  base::Rng rng(2);
  int64_t grams = 0;
  for (auto _ : state) {
    const size_t at = rng.below(text.size() - 4);
    int left = 20;
    corpus.visit_suffixes(std::span(text).subspan(at, 4), [&](std::span<const int32_t> gram) {
      benchmark::DoNotOptimize(gram.data());
      ++grams;
      return --left > 0;
    });
  }
  state.counters["grams"] =
      benchmark::Counter(static_cast<double>(grams), benchmark::Counter::kAvgIterations);
}

bool finds_what_a_scan_finds(const std::string& path, size_t n) {
  static std::map<size_t, bool> right;
  if (const auto it = right.find(n); it != right.end()) return it->second;
  const tests::Tokens text = made_up_text(n, n);
  const tests::Tokens phrase(text.begin() + 100, text.begin() + 102);
  uint64_t count = 0;
  for (size_t i = 0; i + 1 < n; ++i)
    count += i % kDocument != kDocument - 1 && text[i] == phrase[0] && text[i + 1] == phrase[1];
  return right[n] = methods::SuffixCorpus(path).find(phrase).size() == count;
}

void rest_draft(benchmark::State& state) {
  const auto n = static_cast<size_t>(state.range(0));
  const std::string& path = built(methods::CorpusKind::kSuffixes, n);
  if (!finds_what_a_scan_finds(path, n)) {
    state.SkipWithError("not what a scan finds");
    return;
  }
  const auto method =
      tests::build_method(fmt::format("rest:datastore={},occurrences={}", path, state.range(1)),
                          tests::small_model(1, kVocab));
  tests::FakeSession session(8, 400, [](std::span<const int32_t>, std::span<float>) {});
  const tests::Tokens text = made_up_text(1000000, 1);
  base::Rng rng(2);
  base::SteadyClock clock;
  methods::PhaseTimer timer(clock);
  int64_t drafted = 0;
  std::vector<double> times;
  for (auto _ : state) {
    const auto prompt = std::span(text).subspan(rng.below(text.size() - kPrompt - 1), kPrompt);
    session.rewind(0, 0);
    session.prefill(prompt, 0);
    methods::GenerationContext context;
    context.target = &session;
    context.prompt = prompt;
    context.first_token = *prompt.end();
    context.max_new = 32;
    method->start(context);
    drafted += methods::run_alone(*method, session, timer).drafted;
    times.push_back(static_cast<double>(timer.ns(methods::PhaseTimer::kDraft)) / 1e3);
    state.SetIterationTime(times.back() / 1e6);
  }
  std::sort(times.begin(), times.end());
  state.counters["median_us"] = times[times.size() / 2];
  state.counters["p99_us"] = times[times.size() * 99 / 100];
  state.counters["nodes"] =
      benchmark::Counter(static_cast<double>(drafted), benchmark::Counter::kAvgIterations);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::vector<int64_t> sizes = {10000, 100000, 1000000, 10000000};
  if (std::getenv("EVALRUN_BENCH_LARGE") != nullptr) sizes.push_back(100000000);
  for (const int64_t n : sizes) {
    benchmark::RegisterBenchmark("build_suffixes", build_suffixes)
        ->Arg(n)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark("build_ngrams", build_ngrams)
        ->Arg(n)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark("ngram_lookup", ngram_lookup)
        ->Arg(n)
        ->Unit(benchmark::kMicrosecond);
    for (const int64_t occurrences : {32, 100, 1000})
      benchmark::RegisterBenchmark("rest_draft", rest_draft)
          ->Args({n, occurrences})
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
}
