// What look-ups cost by how much they have read: time of a drafter's own work for a step and for a
// token, and the memory it holds, after 10^3 to 10^7 tokens. The text is made up
// (tests/bench/made_up_text.h): words by Zipf's law and phrases said again.
//
// Cases end in where the history is: _kept, in what lives on from answer to answer (state=warm or
// shared, persist=true); _text, in the conversation itself. Each measures one answer of 1,000
// tokens behind it. What the target says is the text's next token where a draft followed the text,
// and made up elsewhere. Forwards and verification are not in it.
//
// Columns: Time is of a step; ns_token of a token; tau the tokens of a step; start_us what
// Drafter::start() costs with that history; MB allocated by the drafter; most_MB the bound that it
// states (Drafter::add_kept()). exponent is e where the time of a step grew
// as n^e since 10^3 tokens: 0 is flat, 1 linear, and log n from 10^3 to 10^6 tokens 0.1.
//   build/release/bin/history_bench                                   # minutes and gigabytes
//   build/release/bin/history_bench --benchmark_filter='/(1000|100000)/'
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "methods/speculative_method.h"
#include "tests/bench/made_up_text.h"
#include "tests/methods/support/draft_walk.h"

namespace {

using namespace evalrun;
constexpr int kVocab = tests::kMadeUpVocab;
constexpr size_t kPrompt = 64, kAnswer = 1000;
constexpr size_t kTurn = kPrompt + kAnswer;

enum class Where { kKept, kText, kLearnt };  // kLearnt: in what the target said of the answer
struct Case {
  const char* name;
  const char* spec;
  Where where;
  bool in_steps = false;  // the history is decoded: what is learnt depends on drafts
};

constexpr int64_t kShortest = 1'000, kLongest = 10'000'000;
// Capacities and shapes are the defaults of the methods. STAND's history is an answer; that of 10^7
// tokens takes 6 GB.
constexpr std::array kCases = {
    Case{"suffix_kept", "suffix:state=warm", Where::kKept},
    Case{"suffix_large_kept", "suffix:capacity=67108864,state=warm", Where::kKept},
    Case{"suffix_text", "suffix", Where::kText},
    Case{"sam_kept", "sam:state=warm", Where::kKept},
    Case{"sam_large_kept", "sam:capacity=67108864,state=warm", Where::kKept},
    Case{"sam_text", "sam", Where::kText},
    Case{"ngram_mod_kept", "ngram_mod:state=shared", Where::kKept},
    Case{"recycling_kept", "recycling:state=warm", Where::kKept},
    Case{"pia_kept", "pia:persist=true", Where::kKept},
    Case{"pia_text", "pia", Where::kText},
    Case{"self_draft_kept", "self_draft:persist=true", Where::kKept},
    Case{"self_draft_text", "self_draft", Where::kText},
    Case{"lookahead_text", "lookahead:pool_from_prompt=true", Where::kText},
    Case{"logitspec_text", "logitspec", Where::kText},
    Case{"stand_text", "stand", Where::kLearnt},
    Case{"hybrid_kept", "hybrid:drafts=suffix(state=warm)+recycling(state=warm)", Where::kKept,
         true},
    Case{"hybrid_text", "hybrid:drafts=pld+suffix", Where::kText},
};

const tests::Tokens& text_of(size_t n) {
  static std::map<size_t, tests::Tokens> all;
  tests::Tokens& text = all[n];
  if (text.empty()) text = tests::made_up_text(n, 7);
  return text;
}

double allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd);
}

// Has the drafter read n tokens, and begins the answer that is measured. Returns what the last
// start() took, in us.
double grow(tests::DraftWalk& walk, const Case& of, size_t n) {
  const Where where = of.where;
  size_t begin = 0, prompt = n;
  if (where == Where::kKept) {
    for (; begin + kTurn <= n; begin += kTurn) {
      walk.start(begin, kPrompt, kAnswer);
      walk.read(begin + kTurn, of.in_steps);
    }
    begin = n;
    prompt = kPrompt;
  } else if (where == Where::kLearnt) {
    prompt = kPrompt;
  }
  const size_t max_new = where == Where::kLearnt ? n + kAnswer : kAnswer;
  const auto before = std::chrono::steady_clock::now();
  walk.start(begin, prompt, max_new);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - before;
  walk.read((where == Where::kKept ? begin + prompt : n) + 1, of.in_steps);
  return took.count();
}

void history(benchmark::State& state, const Case& of) {
  const auto n = static_cast<size_t>(state.range(0));
  const tests::Tokens& text = text_of(n + 2 * kTurn);
  static std::map<std::string, double> shortest;  // case -> ns of a step after 10^3 tokens
  for (auto _ : state) {
    const double before = allocated_bytes();
    const auto drafter = tests::make_drafter(of.spec, kVocab);
    const double without_walk = allocated_bytes();
    methods::KeptMemory kept;
    drafter->add_kept(kept);
    tests::DraftWalk walk(*drafter, text, kVocab);
    const double of_walk = allocated_bytes() - without_walk;
    const double start_us = grow(walk, of, n);
    const size_t first = walk.at(), end = first + kAnswer;
    size_t steps = 0;
    while (walk.at() + 1 < end) walk.step(end), ++steps;
    const auto tokens = static_cast<double>(walk.at() - first);
    const double ns = static_cast<double>(walk.ns()) / static_cast<double>(steps);
    state.SetIterationTime(1e-9 * ns);
    if (state.range(0) == kShortest) shortest[of.name] = ns;
    if (state.range(0) > kShortest && shortest.contains(of.name))
      state.counters["exponent"] =
          std::log(ns / shortest[of.name]) /
          std::log(static_cast<double>(n) / static_cast<double>(kShortest));
    state.counters["ns_token"] = static_cast<double>(walk.ns()) / tokens;
    state.counters["tau"] = tokens / static_cast<double>(steps);
    state.counters["start_us"] = start_us;
    state.counters["MB"] = (allocated_bytes() - before - of_walk) / 1e6;
    state.counters["most_MB"] =
        kept.grown.most(1, static_cast<int>(of.where == Where::kKept ? kTurn : n + kTurn)) / 1e6;
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const Case& c : kCases) {
    auto* bench =
        benchmark::RegisterBenchmark(c.name, [&c](benchmark::State& state) { history(state, c); });
    for (const int64_t n : {kShortest, int64_t{100'000}, int64_t{1'000'000}, kLongest})
      bench->Arg(n);
    bench->UseManualTime()->Iterations(1)->Unit(benchmark::kNanosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
}
