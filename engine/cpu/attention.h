// Softmax attention of a forward's rows over the caches of their sequences and over each other, in
// chunks of 128 logical positions with absolute borders (arith.h). It is online: at most one chunk
// of scores per query is held.
//
// Neighbouring rows of one sequence all see the whole committed context, so they are taken in
// blocks of up to 24 query vectors per kv head: keys and values are read (and widened) once per
// block. Work units are (block, kv head), or, when these are too few for the threads, (block, kv
// head, chunk) with the chunks merged afterwards. The order is the same, so the bits are, too.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/base/error.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kv_store.h"
#include "engine/forward_plan.h"

namespace evalrun::engine::cpu {

template <typename T>
class Attention {
 public:
  Attention(const ModelConfig& config, const Kernels& kernels, int n_threads, int max_tokens);

  // What the layers of one forward share. `queries`: [kv head][row][group][head_dim], rotated.
  void begin(const ForwardPlan& plan, const PrefixBank* prefix);

  int units(int layer) const;
  // True when rows must be merged (merge_row) once all units are done.
  bool must_merge(int layer) const { return split_ && !c_.layer_is_windowed(layer); }

  // Unit u of a layer. `mixed`: [rows][q_dim], written unless must_merge().
  void run(int u, int layer, int thread, const float* queries, const KvStore<T>* caches_of_layer[],
           const KvStore<T>& step, const KvStore<T>& prefix, float* mixed, int ldm);

  // out [q_dim] of one row from the chunks of its units.
  void merge_row(int row, float* out) const;

  size_t bytes() const;

 private:
  static constexpr int kMaxQueries = 64;    // query heads per kv head
  static constexpr int kBlockQueries = 24;  // of a block of several rows
  static constexpr size_t kMaxHeadDim = 1024;

  struct Block {
    int first, end;  // rows
    int sequence;
    int oldest, newest;  // rows of the request any of them sees
    bool prefix;         // its rows see the prefix bank
  };
  struct Unit {
    Block block{};
    int kv_head = 0;
    int chunk = -1;  // only this one, its sums kept apart
    bool windowed = false;
    const float* queries;
    const KvStore<T>* cache = nullptr;
    const KvStore<T>* step;
    const KvStore<T>* prefix;
  };
  struct Scratch {
    base::AlignedVector<float> scores;           // [queries][kChunk]
    base::AlignedVector<float> step;             // [queries][rows of the request, kept ones too]
    base::AlignedVector<float> merged, current;  // [queries][width]
    float m[kMaxQueries], l[kMaxQueries];
    bool first = true;
  };

  static void grow(base::AlignedVector<float>& v, size_t n) {
    if (v.size() < n) v.resize(n);
  }
  int group() const { return c_.n_heads / c_.n_kv_heads; }
  size_t width() const { return (static_cast<size_t>(c_.head_dim) + kLanes - 1) / kLanes * kLanes; }
  int n_queries(const Unit& u) const { return (u.block.end - u.block.first) * group(); }
  size_t state(int chunk, int row, int head) const;
  void scores(const float* q, int n_q, const T* k, int n_blocks, float* s, int lds) const;
  void weighted_sum(const float* p, int n_q, const T* v, int ldv, int n, float* acc) const;
  void attend(const Unit& u, Scratch& s);
  // Logical positions from `from` to the end of the chunk that begins at `base`, for all rows.
  void attend_chunk(const Unit& u, const float* q, int context, int from, int base, Scratch& s);
  // One query's chunk into the running sums, or apart.
  void keep(const Unit& u, int row, int i, int chunk, float m, float l, Scratch& s);
  void attend_prefix(const Unit& u, const float* q, Scratch& s);

