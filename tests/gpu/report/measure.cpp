#include "tests/gpu/report/measure.h"

#include <cuda_profiler_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/runtime/check.h"
#include "engine/row_program.h"

namespace evalrun::engine::gpu_report {
namespace {

double now_s() { return static_cast<double>(base::SteadyClock().now_ns()) / 1e9; }

Json json_of(const Summary& s) {
  return {{"median", s.median}, {"lo", s.lo}, {"hi", s.hi}, {"n", s.n}};
}

std::vector<int32_t> random_tokens(int n, int vocabulary, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocabulary)));
  return tokens;
}

std::unique_ptr<Session> open(const std::shared_ptr<const Model>& model, const Workload& w,
                              bool graphs = true, bool timed = false) {
  SessionOptions o;
  o.device = "cuda";
  o.time_device = timed;
  // The one that is timed stands beside another: no larger than plain decoding needs.
  o.max_tokens = timed ? w.context + 2 * w.repeats + 16
                       : std::max({w.long_context, w.prefill, w.context}) + 2 * w.rows.back();
  if (!graphs) EVALRUN_CHECK(setenv("EVALRUN_CUDA_GRAPHS", "0", 1) == 0);
  auto session = Session::create(model, o);
  if (!graphs) EVALRUN_CHECK(unsetenv("EVALRUN_CUDA_GRAPHS") == 0);
  return session;
}

// Longer or shorter, to this many committed tokens.
void set_length(Session& s, int length) {
  if (s.length() > length) s.rewind(length);
  if (s.length() < length)
    s.prefill(random_tokens(length - s.length(), s.model().config().vocab_size, 5));
}

std::vector<Row> tree_of(const Session& s, int n, bool all_logits) {
  std::vector<Row> rows = random_tree(n, s.model().config().vocab_size, static_cast<uint64_t>(n));
  for (Row& r : rows) r.logits = all_logits, r.top = !all_logits;
  return rows;
}

// One number of rows. Wall time is what a caller of forward() waits; device time that of the graph,
// its copies from and to the host included.
Json step(Session& s, const std::vector<Row>& rows, const Workload& w, const Copies& copies) {
  // The first is queued launch by launch and captured meanwhile, the others are replayed.
  std::vector<double> wall, device, first;
  for (int i = 0; i < 4; ++i) {
    const double start = now_s();
    (void)s.forward({.rows = rows});
    first.push_back((now_s() - start) * 1e3);
  }
  for (int i = 0; i < w.repeats; ++i) {
    const double start = now_s();
    (void)s.forward({.rows = rows});
    wall.push_back((now_s() - start) * 1e3);
  }
  GraphTimer timer(copies);
  const Watching watching(timer);
  for (int i = 0; i < w.repeats; ++i) {
    (void)s.forward({.rows = rows});
    device.push_back(timer.take_ms());
  }
  const Summary wall_ms = summarise(std::move(wall)), device_ms = summarise(std::move(device));
  const size_t bytes = s.bytes_per_forward(s.length());
  const double floor_ms = static_cast<double>(bytes) / copies.bytes_per_second() * 1e3;
  return {{"rows", rows.size()},
          {"context", s.length()},
          {"first_ms", first},
          {"wall_ms", json_of(wall_ms)},
          {"device_ms", json_of(device_ms)},
          {"host_ms", wall_ms.median - device_ms.median},
          {"bytes", bytes},
          {"floor_ms", floor_ms},
          {"share_of_floor", floor_ms / device_ms.median}};
}

// Plain decoding as the harness times it: forward, then commit, token by token; greedy,
// or drawn on the device.
Json decode(Session& s, const Workload& w, const SamplingParams* sampling) {
  const int before = s.length(), zero = 0;
  base::Rng rng(3);
  std::vector<double> ms;
  for (int i = 0; i < w.repeats + 8; ++i) {
    Row row{.token = i, .logits = false};
    row.top = sampling == nullptr;
    if (sampling != nullptr) row.uniform = rng.uniform();
    ForwardRequest request{.rows = {&row, 1}};
    request.sampling = sampling;
    const double start = now_s();
    (void)s.forward(request);
    s.commit({&zero, 1});
    if (i >= 8) ms.push_back((now_s() - start) * 1e3);
  }
  s.rewind(before);
  return json_of(summarise(std::move(ms)));
}

