// Attention alone, over keys and values of random numbers. Each row must have the bits of a scalar
// definition that computes one query at a time, whatever rows are computed beside it, on every path
// and with every storage of keys and values.
#include "engine/cpu/attention.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <utility>

#include "engine/cpu/kernels/arith.h"
#include "tests/engine/attention_cases.h"
#include "tests/sample.h"

namespace evalrun::engine::testing {
namespace {

using cpu::kChunk;
using cpu::Kernels;
using cpu::kLanes;
using cpu::KvStore;

// --- what is computed ----------------------------------------------------------------------------

// Keys and values of one store, as it holds them.
template <typename T>
struct StoredKeys {
  StoredKeys(const ModelConfig& c, int positions, uint64_t seed)
      : kv_dim(static_cast<size_t>(c.kv_dim())), head_dim(static_cast<size_t>(c.head_dim)) {
    store.configure(c.n_kv_heads, c.head_dim);
    store.reserve(positions);
    const size_t n = static_cast<size_t>(positions) * kv_dim;
    k = random_floats(static_cast<int>(n), seed), v = random_floats(static_cast<int>(n), seed + 1);
    for (int p = 0; p < positions; ++p) {
      const size_t at = static_cast<size_t>(p) * kv_dim;
      store.write(p, k.data() + at, v.data() + at);
      store.read(p, k.data() + at, v.data() + at);
    }
  }
  size_t at(int position, int head) const {
    return static_cast<size_t>(position) * kv_dim + static_cast<size_t>(head) * head_dim;
  }
  size_t kv_dim, head_dim;
  KvStore<T> store;
  std::vector<float> k, v;  // [position][kv_dim]
};

// Tables of sequences that took these blocks, one after the other.
CacheBlocks blocks_in_order(const std::vector<int>& order, const std::vector<int>& lengths) {
  const int n = static_cast<int>(order.size()), sequences = static_cast<int>(lengths.size());
  CacheBlocks blocks(n, sequences + n);
  // One for each of n more sequences, given back so that the next one taken is the first in order.
  for (int i = 0; i < n; ++i) {
    const SequenceLength one{sequences + i, 1};
    blocks.take({&one, 1});
  }
  for (int i = n; i-- > 0;) blocks.give_back(sequences + order[static_cast<size_t>(i)], 0);
  for (int s = 0; s < sequences; ++s) {
    const SequenceLength all{s, lengths[static_cast<size_t>(s)]};
    blocks.take({&all, 1});
  }
  return blocks;
}

// As many as they need, in an order of chance.
std::vector<int> some_order(const std::vector<int>& lengths) {
  int64_t n = 0;
  for (const int length : lengths) n += blocks_of(length);
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  base::Rng rng(static_cast<uint64_t>(n));
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(rng.below(i))]);
  return order;
}

template <typename T>
struct AttentionWorld {
  explicit AttentionWorld(const AttentionCase& of)
      : c(of),
        config(attention_config(of.window)),
        step(config, kAttentionRows, 50),
        prefix(config, std::max(1, of.prefix), 60),
        blocks(blocks_in_order(some_order(of.lengths), of.lengths)),
        queries(random_floats(kAttentionRows * config.q_dim(), 70)) {
    cache.configure(config.n_kv_heads, config.head_dim);
    cache.reserve(static_cast<int>(blocks.n_blocks()) * kChunk);
    for (size_t s = 0; s < c.lengths.size(); ++s) {
      sequences.emplace_back(config, std::max(1, c.lengths[s]), 80 + 2 * s);
      for (int p = 0; p < c.lengths[s]; ++p)
        cache.copy_positions(sequences[s].store, p, blocks.place(static_cast<int>(s), p), 1);
    }
    bank.length = c.prefix;
  }
  const AttentionCase c;
  const ModelConfig config;
  StoredKeys<T> step, prefix;
  std::vector<StoredKeys<T>> sequences;
  CacheBlocks blocks;
  KvStore<T> cache;            // the sequences, in these blocks
  std::vector<float> queries;  // [new row][q_dim]
  PrefixBank bank;
};

