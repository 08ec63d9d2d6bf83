// The CPU kernels one by one, on one thread, at the default model's shapes:
//   product/<storage>/<isa>/<where>/rows:<n>   1536 x 576, K-quants 432 x 2048; `cache`: one matrix
//                                              that stays in L2, `memory`: as many of them as
//                                              exceed the caches
//   scores, weighted_sum/<type>/<isa>/queries:<n>   one attention chunk of 128 positions, 64 wide
//   softmax_chunk, merge/<isa>                      of a block of 24 queries
//   rms_norm, silu_mul, rotate, values_to_bf16, head_to_bytes, head_to_int4, round_int,
//   round_int_for_k, track_max/<isa>                of a row
//   keys_to_bf16_<rows>/<isa>                       one head of so many rows
// Each case first checks its result, to the bit: products against the definition, the rest against
// the portable kernels (which the tests compare with the definition). A wrong one is skipped with
// an error. Counters: bytes read per second (weights or keys and values), and multiply-adds per
// second to hold against the processor's peak.
//   build/release/bin/kernels_bench --benchmark_filter='product/int8-channel/.*'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>

#include "engine/base/aligned.h"
#include "engine/base/rng.h"
#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/prepared_rows.h"
#include "engine/cpu/reference_products.h"

namespace {

using namespace evalrun::engine;
using cpu::Kernels;

constexpr int kOut = 1536, kIn = 576;
constexpr int kKOut = 432, kKIn = 2048;       // as many weights
constexpr size_t kBeyondCaches = 200u << 20;  // bytes

using Floats = evalrun::base::AlignedVector<float>;

// Normal activations with a few far outside, as a model has them.
Floats random_floats(size_t n, uint64_t seed) {
  evalrun::base::Rng rng(seed);
  Floats x(n);
  for (float& v : x) v = static_cast<float>(rng.uniform() - 0.5);
  for (size_t i = 0; i < n / 128; ++i) x[rng.below(n)] *= 30.0f;
  return x;
}

const std::map<std::string, WeightStorage>& storages() {
  static const std::map<std::string, WeightStorage> all = {
      {"f32", WeightStorage::kF32},
      {"bf16", WeightStorage::kBf16},
      {"int8-channel", WeightStorage::kInt8Channel},
      {"int8-group", WeightStorage::kInt8Group},
      {"q4-group", WeightStorage::kQ4Group},
      {"q4-centred", WeightStorage::kQ4Centred},
      {"q4-k", WeightStorage::kQ4K},
      {"q5-k", WeightStorage::kQ5K},
      {"q6-k", WeightStorage::kQ6K}};
  return all;
}

// A row of random codes and scales, as a file has it.
std::vector<uint8_t> random_file_row(DType type, int in, uint64_t seed) {
  evalrun::base::Rng rng(seed);
  std::vector<uint8_t> row(static_cast<size_t>(bytes_of(type, in)));
  for (uint8_t& b : row) b = static_cast<uint8_t>(rng.below(256));
  for (size_t at = 0; at < row.size(); at += static_cast<size_t>(block_bytes(type))) {
    const uint16_t d = float_to_half(0.001f);
    for (const size_t half : type == DType::kQ6_K   ? std::vector<size_t>{208}
                             : type == DType::kQ4_0 ? std::vector<size_t>{0}
                                                    : std::vector<size_t>{0, 2})
      std::memcpy(&row[at + half], &d, sizeof d);
  }
  return row;
}

WeightMatrix random_matrix(WeightStorage storage) {
  const int bits = k_bits(storage);
  const bool centred = storage == WeightStorage::kQ4Centred;
  const DType type = centred     ? DType::kQ4_0
                     : bits == 4 ? DType::kQ4_K
                     : bits == 5 ? DType::kQ5_K
                                 : DType::kQ6_K;
  WeightMatrix w(storage, bits > 0 ? kKOut : kOut, bits > 0 ? kKIn : kIn);
  for (int o = 0; o < w.out(); ++o) {
    if (centred || bits > 0)
      w.set_row_exactly(o, type, random_file_row(type, w.in(), static_cast<uint64_t>(o)));
    else
      w.set_row(o, random_floats(kIn, static_cast<uint64_t>(o)));
  }
  return w;
}

void product(benchmark::State& state, const Kernels& k, WeightStorage storage, bool from_memory) {
  const int rows = static_cast<int>(state.range(0));
  const WeightMatrix first = random_matrix(storage);
  const auto out = static_cast<size_t>(first.out()), n_in = static_cast<size_t>(first.in());
  const size_t copies = from_memory ? kBeyondCaches / first.size() + 1 : 1;
  const std::shared_ptr<std::byte> arena = allocate_weights(copies * first.size());
  for (size_t i = 0; i < copies; ++i)
    std::memcpy(arena.get() + i * first.size(), first.panel(0), first.size());

  cpu::PreparedRows in;
  in.ensure(k, storage, static_cast<size_t>(rows), first.in());
  std::vector<float> want;
  for (int r = 0; r < rows; ++r) {
    const Floats x = random_floats(n_in, static_cast<uint64_t>(7000 + r));
    in.set(static_cast<size_t>(r), first, x.data());
    if (r == rows - 1) want = cpu::reference_product(first, x);
  }
  Floats y(static_cast<size_t>(rows) * out);
  const auto run = [&](size_t copy) {
    cpu::multiply(k, storage,
                  {in.view(first), rows, arena.get() + copy * first.size(), first.panel_bytes(),
                   first.panels(), first.in(), first.out(), y.data(), first.out(), k.one_stream});
  };
  run(0);
  if (std::memcmp(y.data() + static_cast<size_t>(rows - 1) * out, want.data(),
                  want.size() * sizeof(float)) != 0)
    return state.SkipWithError("the last row is not the reference's");
  size_t copy = 0;
  for (auto _ : state) {
    run(copy);
    copy = copy + 1 == copies ? 0 : copy + 1;
    benchmark::ClobberMemory();
  }
  const auto done = static_cast<double>(state.iterations());
  state.counters["read_B/s"] =
      benchmark::Counter(done * static_cast<double>(first.size()), benchmark::Counter::kIsRate);
  state.counters["mul_add/s"] =
      benchmark::Counter(done * static_cast<double>(static_cast<size_t>(rows) * out * n_in),
                         benchmark::Counter::kIsRate);
}

// `op` writes what it computes into the span; checked against the portable kernels, then timed.
struct Op {
  size_t outputs;
  double bytes, mul_adds;  // of one call
  std::function<void(const Kernels&, float*)> run;
};
void timed(benchmark::State& state, const Kernels& k, const Op& op) {
  const Kernels& plain = *cpu::find_kernels("portable");
  Floats want(op.outputs), got(op.outputs);
  op.run(plain, want.data());
  op.run(k, got.data());
  if (std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) != 0)
    return state.SkipWithError("not the portable kernel's result");
  for (auto _ : state) {
    op.run(k, got.data());
    benchmark::ClobberMemory();
  }
  const auto done = static_cast<double>(state.iterations());
  state.counters["read_B/s"] = benchmark::Counter(done * op.bytes, benchmark::Counter::kIsRate);
  state.counters["mul_add/s"] = benchmark::Counter(done * op.mul_adds, benchmark::Counter::kIsRate);
}

