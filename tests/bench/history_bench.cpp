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
// Drafter::start() costs with that history; MB allocated by the drafter; most_MB the bound of what
// its structures hold, for _text so many bytes a token. exponent is e where the time of a step grew
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

#include "engine/base/error.h"
#include "methods/lookup/suffix_automaton.h"
#include "methods/speculative_method.h"
#include "tests/bench/made_up_text.h"
#include "tests/methods/support/harness.h"

namespace {

using namespace evalrun;
using methods::SuffixAutomaton;

constexpr int kVocab = tests::kMadeUpVocab;
constexpr size_t kPrompt = 64, kAnswer = 1000;
constexpr int kDeepest = 64;  // draft
constexpr size_t kTurn = kPrompt + kAnswer;

enum class Where { kKept, kText, kLearnt };  // kLearnt: in what the target said of the answer
struct Case {
  const char* name;
  const char* spec;
  Where where;
  double fixed_bytes, bytes_per_token;  // of the bound
  int64_t longest;                      // history
  bool in_steps = false;                // the history is decoded: what is learnt depends on drafts
};

constexpr int64_t kShortest = 1'000, kLongest = 10'000'000;
constexpr double kOfAutomaton = static_cast<double>(SuffixAutomaton::kBytesPerToken);
constexpr double kIds = kVocab;
// Capacities and shapes are the defaults of the methods. Bounds of automata are theirs, those of
// the others follow from their structures: entries of 8 bytes; rows of k ids; nodes of 24 bytes;
// slots and grams of each id; slots and places of three n-grams; slots, grams and candidates of
// four n-grams. STAND's history is an answer; that of 10^7 tokens takes 6 GB. Joined drafts have
// what their parts have.
const std::array kCases = {
    Case{"suffix_kept", "suffix:state=warm", Where::kKept, 65536 * kOfAutomaton, 0, kLongest},
    Case{"suffix_large_kept", "suffix:capacity=67108864,state=warm", Where::kKept,
         67108864 * kOfAutomaton, 0, kLongest},
    Case{"suffix_text", "suffix", Where::kText, 0, kOfAutomaton, kLongest},
    Case{"sam_kept", "sam:state=warm", Where::kKept, 65536 * kOfAutomaton, 0, kLongest},
    Case{"sam_large_kept", "sam:capacity=67108864,state=warm", Where::kKept,
         67108864 * kOfAutomaton, 0, kLongest},
    Case{"sam_text", "sam", Where::kText, 0, kOfAutomaton, kLongest},
    Case{"ngram_mod_kept", "ngram_mod:state=shared", Where::kKept, 8.0 * (1 << 22), 0, kLongest},
    Case{"recycling_kept", "recycling:state=warm", Where::kKept, kIds * 8 * 4, 0, kLongest},
    Case{"pia_kept", "pia:persist=true", Where::kKept, 24.0 * (1 << 24), 0, kLongest},
    Case{"pia_text", "pia", Where::kText, 0, 24 * 14, kLongest},
    Case{"self_draft_kept", "self_draft:persist=true", Where::kKept, kIds*(12 + 10 * 4 * 4), 0,
         kLongest},
    Case{"self_draft_text", "self_draft", Where::kText, kIds*(12 + 10 * 4 * 4), 0, kLongest},
    Case{"lookahead_text", "lookahead:pool_from_prompt=true", Where::kText, kIds*(12 + 7 * 4 * 4),
         0, kLongest},
    Case{"logitspec_text", "logitspec", Where::kText, 0, 3 * (4 * 4 + 4), kLongest},
    Case{"stand_text", "stand", Where::kLearnt, 0, 4 * (44 + 80) + 16 * 4, kLongest},
    Case{"hybrid_kept", "hybrid:drafts=suffix(state=warm)+recycling(state=warm)", Where::kKept,
         65536 * kOfAutomaton + kIds * 8 * 4, 0, kLongest, true},
    Case{"hybrid_text", "hybrid:drafts=pld+suffix", Where::kText, 0, kOfAutomaton + 3 * (4 * 4 + 4),
         kLongest},
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

std::unique_ptr<methods::Drafter> make_drafter(const std::string& spec) {
  const auto method = tests::build_method(spec, tests::small_model(1, kVocab));
  std::unique_ptr<methods::Drafter> taken;
  methods::with_verdicts(*method, "this bench")
      .replace_drafter([&](std::unique_ptr<methods::Drafter> drafter) {
        taken = std::move(drafter);
        return std::unique_ptr<methods::Drafter>();
      });
  return taken;
}

// A drafter along a text, without a target: its answers are made here.
class Walk {
 public:
  Walk(methods::Drafter& drafter, const tests::Tokens& text) : drafter_(drafter), text_(text) {
    sampling_.temperature = 1;
    tree_.reserve(engine::kMaxRows);
    path_.reserve(kDeepest);
    best_.resize(static_cast<size_t>(engine::kMostBest) * engine::kMaxRows);
    log_sums_.assign(engine::kMaxRows, 0.0);
    for (int i = 0; i < engine::kMaxRows; ++i) best_of_.push_back(i);
    result_.best.best = best_;
    result_.best.log_sums = log_sums_;
    result_.best_of = best_of_;
  }

  // An answer of up to `max_new` tokens after text[begin, begin + prompt).
  void start(size_t begin, size_t prompt, size_t max_new) {
    begin_ = begin;
    at_ = begin + prompt;
    methods::GenerationContext context;
    context.prompt = std::span(text_).subspan(begin, prompt);
    context.first_token = text_[at_];
    context.max_new = static_cast<int>(max_new);
    context.sampling = sampling_;
    context.chance = base::KeyedChance(1);
    drafter_.start(context);
  }
  // Takes in the text up to place `end`, without counting; `in_steps`: by decoding it.
  void read(size_t end, bool in_steps) {
    const int64_t before = ns_;
    while (in_steps && at_ + 1 < end) step(end);
    ns_ = before;
    if (drafter_.wants().best > 0) {
      for (; at_ + 1 < end; ++at_) {
        tree_.reset(text_[at_]);
        path_.clear();
        answer();
        drafter_.learn(sequence(), tree_, path_, answers_);
      }
    }
    at_ = end - 1;
    tree_.reset(text_[at_]);
    draft(kDeepest);
  }
  // One step towards `end`; the tokens that it takes.
  size_t step(size_t end) {
    const size_t left = end - 1 - at_;
    tree_.reset(text_[at_]);
    side_.clear();
    const auto begin = std::chrono::steady_clock::now();
    draft(static_cast<int>(std::min<size_t>(left, kDeepest)));
    drafter_.side_rows(engine::kMaxRows - tree_.size(), side_);
    const auto drafted = std::chrono::steady_clock::now();
    follow(left);
    const bool learns = drafter_.wants().best > 0;
    if (learns) answer();
    tops_.assign(side_.token.begin(), side_.token.end());
    for (int32_t& token : tops_) token = text_[static_cast<size_t>(token) % text_.size()];
    const auto answered = std::chrono::steady_clock::now();
    if (learns) drafter_.learn(sequence(), tree_, path_, answers_);
    if (side_.size() > 0) drafter_.side_tops(text_[at_ + 1], tops_);
    const size_t taken = path_.size() + 1;
    drafter_.accepted(path_, text_[at_ + taken]);
    const auto ended = std::chrono::steady_clock::now();
    ns_ += std::chrono::nanoseconds((drafted - begin) + (ended - answered)).count();
    at_ += taken;
    return taken;
  }
  size_t at() const { return at_; }
  int64_t ns() const { return ns_; }

 private:
  std::span<const int32_t> sequence() const {
    return std::span(text_).subspan(begin_, at_ - begin_ + 1);
  }
  // No drafter here needs forwards, so that a draft has one stage.
  void draft(int depth) {
    drafter_.draft(sequence(), depth, tree_);
    EVALRUN_CHECK(!drafter_.stage(tree_), "a drafter of this bench wants a forward");
  }
  // Accepts what the text goes on with, and leaves a token for the target.
  void follow(size_t left) {
    path_.clear();
    const size_t most =
        std::min(left - 1, static_cast<size_t>(std::max(drafter_.max_accepted(), 0)));
    for (int node = 0; path_.size() < most;) {
      node = tree_.child(node, text_[at_ + path_.size() + 1]);
      if (node < 0) break;
      path_.push_back(node);
    }
  }
  // After a node on the path the text's token is the likeliest.
  void answer() {
    const methods::TargetWants wants = drafter_.wants();
    result_.best.n_best = wants.best;
    const auto k = static_cast<size_t>(wants.best);
    size_t on_path = 0;
    for (int node = 0; node < tree_.size(); ++node) {
      const int32_t token = tree_.token[static_cast<size_t>(node)];
      auto first = base::mix64(static_cast<uint64_t>(token)) % kVocab;
      if (node == 0 || (on_path < path_.size() && path_[on_path] == node)) {
        on_path += node > 0;
        first = static_cast<uint64_t>(text_[at_ + on_path + 1]);
      }
      for (size_t rank = 0; rank < k; ++rank)
        best_[static_cast<size_t>(node) * k + rank] = {
            static_cast<int32_t>((first + rank * 7919) % kVocab), -1 - static_cast<float>(rank)};
    }
    answers_.begin(result_, tree_, sampling_, uniform_, wants);
  }

  methods::Drafter& drafter_;
  const tests::Tokens& text_;
  engine::SamplingParams sampling_;
  methods::TokenTree tree_;
  methods::SideRows side_;
  std::vector<int> path_;
  std::vector<int32_t> tops_, best_of_;
  std::vector<engine::TokenLogit> best_;  // [row, k]
  std::vector<double> log_sums_;
  engine::ForwardResult result_;
  methods::TargetAnswers answers_;
  methods::KeyedUniforms uniform_{base::KeyedChance(1)};
  size_t begin_ = 0, at_ = 0;  // of the conversation; its newest token
  int64_t ns_ = 0;
};

// Has the drafter read n tokens, and begins the answer that is measured. Returns what the last
// start() took, in us.
double grow(Walk& walk, const Case& of, size_t n) {
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
    const auto drafter = make_drafter(of.spec);
    const double without_walk = allocated_bytes();
    Walk walk(*drafter, text);
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
        (of.fixed_bytes + of.bytes_per_token * static_cast<double>(n + kTurn)) / 1e6;
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const Case& c : kCases) {
    auto* bench =
        benchmark::RegisterBenchmark(c.name, [&c](benchmark::State& state) { history(state, c); });
    for (const int64_t n : {kShortest, int64_t{100'000}, int64_t{1'000'000}, kLongest})
      if (n <= c.longest) bench->Arg(n);
    bench->UseManualTime()->Iterations(1)->Unit(benchmark::kNanosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
}