// Verification of a chain of five drafts, by what it brings across the bus: greedy tokens, draws
// for all rows, rejection_tests of drafts that were drawn, with sampling from the model as its own
// drafter. And what drawing a draft and keeping its distribution adds to a row.
Json verification(Session& s, const Workload& w) {
  constexpr int kDrafts = 5;
  const SamplingParams sampling{.temperature = 1};
  const auto dists = s.make_distributions(kDrafts, s.model().config().n_logits(), {});
  base::Rng rng(4);
  std::vector<Row> rows(kDrafts + 1);
  for (int i = 0; i <= kDrafts; ++i)
    rows[static_cast<size_t>(i)] = {.token = 7 + i, .parent = i - 1, .logits = false};
  std::vector<int32_t> children;
  std::vector<double> drawing, plain;
  for (int i = 0; i < w.repeats + 8; ++i) {
    Row row{.token = i, .logits = false, .uniform = rng.uniform()};
    const DistributionDraw draw{0, i % kDrafts, {&row.uniform, 1}};
    ForwardRequest request{.rows = {&row, 1}};
    request.sampling = &sampling;
    double start = now_s();
    (void)s.forward(request);
    if (i >= 8) plain.push_back((now_s() - start) * 1e3);
    request.dists = dists.get(), request.distribution_draws = {&draw, 1};
    start = now_s();
    const int32_t token = s.forward(request).drawn[0];
    if (i >= 8) drawing.push_back((now_s() - start) * 1e3);
    children.push_back(token);
  }
  children = {children.end() - kDrafts, children.end()};
  const int last = w.repeats + 8 - kDrafts;  // whose draft is children[0]
  std::vector<RejectionTest> rejection_tests;
  for (int i = 0; i < kDrafts; ++i)
    rejection_tests.push_back({i, (last + i) % kDrafts, {&children[static_cast<size_t>(i)], 1}});
  Json result;
  const auto time = [&](const char* name, auto ask) {
    std::vector<double> ms;
    for (int i = 0; i < w.repeats + 8; ++i) {
      ForwardRequest request;
      for (Row& row : rows) row.top = false, row.uniform = -1;
      ask(request);
      request.rows = rows;
      const double start = now_s();
      (void)s.forward(request);
      if (i >= 8) ms.push_back((now_s() - start) * 1e3);
    }
    result[name] = json_of(summarise(std::move(ms)));
  };
  const auto give_uniforms = [&](ForwardRequest& request) {
    for (Row& row : rows) row.uniform = rng.uniform();
    request.sampling = &sampling;
  };
  time("6 rows, greedy", [&](ForwardRequest&) {
    for (Row& row : rows) row.top = true;
  });
  time("6 rows, drawn", give_uniforms);
  time("6 rows, 5 drafts tried", [&](ForwardRequest& request) {
    give_uniforms(request);
    request.dists = dists.get(), request.rejection_tests = rejection_tests;
  });
  result["1 row, drawn"] = json_of(summarise(std::move(plain)));
  result["1 row, drawn as a draft"] = json_of(summarise(std::move(drawing)));
  return result;
}