constexpr int kHead = 64, kBlock = 24;

// One chunk of keys or values, of float32 or bfloat16.
void attention_op(benchmark::State& state, const Kernels& k, bool values, bool bf16) {
  const int queries = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(cpu::kChunk) * kHead;
  const Floats kv = random_floats(n, 1);
  std::vector<uint16_t> half(n);
  for (size_t i = 0; i < n; ++i) half[i] = float_to_bfloat16(kv[i]);
  const Floats q = random_floats(static_cast<size_t>(queries) * (values ? cpu::kChunk : kHead), 2);
  const size_t width = values ? kHead : cpu::kChunk;
  Op op;
  op.outputs = static_cast<size_t>(queries) * width;
  op.bytes = static_cast<double>(n) * (bf16 ? 2 : 4);
  op.mul_adds = static_cast<double>(n) * queries;
  op.run = [&](const Kernels& kernels, float* y) {
    const int w = static_cast<int>(width), c = cpu::kChunk;
    if (values) {
      std::memset(y, 0, op.outputs * sizeof(float));
      if (bf16)
        kernels.weighted_sum_bf16(q.data(), c, queries, half.data(), kHead, c, kHead, y, w);
      else
        kernels.weighted_sum_f32(q.data(), c, queries, kv.data(), kHead, c, kHead, y, w);
    } else if (bf16) {
      kernels.scores_bf16(q.data(), kHead, queries, half.data(), c / 16, kHead, 0.125f, y, w);
    } else {
      kernels.scores_f32(q.data(), kHead, queries, kv.data(), c / 16, kHead, 0.125f, y, w);
    }
  };
  timed(state, k, op);
}