  const ModelConfig& c_;
  const Kernels& k_;
  const int most_chunks_;  // of a sequence as long as the session allows
  const ForwardPlan* plan_ = nullptr;
  std::vector<Scratch> scratch_;  // [thread]
  std::vector<Block> blocks_;
  base::AlignedVector<float> partial_, partial_m_, partial_l_;  // [chunk][row][head]
  int prefix_length_ = 0, longest_ = 0, n_chunks_ = 0, step_ld_ = 0;
  bool split_ = false, any_prefix_ = false, prefix_per_query_head_ = false;
};

template <typename T>
Attention<T>::Attention(const ModelConfig& config, const Kernels& kernels, int n_threads,
                        int max_tokens)
    : c_(config),
      k_(kernels),
      most_chunks_((max_tokens + kChunk - 1) / kChunk),
      scratch_(static_cast<size_t>(n_threads)) {
  EVALRUN_CHECK(group() <= kMaxQueries, "{} query heads per kv head", group());
  EVALRUN_CHECK(width() <= kMaxHeadDim, "heads of {} dimensions", config.head_dim);
}

// --- one forward ---------------------------------------------------------------------------------

template <typename T>
void Attention<T>::begin(const ForwardPlan& plan, const PrefixBank* prefix) {
  plan_ = &plan;
  prefix_length_ = prefix == nullptr ? 0 : prefix->length;
  prefix_per_query_head_ = prefix != nullptr && group() > 1 && prefix->heads == c_.n_heads;
  const int rows = plan.n_rows();
  const int most = std::max(1, kBlockQueries / group());
  blocks_.clear();
  longest_ = 0;
  any_prefix_ = false;
  for (int i = 0; i < rows; ++i) {
    const PlanRow& r = plan.rows()[static_cast<size_t>(i)];
    longest_ = std::max(longest_, r.context + r.visible_count);
    any_prefix_ = any_prefix_ || r.prefix;
    const auto [first, last] = std::minmax_element(plan.visible(r).begin(), plan.visible(r).end());
    if (blocks_.empty() || blocks_.back().sequence != r.sequence ||
        blocks_.back().prefix != r.prefix || i - blocks_.back().first == most) {
      blocks_.push_back({i, i + 1, r.sequence, *first, *last, r.prefix});
    } else {
      Block& b = blocks_.back();
      b.end = i + 1;
      b.oldest = std::min(b.oldest, *first), b.newest = std::max(b.newest, *last);
    }
  }
  n_chunks_ = (longest_ + kChunk - 1) / kChunk;
  const int units = static_cast<int>(blocks_.size()) * c_.n_kv_heads;
  const int threads = static_cast<int>(scratch_.size());
  const bool few_units = threads > 1 && !any_prefix_ && units < 4 * threads;
  split_ = few_units && n_chunks_ > 1;
  if (few_units) {
    // For every chunk there will ever be, so that a growing context allocates nothing.
    const size_t states = static_cast<size_t>(std::max(most_chunks_, n_chunks_)) *
                          static_cast<size_t>(rows) * static_cast<size_t>(c_.n_heads);
    grow(partial_, states * width());
    grow(partial_m_, states), grow(partial_l_, states);
  }
  step_ld_ = (plan.n_kept() + rows + kLanes - 1) / kLanes * kLanes;
  for (Scratch& s : scratch_) {
    grow(s.scores, static_cast<size_t>(kMaxQueries) * kChunk);
    grow(s.step, static_cast<size_t>(kMaxQueries) * static_cast<size_t>(step_ld_));
    grow(s.merged, kMaxQueries * width());
    grow(s.current, kMaxQueries * width());
  }
}

template <typename T>
int Attention<T>::units(int layer) const {
  if (c_.layer_is_windowed(layer)) return plan_->n_rows() * c_.n_kv_heads;
  return static_cast<int>(blocks_.size()) * c_.n_kv_heads * (split_ ? n_chunks_ : 1);
}

// --- one unit ------------------------------------------------------------------------------------

template <typename T>
void Attention<T>::run(int u, int layer, int thread, const float* queries,
                       const KvStore<T>* caches_of_layer[], const KvStore<T>& step,
                       const KvStore<T>& prefix, float* mixed, int ldm) {
  Unit unit{.queries = queries, .step = &step, .prefix = &prefix};
  if (c_.layer_is_windowed(layer)) {
    const int row = u / c_.n_kv_heads;
    const PlanRow& r = plan_->rows()[static_cast<size_t>(row)];
    const auto [first, last] =
        std::minmax_element(plan_->visible(r).begin(), plan_->visible(r).end());
    unit.block = {row, row + 1, r.sequence, *first, *last, r.prefix};
    unit.kv_head = u % c_.n_kv_heads;
    unit.windowed = true;
  } else {
    const int per_block = c_.n_kv_heads * (split_ ? n_chunks_ : 1);
    unit.block = blocks_[static_cast<size_t>(u / per_block)];
    unit.kv_head = u % per_block % c_.n_kv_heads;
    if (split_) unit.chunk = u % per_block / c_.n_kv_heads;
  }
  unit.cache = caches_of_layer[unit.block.sequence];
  Scratch& s = scratch_[static_cast<size_t>(thread)];
  attend(unit, s);
  if (unit.chunk < 0) {
    for (int q = 0; q < n_queries(unit); ++q) {
      const float* sums = s.merged.data() + static_cast<size_t>(q) * width();
      float* out = mixed + static_cast<ptrdiff_t>(unit.block.first + q / group()) * ldm +
                   (unit.kv_head * group() + q % group()) * c_.head_dim;
      for (int d = 0; d < c_.head_dim; ++d) out[d] = sums[d] / s.l[q];
    }
  }
}

template <typename T>
void Attention<T>::merge_row(int row, float* out) const {
  const PlanRow& r = plan_->rows()[static_cast<size_t>(row)];
  const int chunks = (r.context + r.visible_count + kChunk - 1) / kChunk;
  alignas(64) float sums[kMaxHeadDim];
  for (int head = 0; head < c_.n_heads; ++head) {
    float m = 0, l = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const size_t at = state(chunk, row, head);
      const float* p = partial_.data() + at * width();
      if (chunk == 0) {
        m = partial_m_[at], l = partial_l_[at];
        std::memcpy(sums, p, width() * sizeof(float));
      } else {
        k_.merge(sums, &m, &l, p, partial_m_[at], partial_l_[at], static_cast<int>(width()));
      }
    }
    for (int d = 0; d < c_.head_dim; ++d) out[head * c_.head_dim + d] = sums[d] / l;
  }
}