// A look of drafting heads: a residual block each, by the layers' own square matrices, then an
// output matrix, shared or one a head (Medusa's published form), of which the ten likeliest tokens
// come back. From the state on the host to the tokens there.
Json heads(Session& s, const Workload& w, const Copies& copies) {
  const Model& model = s.model();
  const int d = model.config().d_model;
  const int n = std::min(4, model.config().n_layers);
  if (model.layer(0).o.in() != d) return {};
  const std::vector<float> state(static_cast<size_t>(d), 0.1f);
  RowProgram program;
  const int given = program.given({state.data(), 1, d}), h = program.value(n, d),
            y = program.value(n, d);
  program.copy({h}, {given}, n, d);
  size_t blocks = 0;
  for (int k = 0; k < n; ++k) {
    program.product({y, k}, model.layer(k).o, {given}, 1);
    blocks += model.layer(k).o.size();
  }
  program.add_silu(h, y);
  std::vector<WeightMatrix> copies_of_head;
  Json result;
  for (const bool shared : {true, false}) {
    std::vector<const WeightMatrix*> outputs = {&model.head()};
    while (!shared && static_cast<int>(copies_of_head.size()) < n - 1)
      copies_of_head.push_back(model.head().converted(model.head().storage()));
    for (const WeightMatrix& copy : copies_of_head) outputs.push_back(&copy);
    std::vector<double> ms;
    for (int i = 0; i < w.repeats + 8; ++i) {
      const double start = now_s();
      (void)s.score(outputs, s.compute(program, h), 10);
      if (i >= 8) ms.push_back((now_s() - start) * 1e3);
    }
    const double bytes =
        static_cast<double>(blocks + outputs.size() * static_cast<size_t>(model.head().size()));
    Json& look = result[fmt::format("{} heads, {}", n,
                                    shared ? "one output matrix" : "output matrices of their own")];
    look = json_of(summarise(std::move(ms)));
    look["floor_ms"] = bytes / copies.bytes_per_second() * 1e3;
  }
  return result;
}

void measure_prefill(Session& s, const Workload& w, const Copies& copies, Json& result) {
  const auto tokens = random_tokens(w.prefill, s.model().config().vocab_size, 9);
  const auto prefills = [&] {
    std::vector<double> ms;
    for (int i = 0; i < 6; ++i) {
      s.reset();
      const double start = now_s();
      s.prefill(tokens);
      if (i > 0) ms.push_back((now_s() - start) * 1e3);
    }
    return summarise(std::move(ms));
  };
  const Summary time = prefills();
  // By kernel, launch by launch; what is missing of the whole is cuBLAS, which leaves a mark: our
  // kernel after its products.
  KernelTimer timer(copies, 0);
  {
    const Watching watching(timer);
    s.reset();
    s.prefill(tokens);
  }
  const auto kernels = timer.take();
  const bool cublas = kernels.contains("finish_dense");
  const double flops = prefill_flops(s.model(), w.prefill);
  result["prefill"] = {{"tokens", w.prefill},
                       {"cublas", cublas},
                       {"ms", json_of(time)},
                       {"flops", flops},
                       {"tflops", flops / time.median / 1e9}};
  for (const auto& [kernel, t] : kernels)
    result["prefill"]["kernels"].push_back(
        {{"kernel", kernel}, {"launches", t.launches}, {"ms", t.ms}});
  // Whether attention was right to split the context.
  if (kernels.contains("attend_chunk")) {
    const int usual = std::exchange(engine::cuda::enough_prompt_tiles(), 1);
    result["prefill"]["at_once_ms"] = json_of(prefills());
    engine::cuda::enough_prompt_tiles() = usual;
  }
}

// Mean of some steps of n rows.
Json profile(Session& s, int n, const Workload& w, const Copies& copies) {
  const std::vector<Row> row = tree_of(s, n, true);
  for (int i = 0; i < 3; ++i) (void)s.forward({.rows = row});
  KernelTimer timer(copies, w.busy_ms);
  std::map<std::string, KernelTimer::Total> sums;
  {
    const Watching watching(timer);
    for (int i = 0; i < w.profiled_steps; ++i) {
      (void)s.forward({.rows = row});
      for (const auto& [kernel, t] : timer.take()) {
        sums[kernel].launches += t.launches;
        sums[kernel].ms += t.ms;
      }
    }
  }
  double all = 0;
  for (const auto& [kernel, t] : sums) all += t.ms;
  const size_t weights = s.bytes_per_forward(0);
  const size_t keys = s.bytes_per_forward(s.length()) - weights;
  Json kernels = Json::array();
  for (const auto& [kernel, t] : sums) {
    const double steps = w.profiled_steps;
    Json k = {{"kernel", kernel},
              {"launches", t.launches / w.profiled_steps},
              {"us", t.ms * 1e3 / steps},
              {"share", t.ms / all}};
    // A step of one row has one kernel for all products.
    const size_t bytes = n > 1                        ? 0
                         : kernel == "narrow_product" ? weights
                         : kernel == "attend_chunk"   ? keys
                                                      : 0;
    if (bytes > 0) {
      k["bytes"] = bytes;
      k["gb_per_s"] = static_cast<double>(bytes) / (t.ms / steps) / 1e6;
    }
    kernels.push_back(std::move(k));
  }
  std::sort(kernels.begin(), kernels.end(), [](const Json& a, const Json& b) {
    return a.at("us").get<double>() > b.at("us").get<double>();
  });
  return {{"rows", n},
          {"context", s.length()},
          {"us", all * 1e3 / w.profiled_steps},
          {"kernels", kernels}};
}