void register_all() {
  const auto name = [](auto... parts) {
    std::string s;
    ((s += (s.empty() ? "" : "/") + std::string(parts)), ...);
    return s;
  };
  for (const Kernels& kernels : cpu::available_kernels()) {
    const Kernels* k = &kernels;
    for (const auto& [storage_name, storage] : storages())
      for (const bool memory : {false, true}) {
        auto* b = benchmark::RegisterBenchmark(
            name("product", storage_name, k->name, memory ? "memory" : "cache").c_str(),
            [k, storage = storage, memory](benchmark::State& s) {
              product(s, *k, storage, memory);
            });
        b->ArgName("rows");
        for (const int rows : {1, 2, 4, 8, 16, 32, 64, 512}) b->Arg(rows);
      }
    for (const bool values : {false, true})
      for (const bool bf16 : {false, true}) {
        auto* b = benchmark::RegisterBenchmark(
            name(values ? "weighted_sum" : "scores", bf16 ? "bf16" : "f32", k->name).c_str(),
            [=](benchmark::State& s) { attention_op(s, *k, values, bf16); });
        b->ArgName("queries")->Arg(1)->Arg(3)->Arg(24);
      }
    const auto add = [&](const char* op_name, Op op) {
      benchmark::RegisterBenchmark(name(op_name, k->name).c_str(),
                                   [k, op](benchmark::State& s) { timed(s, *k, op); });
    };
    static const Floats x = random_floats(kOut, 3), y = random_floats(kOut, 4);
    static const Floats scores = random_floats(kBlock * cpu::kChunk, 5);
    add("rms_norm", {kIn, kIn * 8.0, kIn, [](const Kernels& f, float* to) {
                       f.rms_norm(x.data(), y.data(), kIn, 1e-5f, to);
                     }});
    add("silu_mul", {kOut, kOut * 8.0, kOut, [](const Kernels& f, float* to) {
                       f.silu_mul(x.data(), y.data(), kOut, to);
                     }});
    add("rotate", {kIn, kIn * 4.0, kIn * 2.0, [](const Kernels& f, float* to) {
                     f.rotate(x.data(), y.data(), y.data() + kHead, kHead / 2, kIn / kHead, to);
                   }});
    add("values_to_bf16", {kIn / 2, kIn * 4.0, 0, [](const Kernels& f, float* to) {
                             f.values_to_bf16(x.data(), kIn, reinterpret_cast<uint16_t*>(to));
                           }});
    for (const int rows : {1, 3, 4, 8, 16})
      add(("keys_to_bf16_" + std::to_string(rows)).c_str(),
          {kHead * 16 / 2, rows * kHead * 4.0, 0, [rows](const Kernels& f, float* to) {
             f.keys_to_bf16(x.data(), kHead, rows, kHead, 0, reinterpret_cast<uint16_t*>(to));
           }});
    add("head_to_bytes", {1 + kHead / 4, kHead * 4.0, 0, [](const Kernels& f, float* to) {
                            *to = f.head_to_bytes(x.data(), kHead,
                                                  reinterpret_cast<int8_t*>(to + 1), 1);
                          }});
    add("head_to_int4", {1 + kHead / 4, kHead * 4.0, 0, [](const Kernels& f, float* to) {
                           const cpu::Int4Steps steps =
                               f.head_to_int4(x.data(), kHead, reinterpret_cast<uint8_t*>(to + 1));
                           std::memcpy(to, &steps, sizeof steps);
                         }});
    add("softmax_chunk", {kBlock * (cpu::kChunk + 2), kBlock * cpu::kChunk * 4.0,
                          kBlock * cpu::kChunk, [](const Kernels& f, float* to) {
                            static const std::vector<int> all(kBlock, cpu::kChunk);
                            std::copy(scores.begin(), scores.end(), to);
                            float* max = to + scores.size();
                            f.softmax_chunk(to, kBlock, 0, all.data(), max, max + kBlock);
                          }});
    add("merge", {kBlock * (kHead + 2), kBlock * kHead * 8.0, kBlock * kHead,
                  [](const Kernels& f, float* to) {
                    std::copy_n(scores.data(), kBlock * (kHead + 2), to);
                    float* m = to + kBlock * kHead;
                    f.merge(to, m, m + kBlock, x.data(), y.data(), y.data() + kBlock, kBlock,
                            kHead);
                  }});
    // The scale and the sums are what all paths have in common.
    for (const bool for_k : {false, true})
      add(for_k ? "round_int_for_k" : "round_int",
          {1 + kOut / 32, kOut * 4.0, kOut, [for_k](const Kernels& f, float* to) {
             static evalrun::base::AlignedVector<std::byte> values(kOut);
             static std::vector<int32_t> pairs(kOut / 64), starts(kOut / 16);
             static std::vector<cpu::WideInputs> wide(kOut / 4);
             (void)f.round_int(x.data(), kOut, kOut,
                               {values.data(), to, reinterpret_cast<int32_t*>(to + 1), wide.data(),
                                for_k ? pairs.data() : nullptr, for_k ? starts.data() : nullptr});
           }});
    add("track_max", {32, kOut * 4.0, kOut, [](const Kernels& f, float* to) {
                        std::fill_n(to, 16, -1e30f);
                        std::fill_n(to + 16, 16, 0.0f);
                        (void)f.track_max(x.data(), kOut, 0, to, to + 16);
                      }});
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