// --- the definition ------------------------------------------------------------------------------

// One query's running softmax (docs/architecture.md, "Numerics").
class DefinedQuery {
 public:
  explicit DefinedQuery(std::span<const float> q) : q_(q) {}
  // Keys and values at logical positions first, first + 1, ...
  void see(std::span<const float* const> k, std::span<const float* const> v, int first) {
    for (size_t j = 0; j < k.size();) {
      const int begin = first + static_cast<int>(j);
      const size_t n = std::min(k.size() - j, static_cast<size_t>(kChunk - begin % kChunk));
      see_chunk(k.subspan(j, n), v.subspan(j, n), begin);
      j += n;
    }
  }
  std::vector<float> result() const {
    std::vector<float> y = mixed_;
    for (float& x : y) x = x / l_;
    return y;
  }

 private:
  void see_chunk(std::span<const float* const> k, std::span<const float* const> v, int begin) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(q_.size()));
    std::vector<float> p(k.size()), mixed(q_.size());
    for (size_t t = 0; t < k.size(); ++t) {
      float s = 0;
      for (size_t d = 0; d < q_.size(); ++d) s = std::fma(q_[d], k[t][d], s);
      p[t] = s * scale;
    }
    const float top = *std::max_element(p.begin(), p.end());
    float lane[kLanes] = {};
    for (size_t t = 0; t < k.size(); ++t) {
      p[t] = cpu::exp_fixed(p[t] - top);
      float& sum = lane[(static_cast<size_t>(begin) + t) % kLanes];
      sum = sum + p[t];
      for (size_t d = 0; d < q_.size(); ++d) mixed[d] = std::fma(p[t], v[t][d], mixed[d]);
    }
    const float sum = cpu::sum_lanes(lane);
    if (mixed_.empty()) {
      m_ = top, l_ = sum, mixed_ = mixed;
      return;
    }
    const cpu::Merge g = cpu::merge_chunk(m_, l_, top, sum);
    m_ = g.m, l_ = g.l;
    for (size_t d = 0; d < mixed.size(); ++d) mixed_[d] = mixed_[d] * g.keep + mixed[d] * g.add;
  }
  std::span<const float> q_;
  std::vector<float> mixed_;
  float m_ = 0, l_ = 0;
};

// One head of one row.
template <typename T>
std::vector<float> defined_head(const AttentionWorld<T>& w, const ForwardPlan& plan, int row,
                                int head) {
  const PlanRow& r = plan.rows()[static_cast<size_t>(row)];
  const int kv_head = head / (w.config.n_heads / w.config.n_kv_heads);
  const size_t hd = static_cast<size_t>(w.config.head_dim);
  DefinedQuery query(std::span(w.queries).subspan(
      static_cast<size_t>(row * w.config.q_dim()) + static_cast<size_t>(head) * hd, hd));
  std::vector<const float*> k, v;
  const auto add = [&](const StoredKeys<T>& keys, int position) {
    k.push_back(keys.k.data() + keys.at(position, kv_head));
    v.push_back(keys.v.data() + keys.at(position, kv_head));
  };
  for (int p = 0; r.prefix && p < w.bank.length; ++p) add(w.prefix, p);
  query.see(k, v, 0);
  k.clear(), v.clear();
  const int oldest = w.c.window > 0 ? r.position - w.c.window + 1 : 0;
  int first = std::clamp(oldest, 0, r.context);
  for (int p = first; p < r.context; ++p) add(w.sequences[static_cast<size_t>(r.sequence)], p);
  for (const int32_t seen : plan.visible(r))
    if (plan.all_rows()[static_cast<size_t>(seen)].position >= oldest)
      add(w.step, seen);
    else
      ++first;
  query.see(k, v, first);
  return query.result();
}