// Launches of a step's products within its layers, by kernel: of one that wants states, not logits.
Json layer_products(const std::shared_ptr<const Model>& model, const Workload& w, int rows) {
  struct Names final : cuda::LaunchObserver {
    void before(const char* kernel, cudaStream_t) override { ++launches[kernel]; }
    void after(const char*, cudaStream_t) override {}
    std::map<std::string, int> launches;
  };
  const auto s = open(model, w, false);
  std::vector<Row> tree = tree_of(*s, rows, true);
  for (Row& r : tree) r.logits = false, r.hidden = true;
  Names names;
  {
    const Watching watching(names);
    (void)s->forward({.rows = tree});
  }
  return {{"narrow_product", names.launches["narrow_product"]},
          {"wide_product", names.launches["wide_product"]}};
}

}  // namespace

Workload workload(bool tiny) {
  if (!tiny) return {};
  return {.rows = {1, 2, 17},
          .context = 20,
          .long_context = 140,
          .prefill = 70,
          .repeats = 3,
          .profiled_steps = 1,
          .profiled_rows = {3},
          .bit_rows = 5,
          .warm_s = 0,
          .busy_ms = 0};
}

Deadline::Deadline(double seconds) : start_(now_s()), seconds_(seconds) {}
double Deadline::elapsed() const { return now_s() - start_; }
void Deadline::check() const {
  if (elapsed() > seconds_) throw OutOfTime(fmt::format("the {:.0f} s were spent", seconds_));
}

void measure_steps(const std::shared_ptr<const Model>& model, const Workload& w,
                   const Copies& copies, const Deadline& deadline, Json& result) {
  const auto s = open(model, w);
  result["bytes"] = {{"weights", s->bytes_per_forward(0)}, {"kv_cache", s->kv_bytes()}};
  set_length(*s, w.context);
  const auto one = tree_of(*s, 1, false);
  for (const double start = now_s(); now_s() - start < w.warm_s;) (void)s->forward({.rows = one});
  const SamplingParams plain{.temperature = 1}, nucleus{.temperature = 0.8, .top_p = 0.95};
  result["decoding"] = {{"greedy", decode(*s, w, nullptr)},
                        {"temperature 1", decode(*s, w, &plain)},
                        {"temperature 0.8, top-p 0.95", decode(*s, w, &nucleus)}};
  deadline.check();
  {
    const auto timed = open(model, w, true, true);
    set_length(*timed, w.context);
    result["decoding"]["greedy, with the events of a run"] = decode(*timed, w, nullptr);
  }
  result["verification"] = verification(*s, w);
  if (Json looks = heads(*s, w, copies); !looks.empty()) result["heads"] = std::move(looks);
  for (const bool all_logits : {true, false})
    for (const int n : w.rows) {
      deadline.check();
      result[all_logits ? "all_logits" : "top_only"].push_back(
          step(*s, tree_of(*s, n, all_logits), w, copies));
    }
  deadline.check();
  {  // whether the border between the two kernels of products is right
    const int usual = std::exchange(engine::cuda::narrow_rows(), 8);
    const auto other = open(model, w);
    set_length(*other, w.context);
    result["sixteen_rows_across"] = step(*other, tree_of(*other, 16, false), w, copies);
    engine::cuda::narrow_rows() = usual;
  }
  deadline.check();
  set_length(*s, w.long_context);
  result["long_context"] = step(*s, tree_of(*s, 1, true), w, copies);
  deadline.check();
  measure_prefill(*s, w, copies, result);
}

