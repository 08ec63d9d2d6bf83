// forward/<isa>/rows:<n> on random weights of the default model's shape (538 MB in f32), context
// 256. Each case first checks that its last row has the bits of the same row decoded alone, and is
// skipped with an error when it has not. Counters: bytes of weights per second (the floor of one
// row is memory bandwidth) and floating-point operations per second.
//   build/release/bin/engine_bench --benchmark_enable_random_interleaving=true
//     --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <cstring>
#include <map>

#include "engine/devices.h"
#include "engine/session.h"

namespace {

using namespace evalrun::engine;

std::shared_ptr<const Model> model() {
  static const std::shared_ptr<const Model> m = [] {
    ModelConfig c;
    c.architecture = "llama", c.name = "SmolLM2-135M shape";
    c.n_layers = 30, c.d_model = 576, c.n_heads = 9, c.n_kv_heads = 3, c.head_dim = 64;
    c.d_ffn = 1536, c.vocab_size = 49152, c.max_context = 8192, c.tied_head = true;
    return make_random_model(c, 1);
  }();
  return m;
}

Session& session(const std::string& isa) {
  static std::map<std::string, std::unique_ptr<Session>> sessions;
  auto& s = sessions[isa];
  if (s == nullptr) {
    SessionOptions o;
    o.isa = isa, o.max_tokens = 1024;
    s = Session::create(model(), o);
    const std::vector<int32_t> context(256, 17);
    s->prefill(context);
  }
  return *s;
}

std::vector<Row> chain(int n) {
  std::vector<Row> rows(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) rows[static_cast<size_t>(i)] = {.token = 100 + i, .parent = i - 1};
  return rows;
}

// The chain's last row, computed a row at a time.
bool last_row_is_right(Session& s, int n) {
  const std::vector<Row> rows = chain(n);
  const ForwardResult all = s.forward({.rows = rows});
  const std::vector<float> want(all.logits_row(n - 1).begin(), all.logits_row(n - 1).end());
  std::vector<float> alone;
  for (const Row& r : rows) {
    const Row row{.token = r.token};
    const ForwardResult one = s.forward({.rows = {&row, 1}});
    alone.assign(one.logits_row(0).begin(), one.logits_row(0).end());
    const int zero = 0;
    s.commit({&zero, 1});
  }
  s.rewind(256);
  return std::memcmp(want.data(), alone.data(), want.size() * sizeof(float)) == 0;
}

void forward(benchmark::State& state, const std::string& isa) {
  Session& s = session(isa);
  const int n = static_cast<int>(state.range(0));
  if (!last_row_is_right(s, n)) {
    state.SkipWithError("the last row's bits differ from the row decoded alone");
    return;
  }
  const std::vector<Row> rows = chain(n);
  for (auto _ : state) benchmark::DoNotOptimize(s.forward({.rows = rows}).logits.data);
  const auto weights = static_cast<double>(model()->weight_bytes());
  state.counters["weight_bytes/s"] =
      benchmark::Counter(weights, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["flop/s"] = benchmark::Counter(2.0 * n * weights / sizeof(float),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void prefill(benchmark::State& state, const std::string& isa) {
  Session& s = session(isa);
  const std::vector<int32_t> tokens(static_cast<size_t>(state.range(0)), 17);
  for (auto _ : state) {
    s.rewind(256);
    s.prefill(tokens);
  }
  s.rewind(256);
  state.counters["tok/s"] = benchmark::Counter(static_cast<double>(tokens.size()),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string& isa : available_isas()) {
    if (isa == "reference") continue;  // the oracle takes seconds a row
    auto* b = benchmark::RegisterBenchmark(("forward/" + isa + "/f32").c_str(),
                                           [isa](benchmark::State& st) { forward(st, isa); });
    for (const int n : {1, 2, 4, 8, 16, 32, 64}) b->Arg(n);
    b->ArgName("rows")->Unit(benchmark::kMillisecond)->UseRealTime();
    benchmark::RegisterBenchmark(("prefill/" + isa + "/f32").c_str(),
                                 [isa](benchmark::State& st) { prefill(st, isa); })
        ->Arg(512)
        ->ArgName("tokens")
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
