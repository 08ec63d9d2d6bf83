// Softmax attention of a forward's rows over the caches of their sequences and over each other, in
// chunks of 128 logical positions with absolute borders (arith.h). It is online: at most one chunk
// of scores per query is held.
//
// AttentionPlan says which queries are computed together: keys and values are read once for all of
// them. Where a unit is a single chunk, the chunks are merged afterwards (merge_row), in the same
// order, so that the bits are the same. CacheBlocks say where a chunk of a sequence lies.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/base/error.h"
#include "engine/cache_blocks.h"
#include "engine/cpu/attention_plan.h"
#include "engine/cpu/chunk_sums.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kv_store.h"
#include "engine/forward_plan.h"

namespace evalrun::engine::cpu {

template <typename T>
class Attention {
 public:
  // `blocks`: of the sequences, in the cache that run() is given.
  Attention(const ModelConfig& config, const Kernels& kernels, const CacheBlocks& blocks,
            int n_threads, int max_tokens);

  // What the layers of one forward share. `queries`: [kv head][row][group][head_dim], rotated.
  void begin(const ForwardPlan& plan, const PrefixBank* prefix);

  int units(int layer) const;
  // True when rows must be merged (merge_row) once all units are done.
  bool must_merge(int layer) const { return units_.split() && !c_.layer_is_windowed(layer); }

  // Unit u of a layer. `mixed`: [rows][q_dim], written unless must_merge().
  void run(int u, int layer, int thread, const float* queries, const KvStore<T>& cache_of_layer,
           const KvStore<T>& step, const KvStore<T>& prefix, float* mixed, int ldm);

  // out [q_dim] of one row from the chunks of its units.
  void merge_row(int i, float* out) const {
    const int chunks = (row(i).context + row(i).visible_count + kChunk - 1) / kChunk;
    sums_.merge(k_, i, chunks, c_.head_dim, out);
  }

  size_t bytes() const;

 private:
  using Block = AttentionPlan::Block;
  static constexpr int kMostBlocks = AttentionPlan::kMostBlocks;
  static constexpr int kMaxQueries = 64;  // query heads per kv head
  static_assert(kCacheBlock == kChunk);

  struct Unit {
    int kv_head = 0;
    int chunk = -1;  // only this one, its sums kept apart
    bool windowed = false;
    const float* queries;
    const KvStore<T>* cache;
    const int32_t* blocks = nullptr;  // of the cache: where each chunk of the sequence lies
    const KvStore<T>* step;
    const KvStore<T>* prefix;
  };
  // A block of the unit under way.
  struct Part {
    Block block;
    int context, end;       // committed positions; [0, end) are in some row's view
    bool first;             // nothing is merged yet
    const float* q;         // [queries][head_dim]
    float *merged, *m, *l;  // [queries][width], [queries], [queries]
  };
  struct Scratch {
    base::AlignedVector<float> scores;   // [queries][kChunk]
    base::AlignedVector<float> step;     // [queries][rows that a block sees in a chunk]
    base::AlignedVector<float> merged;   // [blocks][queries][width]
    base::AlignedVector<float> current;  // [queries][width]
    float m[kMostBlocks * kMaxQueries], l[kMostBlocks * kMaxQueries];
    Part parts[kMostBlocks];
  };

  static void grow(base::AlignedVector<float>& v, size_t n) {
    if (v.size() < n) v.resize(n);
  }
  int group() const { return c_.n_heads / c_.n_kv_heads; }
  size_t width() const { return (static_cast<size_t>(c_.head_dim) + kLanes - 1) / kLanes * kLanes; }
  int n_queries(const Block& b) const { return (b.end - b.first) * group(); }
  size_t most_queries() const {
    return static_cast<size_t>(std::max(AttentionPlan::kBlockQueries, group()));
  }
  const PlanRow& row(int i) const { return plan_->rows()[static_cast<size_t>(i)]; }

  void scores(const float* q, int n_q, const T* k, int n_blocks, float* s, int lds) const;
  void weighted_sum(const float* p, int n_q, const T* v, int ldv, int n, float* acc) const;

  Part part_of(const Unit& u, const Block& block, int index, Scratch& s) const;
  void attend(const Unit& u, std::span<Part> parts, Scratch& s);
  // The oldest logical position in the window of a row.
  int window_begin(int i) const;
  // Logical positions from `from` to the end of the chunk that begins at `base`.
  void attend_chunk(const Unit& u, Part& part, int from, int base, Scratch& s);
  // The part of it that lies in rows of the request: scores, weighted values.
  void score_rows(const Unit& u, const Part& part, int from, int base, Scratch& s) const;
  void add_rows(const Unit& u, const Part& part, int from, int base, Scratch& s) const;
  // A chunk of queries [i, i + n) of a part into the running sums, or apart.
  void keep(const Unit& u, const Part& part, int i, int n, int chunk, const float* m,
            const float* l, Scratch& s);
  void attend_prefix(const Unit& u, Part& part, Scratch& s);