void profile_steps(const std::shared_ptr<const Model>& model, const Workload& w,
                   const Copies& copies, const Deadline& deadline, Json& result) {
  const auto s = open(model, w, false);
  set_length(*s, w.context);
  for (const int n : w.profiled_rows) {
    deadline.check();
    result["profiles"].push_back(profile(*s, n, w, copies));
  }
  for (const int context : {w.context, w.long_context}) {
    deadline.check();
    set_length(*s, context);
    result["profiles"].push_back(profile(*s, 1, w, copies));
  }
  const Json& profiled = result.at("profiles").back();
  double us = 0;
  for (const Json& k : profiled.at("kernels"))
    if (k.at("kernel") == "attend_chunk" || k.at("kernel") == "merge_chunks")
      us += k.at("us").get<double>();
  const size_t bytes = s->bytes_per_forward(s->length()) - s->bytes_per_forward(0);
  const double floor_us = static_cast<double>(bytes) / copies.bytes_per_second() * 1e6;
  result["attention"] = {{"context", s->length()},
                         {"us", us},
                         {"share_of_step", us / profiled.at("us").get<double>()},
                         {"bytes", bytes},
                         {"floor_us", floor_us},
                         {"times_floor", us / floor_us}};
}

void step_once(const std::shared_ptr<const Model>& model, const Workload& w) {
  const auto s = open(model, w, false);
  set_length(*s, w.context);
  std::vector<int> rows = w.profiled_rows;
  rows.insert(rows.begin(), 1);
  for (const int n : rows) {
    const std::vector<Row> tree = tree_of(*s, n, false);
    (void)s->forward({.rows = tree});  // what is made once
    EVALRUN_CUDA(cudaProfilerStart());
    (void)s->forward({.rows = tree});
    EVALRUN_CUDA(cudaProfilerStop());
  }
}

void compare_bits(const std::shared_ptr<const Model>& model, const Workload& w,
                  const Deadline& deadline, Json& result) {
  const auto s = open(model, w);
  const int vocabulary = model->config().vocab_size;
  set_length(*s, w.context);
  int compared = 0, equal = 0;
  for (const bool chain : {false, true}) {
    const std::vector<Row> tree = random_tree(w.bit_rows, vocabulary, 77, chain);
    // Each node after its path, one token a step.
    std::vector<std::vector<float>> alone;
    for (int node = 0; node < w.bit_rows; ++node) {
      deadline.check();
      std::vector<int32_t> path;
      for (int i = node; i >= 0; i = tree[static_cast<size_t>(i)].parent)
        path.insert(path.begin(), tree[static_cast<size_t>(i)].token);
      std::vector<float> logits;
      for (const int32_t token : path) {
        const Row row{.token = token};
        const auto last = s->forward({.rows = {&row, 1}}).logits_row(0);
        logits.assign(last.begin(), last.end());
        const int zero = 0;
        s->commit({&zero, 1});
      }
      alone.push_back(std::move(logits));
      s->rewind(w.context);
    }
    for (int n = 1; n <= w.bit_rows; ++n) {
      deadline.check();
      const ForwardResult r = s->forward({.rows = std::span(tree).first(static_cast<size_t>(n))});
      for (int i = 0; i < n; ++i) {
        const auto row = r.logits_row(i);
        const auto& want = alone[static_cast<size_t>(i)];
        ++compared;
        equal += std::memcmp(row.data(), want.data(), row.size_bytes()) == 0 ? 1 : 0;
      }
    }
  }
  result["bit_identity"] = {{"rows_of_a_step", w.bit_rows},
                            {"compared", compared},
                            {"equal", equal},
                            {"layer_products", layer_products(model, w, w.bit_rows)}};
}

}  // namespace evalrun::engine::gpu_report