template <typename T>
size_t Attention<T>::bytes() const {
  size_t floats = partial_.size() + partial_m_.size() + partial_l_.size();
  for (const Scratch& s : scratch_)
    floats += s.scores.size() + s.step.size() + s.merged.size() + s.current.size();
  return floats * sizeof(float);
}

template <typename T>
size_t Attention<T>::state(int chunk, int row, int head) const {
  return (static_cast<size_t>(chunk) * static_cast<size_t>(plan_->n_rows()) +
          static_cast<size_t>(row)) *
             static_cast<size_t>(c_.n_heads) +
         static_cast<size_t>(head);
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
  else
    k_.weighted_sum_bf16(p, kChunk, n_q, v, ldv, n, w, acc, w);
}

// --- chunks of a unit ----------------------------------------------------------------------------

template <typename T>
void Attention<T>::attend(const Unit& u, Scratch& s) {
  const PlanRow& front = plan_->rows()[static_cast<size_t>(u.block.first)];
  const int context = front.context;  // of every row of the block
  const float* q =
      u.queries + (static_cast<size_t>(u.kv_head) * static_cast<size_t>(plan_->n_rows()) +
                   static_cast<size_t>(u.block.first)) *
                      static_cast<size_t>(group()) * static_cast<size_t>(c_.head_dim);
  s.first = true;
  if (front.prefix) attend_prefix(u, q, s);

  // Logical positions [begin, end) in some row's view. A window (blocks of one row) hides the
  // oldest by position; visible rows are in order of position.
  int begin = 0, end = 0;
  for (int row = u.block.first; row < u.block.end; ++row) {
    const PlanRow& r = plan_->rows()[static_cast<size_t>(row)];
    end = std::max(end, r.context + r.visible_count);
  }
  if (u.windowed) {
    const int oldest = front.position - c_.sliding_window + 1;
    const auto visible = plan_->visible(front);
    begin = std::clamp(oldest, 0, context);
    if (begin == context)
      while (plan_->all_rows()[static_cast<size_t>(visible[static_cast<size_t>(begin - context)])]
                 .position < oldest)
        ++begin;
  }
  const int first = u.chunk >= 0 ? u.chunk : begin / kChunk;
  const int last = u.chunk >= 0 ? u.chunk : (end - 1) / kChunk;
  if ((last + 1) * kChunk > context) {
    // Scores against the rows of the request, by row number; gathered in logical order below.
    const int block = u.block.oldest / kLanes;
    scores(q, n_queries(u), u.step->k_blocks(u.kv_head, block), u.block.newest / kLanes + 1 - block,
           s.step.data() + block * kLanes, step_ld_);
  }
  for (int chunk = first; chunk <= last; ++chunk)
    attend_chunk(u, q, context, std::max(begin, chunk * kChunk), chunk * kChunk, s);
}