  const ModelConfig& c_;
  const Kernels& k_;
  const CacheBlocks& blocks_;
  const int most_chunks_;  // of a sequence as long as the session allows
  const ForwardPlan* plan_ = nullptr;
  AttentionPlan units_;
  std::vector<Scratch> scratch_;  // [thread]
  ChunkSums sums_;
  int prefix_length_ = 0;
  bool prefix_per_query_head_ = false;
};

template <typename T>
Attention<T>::Attention(const ModelConfig& config, const Kernels& kernels,
                        const CacheBlocks& blocks, int n_threads, int max_tokens)
    : c_(config),
      k_(kernels),
      blocks_(blocks),
      most_chunks_((max_tokens + kChunk - 1) / kChunk),
      scratch_(static_cast<size_t>(n_threads)) {
  EVALRUN_CHECK(group() <= kMaxQueries, "{} query heads per kv head", group());
  EVALRUN_CHECK(width() <= ChunkSums::kMaxWidth, "heads of {} dimensions", config.head_dim);
}

// --- one forward ---------------------------------------------------------------------------------

template <typename T>
void Attention<T>::begin(const ForwardPlan& plan, const PrefixBank* prefix) {
  plan_ = &plan;
  prefix_length_ = prefix == nullptr ? 0 : prefix->length;
  prefix_per_query_head_ = prefix != nullptr && group() > 1 && prefix->heads == c_.n_heads;
  units_.build(plan, group(), c_.n_kv_heads, static_cast<int>(scratch_.size()));
  // For every chunk there will ever be, so that a growing context allocates nothing.
  if (units_.few_blocks())
    sums_.make_room(std::max(most_chunks_, units_.n_chunks()), plan.n_rows(), c_.n_heads, width());
  const int rows = (plan.n_kept() + plan.n_rows() + kLanes - 1) / kLanes * kLanes;
  for (Scratch& s : scratch_) {
    grow(s.scores, most_queries() * kChunk);
    grow(s.step, most_queries() * static_cast<size_t>(rows));
    grow(s.merged, kMostBlocks * most_queries() * width());
    grow(s.current, most_queries() * width());
  }
}

template <typename T>
int Attention<T>::units(int layer) const {
  return c_.layer_is_windowed(layer) ? plan_->n_rows() * c_.n_kv_heads : units_.units();
}

// --- one unit ------------------------------------------------------------------------------------

template <typename T>
void Attention<T>::run(int u, int layer, int thread, const float* queries,
                       const KvStore<T>& cache_of_layer, const KvStore<T>& step,
                       const KvStore<T>& prefix, float* mixed, int ldm) {
  Unit unit{.queries = queries, .cache = &cache_of_layer, .step = &step, .prefix = &prefix};
  Scratch& s = scratch_[static_cast<size_t>(thread)];
  int n_parts = 0;
  if (c_.layer_is_windowed(layer)) {
    unit.windowed = true;
    unit.kv_head = u % c_.n_kv_heads;
    s.parts[n_parts++] = part_of(unit, units_.block_of_row(u / c_.n_kv_heads), 0, s);
  } else {
    const AttentionPlan::Unit work = units_.unit(u);
    unit.kv_head = work.kv_head;
    unit.chunk = work.chunk;
    for (int b = work.first; b < work.end; ++b, ++n_parts)
      s.parts[n_parts] = part_of(unit, units_.blocks()[static_cast<size_t>(b)], n_parts, s);
  }
  const std::span<Part> parts(s.parts, static_cast<size_t>(n_parts));
  unit.blocks = blocks_.of(parts[0].block.sequence).data();
  attend(unit, parts, s);
  if (unit.chunk >= 0) return;
  for (const Part& p : parts)
    for (int q = 0; q < n_queries(p.block); ++q) {
      const float* sums = p.merged + static_cast<size_t>(q) * width();
      float* out = mixed + static_cast<ptrdiff_t>(p.block.first + q / group()) * ldm +
                   (unit.kv_head * group() + q % group()) * c_.head_dim;
      for (int d = 0; d < c_.head_dim; ++d) out[d] = sums[d] / p.l[q];
    }
}

template <typename T>
size_t Attention<T>::bytes() const {
  size_t floats = 0;
  for (const Scratch& s : scratch_)
    floats += s.scores.size() + s.step.size() + s.merged.size() + s.current.size();
  return floats * sizeof(float) + sums_.bytes();
}

// --- by storage ----------------------------------------------------------------------------------

template <typename T>
void Attention<T>::scores(const float* q, int n_q, const T* k, int n_blocks, float* s,
                          int lds) const {
  const float scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim));
  if constexpr (std::is_same_v<T, float>)
    k_.scores_f32(q, c_.head_dim, n_q, k, n_blocks, c_.head_dim, scale, s, lds);
  else if constexpr (std::is_same_v<T, int8_t>)
    k_.scores_int8(q, c_.head_dim, n_q, k, n_blocks, c_.head_dim, scale, s, lds);
  else if constexpr (std::is_same_v<T, uint8_t>)
    k_.scores_int4(q, c_.head_dim, n_q, k, n_blocks, c_.head_dim, scale, s, lds);
  else if constexpr (std::is_same_v<T, Fp8>)
    k_.scores_fp8(q, c_.head_dim, n_q, k, n_blocks, c_.head_dim, scale, s, lds);
  else
    k_.scores_bf16(q, c_.head_dim, n_q, k, n_blocks, c_.head_dim, scale, s, lds);
}

