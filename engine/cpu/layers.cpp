#include "engine/cpu/layers.h"

#include <algorithm>
#include <cstring>

#include "engine/cpu/norm.h"

namespace evalrun::engine::cpu {

template <typename T>
Layers<T>::Layers(const NodeWeights& weights, ForwardThreads& threads, Workspace& workspace,
                  KvMemory<T>& kv, int max_tokens)
    : weights_(weights),
      c_(weights.model().config()),
      kernels_(threads.kernels()),
      threads_(threads),
      w_(workspace),
      kv_(kv),
      rope_(make_rope_table(c_, max_tokens)),
      attention_(c_, kernels_, kv.blocks(), threads.size(), max_tokens),
      low_rank_(static_cast<size_t>(threads.size())),
      keys_(static_cast<size_t>(threads.size())) {
  for (Rows& keys : keys_) keys.ensure(kLanes, static_cast<size_t>(c_.head_dim));
}

// --- one forward ---------------------------------------------------------------------------------

template <typename T>
void Layers<T>::begin(const ForwardPlan& plan, const ForwardRequest& request) {
  plan_ = &plan;
  request_ = &request;
  attention_.begin(plan, request.prefix);
  next_unit_.store(0, std::memory_order_relaxed);
}

template <typename T>
bool Layers<T>::run(int thread) {
  embed(thread);
  for (int l = 0; l < c_.n_layers; ++l) {
    keep_residual(thread, l);
    if (!skipped(&SkipSet::attention, l)) {
      attention_block(thread, l);
      if (ends_at(l)) return false;
    }
    if (!skipped(&SkipSet::mlp, l)) mlp_block(thread, l);
  }
  keep_residual(thread, c_.n_layers);
  return true;
}

template <typename T>
void Layers<T>::embed(int thread) {
  Space& s = space(thread);
  threads_.for_rows(thread, [&](size_t i) {
    const PlanRow& r = plan_->rows()[i];
    const size_t d = s.x.width;
    if (r.embedding >= 0) {
      const float* in = request_->embeddings.row(r.embedding).data();
      if (c_.paired_input) std::memcpy(s.e.row(i), in, d * sizeof(float));
      std::memcpy(s.x.row(i), c_.paired_input ? in + d : in, d * sizeof(float));
    } else {
      weights_.of(thread).embed(r.token, {s.x.row(i), d});
    }
  });
}

// Row ranges are the same in every row phase, so a row's residual needs no barrier of its own.
template <typename T>
void Layers<T>::keep_residual(int thread, int l) {
  for (size_t j = 0; j < w_.residual.size(); ++j)
    if (request_->residual_layers[j] == l && (!threads_.own() || thread == 0))
      threads_.for_rows(thread, [&](size_t i) {
        Rows& x = space(thread).x;
        std::memcpy(w_.residual[j].row(i), x.row(i), x.width * sizeof(float));
      });
}

template <typename T>
bool Layers<T>::skipped(const std::vector<bool> SkipSet::*set, int l) const {
  return request_->skip != nullptr && !(request_->skip->*set).empty() &&
         (request_->skip->*set)[static_cast<size_t>(l)];
}

template <typename T>
size_t Layers<T>::bytes() const {
  size_t sum = attention_.bytes();
  for (const LowRankRows& rows : low_rank_) sum += rows.bytes();
  for (const Rows& keys : keys_) sum += keys.bytes();
  return sum;
}

// --- one layer -----------------------------------------------------------------------------------

template <typename T>
void Layers<T>::attention_block(int thread, int l) {
  const LayerWeights& w = layer(thread, l);
  Space& s = space(thread);
  threads_.for_rows(thread, [&](size_t i) {
    if (w.embed_norm.empty()) return enter(s, i, w.attn_norm, w.q);
    norm_row(kernels_, c_, w.embed_norm, s.e.row(i), s.h.row(i));
    norm_row(kernels_, c_, w.attn_norm, s.x.row(i), s.h.row(i) + c_.d_model);
    s.in.set(i, w.q, s.h.row(i));
  });
  threads_.mark(thread, &PhaseTimes::norms);
  threads_.row_barrier(thread);
  const MatrixJob qkv[] = {{&w.q, w_.q.row(0), w_.q.ld()},
                           {&w.k, w_.k.row(0), w_.k.ld()},
                           {&w.v, w_.v.row(0), w_.v.ld()}};
  threads_.multiply(qkv, s.in.view(w.q), n(), thread);
  threads_.mark(thread, &PhaseTimes::weights);
  threads_.barrier(thread);
  const LowRankLayer& delta = delta_of(l);
  add_low_rank(thread, {{&delta.q, &w_.q}, {&delta.k, &w_.k}, {&delta.v, &w_.v}}, s.h);
  threads_.for_rows(thread, [&](size_t i) { rotate_row(thread, i, l); });
  if (request_->low_rank != nullptr) {  // the keys below may be of other threads' rows
    threads_.mark(thread, &PhaseTimes::norms);
    threads_.barrier(thread);
  }
  write_keys(thread, l);
  threads_.mark(thread, &PhaseTimes::norms);
  threads_.row_barrier(thread);
  if (ends_at(l)) return;
  attend(thread, l);
  threads_.row_barrier(thread);
  add_to_stream(thread, w.o, w.o_bias, delta.o, w_.mixed);
}

// Rounded for the product with o.
template <typename T>
void Layers<T>::attend(int thread, int l) {
  Space& s = space(thread);
  const int units = attention_.units(l);
  for (int u; (u = next_unit_.fetch_add(1, std::memory_order_relaxed)) < units;)
    attention_.run(u, l, thread, s.queries.row(0), kv_.cache(l),
                   kv_.rows(threads_.space(thread), l), kv_.prefix(l), w_.mixed.row(0),
                   w_.mixed.ld());
  threads_.mark(thread, &PhaseTimes::attention);
  threads_.barrier(thread);
  if (thread == 0) next_unit_.store(0, std::memory_order_relaxed);  // barriers follow before use
  const bool merge = attention_.must_merge(l);
  threads_.for_rows(thread, [&](size_t i) {
    float* mixed = threads_.own() ? s.h.row(i) : w_.mixed.row(i);
    if (merge)
      attention_.merge_row(static_cast<int>(i), mixed);
    else
      mixed = w_.mixed.row(i);
    s.in.set(i, layer(thread, l).o, mixed);
  });
  threads_.mark(thread, &PhaseTimes::attention);
}

template <typename T>
void Layers<T>::mlp_block(int thread, int l) {
  const LayerWeights& w = layer(thread, l);
  Space& s = space(thread);
  threads_.for_rows(thread, [&](size_t i) { enter(s, i, w.ffn_norm, w.gate); });
  threads_.mark(thread, &PhaseTimes::norms);
  threads_.row_barrier(thread);
  // Biases and deltas come between the products and silu, row by row.
  const bool plain = !c_.mlp_bias && request_->low_rank == nullptr;
  gate_and_up(thread, w, s.in.view(w.gate), plain);
  threads_.barrier(thread);
  const LowRankLayer& delta = delta_of(l);
  add_low_rank(thread, {{&delta.gate, &w_.gate}, {&delta.up, &w_.up}}, s.h);
  threads_.for_rows(thread, [&](size_t i) {
    float *gate = w_.gate.row(i), *up = w_.up.row(i);
    if (plain) return s.in.set(i, w.down, gate);
    add_bias(gate, w.gate_bias), add_bias(up, w.up_bias);
    // In place: the product's input is needed again for its delta.
    kernels_.silu_mul(gate, up, c_.d_ffn, gate);
    s.in.set(i, w.down, gate);
  });
  threads_.mark(thread, &PhaseTimes::norms);
  threads_.row_barrier(thread);
  add_to_stream(thread, w.down, w.down_bias, delta.down, w_.gate);
}

// Gate and up of the same channels, so that silu(gate) * up needs nothing of another thread.
template <typename T>
void Layers<T>::gate_and_up(int thread, const LayerWeights& w, const InputRows& in,
                            bool with_silu) {
  Rows &gate = w_.gate, &up = w_.up;
  threads_.for_panels(
      w.gate.panels(), w.gate.size() + w.up.size(), n(), thread, [&](int begin, int end) {
        const int first = begin * kLanes, width = std::min(end * kLanes, c_.d_ffn) - first;
        threads_.multiply_panels(w.gate, begin, end - begin, in, n(), gate.row(0) + first,
                                 gate.ld());
        threads_.multiply_panels(w.up, begin, end - begin, in, n(), up.row(0) + first, up.ld());
        threads_.mark(thread, &PhaseTimes::weights);
        for (size_t i = 0; with_silu && i < static_cast<size_t>(n()); ++i)
          kernels_.silu_mul(gate.row(i) + first, up.row(i) + first, width, gate.row(i) + first);
        threads_.mark(thread, &PhaseTimes::norms);
      });
}

// x += w in + bias. `unrounded`: the same inputs, for the low-rank update.
template <typename T>
void Layers<T>::add_to_stream(int thread, const WeightMatrix& w, const std::vector<float>& bias,
                              const LowRankFactor& delta, Rows& unrounded) {
  Space& s = space(thread);
  const MatrixJob job = {&w, w_.y.row(0), w_.y.ld()};
  threads_.multiply({&job, 1}, s.in.view(w), n(), thread);
  threads_.mark(thread, &PhaseTimes::weights);
  threads_.barrier(thread);
  add_low_rank(thread, {{&delta, &w_.y}}, unrounded);
  threads_.for_rows(thread, [&](size_t i) {
    add_bias(w_.y.row(i), bias);
    kernels_.add(s.x.row(i), w_.y.row(i), c_.d_model);
  });
}

// --- one row -------------------------------------------------------------------------------------

// A sublayer's input, rounded for the product with `next`.
template <typename T>
void Layers<T>::enter(Space& s, size_t i, const std::vector<float>& norm,
                      const WeightMatrix& next) {
  norm_row(kernels_, c_, norm, s.x.row(i), s.h.row(i));
  s.in.set(i, next, s.h.row(i));
}

// Queries and values of one row: biases, norms of heads, rotation; V to the step's store.
template <typename T>
void Layers<T>::rotate_row(int thread, size_t i, int l) {
  const LayerWeights& w = layer(thread, l);
  Space& s = space(thread);
  float *q = w_.q.row(i), *v = w_.v.row(i);
  add_bias(q, w.q_bias), add_bias(v, w.v_bias);
  const size_t width = static_cast<size_t>(group() * c_.head_dim);
  for (size_t head = 0; head < static_cast<size_t>(c_.n_kv_heads); ++head)
    rotate(q + head * width, group(), w.q_norm, plan_->rows()[i].position,
           s.queries.data.data() + (head * static_cast<size_t>(n()) + i) * width);
  kv_.rows(threads_.space(thread), l)
      .write_values(kernels_, plan_->n_kept() + static_cast<int>(i), v);
}

// This thread's part of the keys of all rows, to the step's store.
template <typename T>
void Layers<T>::write_keys(int thread, int l) {
  const int kept = plan_->n_kept(), end = kept + n(), first_block = kept / kLanes;
  const int blocks = (end + kLanes - 1) / kLanes - first_block;
  const auto mine = threads_.part(blocks * c_.n_kv_heads, thread);
  for (int i = mine.begin; i < mine.end; ++i) {
    const int begin = (first_block + i / c_.n_kv_heads) * kLanes;
    write_key_block(thread, l, i % c_.n_kv_heads, std::max(begin, kept),
                    std::min(begin + kLanes, end));
  }
}

// One head of the rows at positions [begin, end) of the store. What other threads read stays as it
// is: only the bias is added in place, to numbers of this block.
template <typename T>
void Layers<T>::write_key_block(int thread, int l, int head, int begin, int end) {
  const LayerWeights& w = layer(thread, l);
  Rows& keys = keys_[static_cast<size_t>(thread)];
  const int from = head * c_.head_dim;
  for (int position = begin; position < end; ++position) {
    const auto i = static_cast<size_t>(position - plan_->n_kept());
    float* k = w_.k.row(i) + from;
    if (!w.k_bias.empty()) kernels_.add(k, w.k_bias.data() + from, c_.head_dim);
    rotate(k, 1, w.k_norm, plan_->rows()[i].position,
           keys.row(static_cast<size_t>(position - begin)));
  }
  kv_.rows(threads_.space(thread), l)
      .write_keys(kernels_, head, begin, end - begin, keys.row(0), keys.ld());
}

// n neighbouring heads of one row, normed where the model does that, rotated.
template <typename T>
void Layers<T>::rotate(const float* heads, int n, const std::vector<float>& norm, int position,
                       float* to) const {
  for (int j = 0; j < n && !norm.empty(); ++j) {
    const ptrdiff_t at = static_cast<ptrdiff_t>(j) * c_.head_dim;
    kernels_.rms_norm(heads + at, norm.data(), c_.head_dim, c_.norm_eps, to + at);
  }
  const size_t row = static_cast<size_t>(position) * static_cast<size_t>(rope_.half_dim);
  kernels_.rotate(norm.empty() ? heads : to, rope_.cos.data() + row, rope_.sin.data() + row,
                  rope_.half_dim, n, to);
}

template <typename T>
void Layers<T>::add_bias(float* y, const std::vector<float>& bias) const {
  if (!bias.empty()) kernels_.add(y, bias.data(), static_cast<int>(bias.size()));
}

// Of this thread's rows.
template <typename T>
void Layers<T>::add_low_rank(int thread, std::initializer_list<LowRankRows::Job> jobs, Rows& x) {
  if (request_->low_rank != nullptr)
    low_rank_[static_cast<size_t>(thread)].add(kernels_, *plan_, threads_.share(n(), thread), jobs,
                                               x);
}

template <typename T>
const LowRankLayer& Layers<T>::delta_of(int l) const {
  static const LowRankLayer none;
  return request_->low_rank == nullptr ? none : request_->low_rank->layers[static_cast<size_t>(l)];
}

template class Layers<float>;
template class Layers<uint16_t>;
template class Layers<int8_t>;
template class Layers<Fp8>;
template class Layers<uint8_t>;

}  // namespace evalrun::engine::cpu