// [new row][q_dim]
template <typename T>
std::vector<float> defined_rows(const AttentionWorld<T>& w) {
  ForwardPlan plan;
  w.c.build(plan, w.c.new_rows(), w.bank);
  std::vector<float> all;
  for (int row = 0; row < w.c.new_rows(); ++row)
    for (int head = 0; head < w.config.n_heads; ++head) {
      const std::vector<float> y = defined_head(w, plan, row, head);
      all.insert(all.end(), y.begin(), y.end());
    }
  return all;
}

// --- the engine ----------------------------------------------------------------------------------

// The first n new rows.
template <typename T>
std::vector<float> computed_rows(const AttentionWorld<T>& w, const Kernels& kernels, int n,
                                 int threads) {
  const ModelConfig& c = w.config;
  ForwardPlan plan;
  w.c.build(plan, n, w.bank);
  cpu::Attention<T> attention(c, kernels, w.blocks, threads, kSessionTokens);
  attention.begin(plan, &w.bank);
  const auto rows = static_cast<size_t>(n), q_dim = static_cast<size_t>(c.q_dim());
  const size_t group_width = q_dim / static_cast<size_t>(c.n_kv_heads);
  base::AlignedVector<float> queries(rows * q_dim);  // [kv head][row][group][head_dim]
  for (size_t h = 0; h < static_cast<size_t>(c.n_kv_heads); ++h)
    for (size_t i = 0; i < rows; ++i)
      std::copy_n(w.queries.data() + i * q_dim + h * group_width, group_width,
                  queries.data() + (h * rows + i) * group_width);
  std::vector<float> mixed(rows * q_dim, -77.0f);
  for (int u = 0; u < attention.units(0); ++u)
    attention.run(u, 0, u % threads, queries.data(), w.cache, w.step.store, w.prefix.store,
                  mixed.data(), c.q_dim());
  for (int i = 0; attention.must_merge(0) && i < n; ++i)
    attention.merge_row(i, mixed.data() + static_cast<size_t>(i) * q_dim);
  return mixed;
}

// The first of n rows whose bits are not the definition's, or -1.
template <typename T>
int first_wrong_row(const AttentionWorld<T>& w, const std::vector<float>& want,
                    const Kernels& kernels, int n, int threads) {
  const std::vector<float> got = computed_rows(w, kernels, n, threads);
  const auto q_dim = static_cast<size_t>(w.config.q_dim());
  for (int i = 0; i < n; ++i) {
    const size_t at = static_cast<size_t>(i) * q_dim;
    if (!same_bits(std::span(got).subspan(at, q_dim), std::span(want).subspan(at, q_dim))) return i;
  }
  return -1;
}

class EveryAttention : public ::testing::TestWithParam<Kernels> {
 protected:
  template <typename T>
  void check(const AttentionCase& c, const std::string& storage) const {
    const AttentionWorld<T> w(c);
    const std::vector<float> want = defined_rows(w);
    std::vector<int> counts(static_cast<size_t>(w.c.new_rows()));
    std::iota(counts.begin(), counts.end(), 1);
    const bool slow = std::string(GetParam().name) == "portable";
    for (const int n : slow ? tests::sample(counts, 2) : tests::sample(counts, 24)) {
      const int threads[] = {1, 2, 3, 8};  // 8: units are single chunks
      const int t = threads[n % 4];
      ASSERT_EQ(first_wrong_row(w, want, GetParam(), n, t), -1)
          << c.name << ", context " << c.lengths[0] << ", " << storage << ", " << n << " rows, "
          << t << " threads";
    }
  }
};