template <typename T>
void Attention<T>::weighted_sum(const float* p, int n_q, const T* v, int ldv, int n,
                                float* acc) const {
  const int w = static_cast<int>(width());
  if constexpr (std::is_same_v<T, float>)
    k_.weighted_sum_f32(p, kChunk, n_q, v, ldv, n, w, acc, w);
  else if constexpr (std::is_same_v<T, int8_t>)
    k_.weighted_sum_int8(p, kChunk, n_q, v, ldv, n, w, acc, w);
  else if constexpr (std::is_same_v<T, uint8_t>)
    k_.weighted_sum_int4(p, kChunk, n_q, v, ldv, n, w, acc, w);
  else if constexpr (std::is_same_v<T, Fp8>)
    k_.weighted_sum_fp8(p, kChunk, n_q, v, ldv, n, w, acc, w);
  else
    k_.weighted_sum_bf16(p, kChunk, n_q, v, ldv, n, w, acc, w);
}

// --- chunks of a unit ----------------------------------------------------------------------------

template <typename T>
typename Attention<T>::Part Attention<T>::part_of(const Unit& u, const Block& block, int index,
                                                  Scratch& s) const {
  const size_t at = static_cast<size_t>(index) * most_queries();
  Part p{block,   row(block.first).context,       0,        true,
         nullptr, s.merged.data() + at * width(), s.m + at, s.l + at};
  for (int i = block.first; i < block.end; ++i)
    p.end = std::max(p.end, p.context + row(i).visible_count);
  p.q = u.queries + (static_cast<size_t>(u.kv_head) * static_cast<size_t>(plan_->n_rows()) +
                     static_cast<size_t>(block.first)) *
                        static_cast<size_t>(group()) * static_cast<size_t>(c_.head_dim);
  return p;
}

template <typename T>
void Attention<T>::attend(const Unit& u, std::span<Part> parts, Scratch& s) {
  int end = 0;
  for (Part& p : parts) {
    if (p.block.prefix) attend_prefix(u, p, s);
    end = std::max(end, p.end);
  }
  const int begin = u.windowed ? window_begin(parts[0].block.first) : 0;
  const int first = u.chunk >= 0 ? u.chunk : begin / kChunk;
  const int last = u.chunk >= 0 ? u.chunk : (end - 1) / kChunk;
  for (int chunk = first; chunk <= last; ++chunk)
    for (Part& p : parts)
      if (chunk * kChunk < p.end)
        attend_chunk(u, p, std::max(begin, chunk * kChunk), chunk * kChunk, s);
}

// A window hides the oldest by position; visible rows are in order of position.
template <typename T>
int Attention<T>::window_begin(int i) const {
  const PlanRow& r = row(i);
  const auto visible = plan_->visible(r);
  const int oldest = r.position - c_.sliding_window + 1;
  int begin = std::clamp(oldest, 0, r.context);
  if (begin == r.context)
    while (plan_->all_rows()[static_cast<size_t>(visible[static_cast<size_t>(begin - r.context)])]
               .position < oldest)
      ++begin;
  return begin;
}

template <typename T>
void Attention<T>::attend_chunk(const Unit& u, Part& part, int from, int base, Scratch& s) {
  const int g = group(), n_q = n_queries(part.block);
  const int context_end = std::min(base + kChunk, part.context);
  const bool rows = base + kChunk > part.context;
  int lies = 0;  // `from`, in the cache
  if (from < context_end) {
    lies = u.blocks[base / kChunk] * kChunk + (from - base);
    const int block = from / kLanes;
    scores(part.q, n_q, u.cache->k_blocks(u.kv_head, lies / kLanes),
           (context_end + kLanes - 1) / kLanes - block, s.scores.data() + (block * kLanes - base),
           kChunk);
  }
  if (rows) score_rows(u, part, from, base, s);
  int stop[kMaxQueries];
  float m[kMaxQueries], l[kMaxQueries];
  for (int i = part.block.first; i < part.block.end; ++i)
    std::fill_n(stop + (i - part.block.first) * g, g,
                std::min(kChunk, part.context + row(i).visible_count - base));
  k_.softmax_chunk(s.scores.data(), n_q, from - base, stop, m, l);
  std::memset(s.current.data(), 0, static_cast<size_t>(n_q) * width() * sizeof(float));
  if (from < context_end)
    weighted_sum(s.scores.data() + (from - base), n_q, u.cache->v_row(u.kv_head, lies),
                 u.cache->v_stride(), context_end - from, s.current.data());
  if (rows) add_rows(u, part, from, base, s);
  // Rows that see nothing of this chunk keep what they have.
  for (int i = 0; i < n_q;) {
    int end = i;
    while (end < n_q && stop[end] > from - base) ++end;
    if (end > i) keep(u, part, i, end - i, base / kChunk, m + i, l + i, s);
    i = end + 1;
  }
  part.first = false;
}

