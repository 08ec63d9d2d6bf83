// Attention of one layer of the default model's shape (9 heads, 3 of keys and values, 64 wide) on
// one thread, in units for two:
//   attention/<storage>/<isa>/rows:<n>/positions:<p>   a chain of n rows; the last sees p positions
// 256 rows are a step of prefill; its keys and values stay in the caches from block to block. Fewer
// rows are steps of decoding, which find the keys and values of another layer each time, out of 30.
// Each case first checks that the last row has the bits of that row alone in the portable kernels,
// and is skipped with an error when it has not. Counter: multiply-adds per second, to hold against
// the processor's peak in float32.
//   build/release/bin/attention_bench --benchmark_filter='bf16/avx512/'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/base/rng.h"
#include "engine/cache_blocks.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kv_store.h"
#include "engine/forward_plan.h"

namespace {

using namespace evalrun::engine;
using cpu::Kernels;
using cpu::KvStore;
using Floats = evalrun::base::AlignedVector<float>;

constexpr int kThreads = 2;
constexpr int kLayers = 30;

ModelConfig default_shape() {
  ModelConfig c;
  c.n_layers = kLayers, c.n_heads = 9, c.n_kv_heads = 3, c.head_dim = 64;
  return c;
}

Floats random_floats(size_t n, uint64_t seed) {
  evalrun::base::Rng rng(seed);
  Floats x(n);
  for (float& v : x) v = static_cast<float>(rng.uniform() - 0.5);
  return x;
}

// Keys and values of a chain: those of `positions` positions are the same in every case.
template <typename T>
class Chain {
 public:
  explicit Chain(int positions) : c_(default_shape()), positions_(positions) {
    const auto n = static_cast<size_t>(positions) * static_cast<size_t>(c_.kv_dim());
    k_ = random_floats(n, 1), v_ = random_floats(n, 2);
    queries_ = random_floats(static_cast<size_t>(positions) * static_cast<size_t>(c_.q_dim()), 3);
  }
  // Positions [begin, end).
  KvStore<T> store(int begin, int end) const {
    KvStore<T> s;
    s.configure(c_.n_kv_heads, c_.head_dim);
    s.reserve(std::max(1, end - begin));
    for (int p = begin; p < end; ++p) {
      const auto at = static_cast<size_t>(p) * static_cast<size_t>(c_.kv_dim());
      s.write(p - begin, k_.data() + at, v_.data() + at);
    }
    return s;
  }
  // Of the last `rows` positions: [kv head][row][group * head_dim].
  Floats queries(int rows) const {
    const auto n = static_cast<size_t>(rows), heads = static_cast<size_t>(c_.n_kv_heads);
    const size_t q_dim = static_cast<size_t>(c_.q_dim()), width = q_dim / heads;
    const size_t first = static_cast<size_t>(positions_) - n;
    Floats q(n * q_dim);
    for (size_t h = 0; h < heads; ++h)
      for (size_t i = 0; i < n; ++i)
        std::copy_n(queries_.data() + (first + i) * q_dim + h * width, width,
                    q.data() + (h * n + i) * width);
    return q;
  }
  const ModelConfig& config() const { return c_; }

 private:
  const ModelConfig c_;
  const int positions_;
  Floats k_, v_, queries_;
};

// The last rows of a chain after their context, in `layers` layers that hold the same.
template <typename T>
class Layer {
 public:
  Layer(const Chain<T>& chain, const Kernels& kernels, int rows, int positions, size_t layers)
      : rows_(rows),
        q_dim_(chain.config().q_dim()),
        blocks_(blocks_of(positions), 1),
        attention_(chain.config(), kernels, blocks_, kThreads, positions),
        step_(chain.store(positions - rows, positions)),
        caches_(layers, chain.store(0, positions - rows)),
        queries_(chain.queries(rows)),
        mixed_(static_cast<size_t>(rows) * static_cast<size_t>(q_dim_)) {
    const std::vector<int32_t> tokens(static_cast<size_t>(rows), 1);
    const PrefillPart part{tokens, 0, positions - rows};
    plan_.build_prefill({&part, 1}, false, false);
    const SequenceLength all{0, positions};
    blocks_.take({&all, 1});
    attention_.begin(plan_, nullptr);
  }
  void run(size_t layer) {
    for (int u = 0; u < attention_.units(0); ++u)
      attention_.run(u, 0, 0, queries_.data(), caches_[layer], step_, no_prefix_, mixed_.data(),
                     q_dim_);
    if (attention_.must_merge(0))
      for (int i = 0; i < rows_; ++i) attention_.merge_row(i, row(i));
  }
  float* row(int i) { return mixed_.data() + static_cast<size_t>(i) * static_cast<size_t>(q_dim_); }

 private:
  const int rows_, q_dim_;
  ForwardPlan plan_;
  CacheBlocks blocks_;
  cpu::Attention<T> attention_;
  const KvStore<T> step_, no_prefix_;
  const std::vector<KvStore<T>> caches_;
  const Floats queries_;
  Floats mixed_;
};

template <typename T>
void attention(benchmark::State& state, const Kernels& kernels) {
  const int rows = static_cast<int>(state.range(0)), positions = static_cast<int>(state.range(1));
  const Chain<T> chain(positions);
  const size_t layers = rows >= 64 ? 1 : kLayers;
  Layer<T> layer(chain, kernels, rows, positions, layers);
  Layer<T> alone(chain, *cpu::find_kernels("portable"), 1, positions, 1);
  layer.run(0), alone.run(0);
  const auto q_dim = static_cast<size_t>(chain.config().q_dim());
  if (std::memcmp(layer.row(rows - 1), alone.row(0), q_dim * sizeof(float)) != 0)
    return state.SkipWithError("the last row's bits differ from the row computed alone");
  size_t next = 0;
  for (auto _ : state) {
    layer.run(next);
    next = next + 1 == layers ? 0 : next + 1;
    benchmark::ClobberMemory();
  }
  const double seen = static_cast<double>(rows) * (positions - rows) + rows * (rows + 1) / 2.0;
  state.counters["mul_add/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * seen * 2.0 * static_cast<double>(q_dim),
      benchmark::Counter::kIsRate);
}

template <typename T>
void register_storage(const std::string& storage) {
  for (const Kernels& kernels : cpu::available_kernels()) {
    const std::string isa = kernels.name;
    if (isa == "portable") continue;  // what the others are held against
    auto* b =
        benchmark::RegisterBenchmark(("attention/" + storage + "/" + isa).c_str(),
                                     [k = &kernels](benchmark::State& s) { attention<T>(s, *k); });
    b->ArgNames({"rows", "positions"})->Unit(benchmark::kMicrosecond);
    for (const int positions : {512, 1024, 2048, 4096, 8192})
      for (const int rows : {1, 16, 256}) b->Args({rows, positions});
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_storage<float>("f32");
  register_storage<uint16_t>("bf16");
  register_storage<int8_t>("int8");
  register_storage<cpu::Fp8>("fp8");
  register_storage<uint8_t>("int4");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