template <typename T>
void Attention<T>::attend_chunk(const Unit& u, const float* q, int context, int from, int base,
                                Scratch& s) {
  const int g = group(), n_q = n_queries(u);
  const int context_end = std::min(base + kChunk, context);
  if (from < context_end) {
    const int block = from / kLanes;
    scores(q, n_q, u.cache->k_blocks(u.kv_head, block), (context_end + kLanes - 1) / kLanes - block,
           s.scores.data() + (block * kLanes - base), kChunk);
  }
  float m[kMaxQueries], l[kMaxQueries];
  for (int row = u.block.first; row < u.block.end; ++row) {
    const PlanRow& r = plan_->rows()[static_cast<size_t>(row)];
    const auto visible = plan_->visible(r);
    const int stop = std::min(base + kChunk, r.context + r.visible_count);
    for (int j = 0; j < g; ++j) {
      const int i = (row - u.block.first) * g + j;
      float* to = s.scores.data() + i * kChunk;
      if (stop <= from) continue;
      const float* step = s.step.data() + static_cast<ptrdiff_t>(i) * step_ld_;
      for (int p = std::max(from, context); p < stop; ++p)
        to[p - base] = step[visible[static_cast<size_t>(p - context)]];
      l[i] = k_.softmax_chunk(to, from - base, stop - base, &m[i]);
    }
  }
  const size_t w = width();
  std::memset(s.current.data(), 0, static_cast<size_t>(n_q) * w * sizeof(float));
  if (from < context_end)
    weighted_sum(s.scores.data() + (from - base), n_q, u.cache->v_row(u.kv_head, from),
                 u.cache->v_stride(), context_end - from, s.current.data());
  for (int row = u.block.first; row < u.block.end; ++row) {
    const PlanRow& r = plan_->rows()[static_cast<size_t>(row)];
    const auto visible = plan_->visible(r);
    const int stop = std::min(base + kChunk, r.context + r.visible_count);
    const int i = (row - u.block.first) * g;
    // Runs of neighbouring rows in one call.
    for (int p = std::max(from, context); p < stop;) {
      const int row_p = visible[static_cast<size_t>(p - context)];
      int run = 1;
      while (p + run < stop && visible[static_cast<size_t>(p + run - context)] == row_p + run)
        ++run;
      weighted_sum(s.scores.data() + i * kChunk + (p - base), g, u.step->v_row(u.kv_head, row_p),
                   u.step->v_stride(), run, s.current.data() + static_cast<size_t>(i) * w);
      p += run;
    }
    if (stop <= from) continue;
    for (int j = 0; j < g; ++j) keep(u, row, i + j, base / kChunk, m[i + j], l[i + j], s);
  }
  s.first = false;
}

template <typename T>
void Attention<T>::keep(const Unit& u, int row, int i, int chunk, float m, float l, Scratch& s) {
  const size_t w = width();
  const float* current = s.current.data() + static_cast<size_t>(i) * w;
  if (u.chunk >= 0) {
    const size_t at = state(chunk, row, u.kv_head * group() + i % group());
    partial_m_[at] = m, partial_l_[at] = l;
    std::memcpy(partial_.data() + at * w, current, w * sizeof(float));
    return;
  }
  float* merged = s.merged.data() + static_cast<size_t>(i) * w;
  if (s.first) {
    s.m[i] = m, s.l[i] = l;
    std::memcpy(merged, current, w * sizeof(float));
  } else {
    k_.merge(merged, &s.m[i], &s.l[i], current, m, l, static_cast<int>(w));
  }
}

template <typename T>
void Attention<T>::attend_prefix(const Unit& u, const float* q, Scratch& s) {
  const int n_q = n_queries(u);
  const size_t w = width();
  // Queries that share a head of the bank: all of the unit, or one by one.
  const int step = prefix_per_query_head_ ? 1 : n_q;
  for (int base = 0; base < prefix_length_; base += kChunk) {
    const int n = std::min(kChunk, prefix_length_ - base);
    std::memset(s.current.data(), 0, static_cast<size_t>(n_q) * w * sizeof(float));
    float m[kMaxQueries], l[kMaxQueries];
    for (int first = 0; first < n_q; first += step) {
      const int head = prefix_per_query_head_ ? u.kv_head * group() + first % group() : u.kv_head;
      float* score = s.scores.data() + first * kChunk;
      scores(q + static_cast<ptrdiff_t>(first) * c_.head_dim, step,
             u.prefix->k_blocks(head, base / kLanes), (n + kLanes - 1) / kLanes, score, kChunk);
      for (int j = first; j < first + step; ++j)
        l[j] = k_.softmax_chunk(s.scores.data() + j * kChunk, 0, n, &m[j]);
      weighted_sum(score, step, u.prefix->v_row(head, base), u.prefix->v_stride(), n,
                   s.current.data() + static_cast<size_t>(first) * w);
    }
    for (int j = 0; j < n_q; ++j) keep(u, u.block.first, j, 0, m[j], l[j], s);
    s.first = false;
  }
}

}  // namespace evalrun::engine::cpu