template <typename T>
void Attention<T>::score_rows(const Unit& u, const Part& part, int from, int base,
                              Scratch& s) const {
  // By row number first; then in logical order.
  const AttentionPlan::RowRange seen = units_.rows_seen(part.block, base / kChunk);
  const int block = seen.oldest / kLanes, n_blocks = seen.newest / kLanes + 1 - block;
  const int ld = n_blocks * kLanes;
  scores(part.q, n_queries(part.block), u.step->k_blocks(u.kv_head, block), n_blocks, s.step.data(),
         ld);
  units_.for_rows_seen(part.block, from, base,
                       [&](int query, int queries, int position, int first, int n) {
                         for (int i = query; i < query + queries; ++i) {
                           const float* of_rows = s.step.data() + i * ld + (first - block * kLanes);
                           float* to = s.scores.data() + i * kChunk + (position - base);
                           for (int j = 0; j < n; ++j) to[j] = of_rows[j];
                         }
                       });
}

template <typename T>
void Attention<T>::add_rows(const Unit& u, const Part& part, int from, int base, Scratch& s) const {
  units_.for_rows_seen(part.block, from, base,
                       [&](int query, int queries, int position, int first, int n) {
                         weighted_sum(s.scores.data() + query * kChunk + (position - base), queries,
                                      u.step->v_row(u.kv_head, first), u.step->v_stride(), n,
                                      s.current.data() + static_cast<size_t>(query) * width());
                       });
}

template <typename T>
void Attention<T>::keep(const Unit& u, const Part& part, int i, int n, int chunk, const float* m,
                        const float* l, Scratch& s) {
  const size_t w = width(), at = static_cast<size_t>(i) * w;
  const float* current = s.current.data() + at;
  if (u.chunk >= 0) {
    const int g = group();
    for (int j = 0; j < n; j += g)
      sums_.keep(chunk, part.block.first + (i + j) / g, u.kv_head * g, g, m + j, l + j,
                 current + static_cast<size_t>(j) * w);
  } else if (part.first) {
    std::copy_n(m, n, part.m + i);
    std::copy_n(l, n, part.l + i);
    std::copy_n(current, static_cast<size_t>(n) * w, part.merged + at);
  } else {
    k_.merge(part.merged + at, part.m + i, part.l + i, current, m, l, n, static_cast<int>(w));
  }
}

template <typename T>
void Attention<T>::attend_prefix(const Unit& u, Part& part, Scratch& s) {
  const int n_q = n_queries(part.block);
  const size_t w = width();
  // Queries that share a head of the bank: all of the block, or one by one.
  const int step = prefix_per_query_head_ ? 1 : n_q;
  const auto head_of = [&](int query) {
    return prefix_per_query_head_ ? u.kv_head * group() + query % group() : u.kv_head;
  };
  int stop[kMaxQueries];
  float m[kMaxQueries], l[kMaxQueries];
  for (int base = 0; base < prefix_length_; base += kChunk) {
    const int n = std::min(kChunk, prefix_length_ - base);
    for (int i = 0; i < n_q; i += step)
      scores(part.q + static_cast<ptrdiff_t>(i) * c_.head_dim, step,
             u.prefix->k_blocks(head_of(i), base / kLanes), (n + kLanes - 1) / kLanes,
             s.scores.data() + i * kChunk, kChunk);
    std::fill_n(stop, n_q, n);
    k_.softmax_chunk(s.scores.data(), n_q, 0, stop, m, l);
    std::memset(s.current.data(), 0, static_cast<size_t>(n_q) * w * sizeof(float));
    for (int i = 0; i < n_q; i += step)
      weighted_sum(s.scores.data() + i * kChunk, step, u.prefix->v_row(head_of(i), base),
                   u.prefix->v_stride(), n, s.current.data() + static_cast<size_t>(i) * w);
    keep(u, part, 0, n_q, 0, m, l, s);
    part.first = false;
  }
}

}  // namespace evalrun::engine::cpu