TEST_P(EveryAttention, RowsHaveTheBitsOfTheDefinition) {
  // Around the borders of chunks (128) and of blocks of keys (16).
  const auto contexts = tests::sample({0,   1,   15,  16,  17,  60,  100, 112, 127, 128, 129,
                                       200, 255, 256, 257, 330, 384, 400, 511, 512, 513, 600},
                                      2);
  for (const int context : contexts)
    for (const AttentionCase& c : tests::sample(attention_cases(context), 4)) {
      check<float>(c, "f32");
      check<uint16_t>(c, "bf16");
      check<int8_t>(c, "int8");
      check<cpu::Fp8>(c, "fp8");
      check<uint8_t>(c, "int4");
    }
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryAttention,
                         ::testing::ValuesIn(cpu::available_kernels().begin(),
                                             cpu::available_kernels().end()),
                         [](const auto& path) { return as_test_name(path.param.name); });

// What the comparison is worth: each planted fault must change some row.
TEST(AttentionFaults, AreSeen) {
  static const Kernels honest = cpu::available_kernels().front();
  std::map<std::string, Kernels> faulty;
  const auto fault = [&](const std::string& name) -> Kernels& {
    return faulty.emplace(name, honest).first->second;
  };
  fault("every query sees what the first sees").softmax_chunk =
      [](float* s, int n_q, int lo, const int* hi, float* max, float* sum) {
        const std::vector<int> same(static_cast<size_t>(n_q), hi[0]);
        honest.softmax_chunk(s, n_q, lo, same.data(), max, sum);
      };
  fault("the last query is not merged").merge = [](float* out, float* m, float* l,
                                                   const float* chunk, const float* chunk_m,
                                                   const float* chunk_l, int n_q, int width) {
    honest.merge(out, m, l, chunk, chunk_m, chunk_l, n_q - 1, width);
  };
  fault("the last position is not added").weighted_sum_f32 =
      [](const float* p, int ldp, int n_q, const float* v, int ldv, int n, int width, float* acc,
         int lda) { honest.weighted_sum_f32(p, ldp, n_q, v, ldv, n - 1, width, acc, lda); };
  fault("the last block of keys is the one before").scores_f32 =
      [](const float* q, int ldq, int n_q, const float* k, int n_blocks, int head_dim, float scale,
         float* s, int lds) {
        honest.scores_f32(q, ldq, n_q, k, n_blocks, head_dim, scale, s, lds);
        for (int i = 0; n_blocks > 1 && i < n_q; ++i)
          std::copy_n(s + i * lds + (n_blocks - 2) * kLanes, kLanes,
                      s + i * lds + (n_blocks - 1) * kLanes);
      };
  const AttentionWorld<float> w(attention_cases(300).front());
  const std::vector<float> want = defined_rows(w);
  for (const int threads : {1, 8}) {
    EXPECT_EQ(first_wrong_row(w, want, honest, kAttentionRows, threads), -1);
    for (const auto& [name, kernels] : faulty)
      EXPECT_NE(first_wrong_row(w, want, kernels, kAttentionRows, threads), -1) << name;
  }
}

// Of one sequence, then of two: the first has three blocks. Its first two are seen as a whole: when
// these are swapped, the same keys come in another order, and only the rounding of sums can differ.
TEST(AttentionFaults, ATableWithTwoEntriesSwappedIsSeen) {
  for (const size_t which : {size_t{0}, size_t{4}}) {
    AttentionWorld<float> w(attention_cases(300)[which]);
    const std::vector<float> want = defined_rows(w);
    const std::vector<int> order = some_order(w.c.lengths);
    for (size_t other = 2; other < order.size(); ++other) {
      std::vector<int> swapped = order;
      std::swap(swapped[0], swapped[other]);
      w.blocks = blocks_in_order(swapped, w.c.lengths);
      for (const int threads : {1, 8})
        EXPECT_NE(
            first_wrong_row(w, want, cpu::available_kernels().front(), kAttentionRows, threads), -1)
            << w.c.name << ", blocks 0 and " << other;
    }
    w.blocks = blocks_in_order(order, w.c.lengths);
    EXPECT_EQ(first_wrong_row(w, want, cpu::available_kernels().front(), kAttentionRows, 1), -1);
  }
}

}  // namespace
}  // namespace evalrun::engine::testing
