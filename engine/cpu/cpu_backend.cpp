// The vector path: kernels of one instruction set on a thread pool. One parallel region per
// forward; inside it phases separated by barriers:
//   rows: residual add, norm, rounding | q, k, v | rows: rope, K/V | attention | rows: rounding | o
//   | rows: residual add, norm, rounding | gate, up, silu | rows: rounding | down | ...
// Products are split over output channels, attention over units, row phases over rows, so no sum is
// ever split between threads and results do not depend on their number.
//
// A row phase costs less than a barrier when there are few rows. Then every thread does all rows
// for itself, in a workspace of its own, and the barrier behind the phase is left out.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/backend.h"
#include "engine/base/error.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kv_store.h"
#include "engine/cpu/low_rank_rows.h"
#include "engine/cpu/prepared_rows.h"
#include "engine/cpu/thread_pool.h"
#include "engine/row_program.h"
#include "engine/sampling.h"

namespace evalrun::engine {
namespace {

using cpu::kLanes;
using cpu::KvStore;
using cpu::PreparedRows;
using cpu::Rows;

constexpr int kOwnRows = 3;  // up to so many rows, every thread does row phases for itself

struct MatrixJob {
  const WeightMatrix* w;
  float* y;
  int ldy;
};

template <typename T>
class CpuBackend final : public Backend {
 public:
  CpuBackend(std::shared_ptr<const Model> model, const SessionOptions& options)
      : model_(std::move(model)),
        c_(model_->config()),
        kernels_(options.one_isa ? *cpu::one_isa_kernels(options.isa)
                                 : *cpu::find_kernels(options.isa)),
        pool_(options.n_threads),
        rope_(make_rope_table(c_, options.max_tokens)),
        attention_(c_, kernels_, pool_.size(), options.max_tokens),
        measure_(options.measure_phases),
        spaces_(static_cast<size_t>(pool_.size())),
        best_(static_cast<size_t>(pool_.size())),
        low_rank_(static_cast<size_t>(pool_.size())) {
    const size_t layers = static_cast<size_t>(c_.n_layers);
    cache_.resize(layers);
    cache_pointers_.resize(layers);
    for (size_t l = 0; l < layers; ++l) {
      cache_[l].resize(static_cast<size_t>(options.n_sequences));
      for (KvStore<T>& store : cache_[l]) {
        store.configure(c_.n_kv_heads, c_.head_dim);
        store.reserve(options.max_tokens);
        cache_pointers_[l].push_back(&store);
      }
    }
    for (Space& s : spaces_) {
      s.step.resize(layers);
      for (KvStore<T>& store : s.step) store.configure(c_.n_kv_heads, c_.head_dim);
    }
    prefix_.resize(layers);
  }

  std::string isa() const override { return kernels_.name; }
  int n_threads() const override { return pool_.size(); }

  void forward(const ForwardPlan& plan, const ForwardRequest& request, ForwardResult& result,
               Answers& answers) override {
    plan_ = &plan;
    request_ = &request;
    prepare();
    pool_.run([this](int thread) { run(thread); });
    result.logits = {logits_.data.data(), static_cast<int>(plan.logit_rows().size()),
                     c_.n_logits()};
    result.hidden = {hidden_.data.data(), static_cast<int>(plan.hidden_rows().size()), c_.d_model};
    residual_views_.clear();
    for (Rows& r : residual_) residual_views_.push_back({r.row(0), plan.n_rows(), c_.d_model});
    result.residual = residual_views_;
    finish_top(answers);
  }

  void commit(std::span<const int> rows, int first, int sequence) override {
    for (size_t l = 0; l < cache_.size(); ++l)
      for (size_t j = 0; j < rows.size(); ++j)
        cache_[l][static_cast<size_t>(sequence)].copy_position(spaces_[0].step[l], rows[j],
                                                               first + static_cast<int>(j));
  }

  void copy_sequence(int from, int to, int length) override {
    for (auto& layer : cache_)
      for (int p = 0; p < length; ++p)
        layer[static_cast<size_t>(to)].copy_position(layer[static_cast<size_t>(from)], p, p);
  }

  InputView compute(const RowProgram& program, int result) override {
    return computed_.run(program, result, *model_,
                         {[this](const WeightMatrix& w, MatrixView x) { return multiply(w, x); },
                          kernels_.silu_mul, kernels_.lstm});
  }
  MatrixView multiply(const WeightMatrix& w, InputView x) override {
    const size_t rows = static_cast<size_t>(x.rows);
    product_in_.ensure(kernels_, w.storage(), rows, w.in());
    for (int i = 0; i < x.rows; ++i) product_in_.set(static_cast<size_t>(i), w, x.row(i).data());
    product_.ensure(rows, static_cast<size_t>(w.out()));  // x may be the last product
    const MatrixJob job = {&w, product_.row(0), product_.ld()};
    pool_.run([&](int thread) { multiply({&job, 1}, product_in_.view(w), x.rows, thread); });
    return {product_.row(0), x.rows, w.out()};
  }

  void read_kv(int layer, int position, int sequence, std::span<float> k,
               std::span<float> v) const override {
    cache_[static_cast<size_t>(layer)][static_cast<size_t>(sequence)].read(position, k.data(),
                                                                           v.data());
  }

  PhaseTimes phases() const override { return times_; }
  size_t kv_bytes_per_token() const override {
    return static_cast<size_t>(c_.n_layers) * cache_[0][0].bytes_per_position();
  }
  size_t kv_bytes() const override {
    size_t bytes = 0;
    for (const auto& layer : cache_)
      for (const KvStore<T>& store : layer) bytes += store.bytes();
    return bytes;
  }
  size_t workspace_bytes() const override {
    size_t bytes = attention_.bytes() + head_in_.bytes() + product_in_.bytes();
    for (const Rows* r : {&q_, &k_, &v_, &mixed_, &y_, &gate_, &up_, &hidden_, &logits_, &product_})
      bytes += r->bytes();
    for (const Rows& r : residual_) bytes += r.bytes();
    for (const Space& s : spaces_) {
      bytes += s.x.bytes() + s.e.bytes() + s.h.bytes() + s.queries.bytes() + s.in.bytes();
      for (const KvStore<T>& store : s.step) bytes += store.bytes();
    }
    for (const cpu::LowRankRows& rows : low_rank_) bytes += rows.bytes();
    for (const Best& b : best_) bytes += b.logits.bytes() + b.value.bytes() + b.block.bytes();
    return bytes;
  }

 private:
  // What row phases read and write; shared by the threads (the first one), or each thread's own.
  struct Space {
    Rows x;                        // residual stream
    Rows e;                        // embeddings beside it, in models with paired input
    Rows h;                        // one sublayer's input, one row per row
    Rows queries;                  // [kv head][row][group * head_dim], rotated
    PreparedRows in;               // rounded input of the next product
    std::vector<KvStore<T>> step;  // [layer] keys and values of the rows
  };
  // Argmax over a thread's part of the vocabulary.
  struct Best {
    Rows logits;        // a strip of logits of all rows
    Rows value, block;  // [row][16] best value of each lane and the block of 16 it was in
  };

  int n() const { return plan_->n_rows(); }
  int group() const { return c_.n_heads / c_.n_kv_heads; }
  Space& space(int thread) { return spaces_[own_ ? static_cast<size_t>(thread) : 0]; }

  void prepare() {
    const size_t rows = static_cast<size_t>(n());
    const size_t d = static_cast<size_t>(c_.d_model);
    // Biases and low-rank deltas are added in place to what all threads read.
    own_ = pool_.size() > 1 && n() <= kOwnRows && !c_.qkv_bias && !c_.o_bias && !c_.mlp_bias &&
           request_->low_rank == nullptr && plan_->n_kept() == 0;
    const size_t used = own_ ? spaces_.size() : 1;
    const size_t widest = static_cast<size_t>(std::max({c_.input_width(), c_.q_dim(), c_.d_ffn}));
    for (size_t i = 0; i < used; ++i) {
      Space& s = spaces_[i];
      s.x.ensure(rows, d);
      if (c_.paired_input) s.e.ensure(rows, d);
      s.h.ensure(rows, static_cast<size_t>(std::max(c_.input_width(), c_.q_dim())));
      s.queries.ensure(rows, static_cast<size_t>(c_.q_dim()));
      s.in.ensure(kernels_, model_->layer(0).q.storage(), rows, static_cast<int>(widest));
      for (KvStore<T>& store : s.step) store.grow(plan_->n_kept() + n());
    }
    q_.ensure(rows, static_cast<size_t>(c_.q_dim()));
    mixed_.ensure(rows, static_cast<size_t>(c_.q_dim()));
    k_.ensure(rows, static_cast<size_t>(c_.kv_dim()));
    v_.ensure(rows, static_cast<size_t>(c_.kv_dim()));
    y_.ensure(rows, d);
    gate_.ensure(rows, static_cast<size_t>(c_.d_ffn));
    up_.ensure(rows, static_cast<size_t>(c_.d_ffn));
    hidden_.ensure(plan_->hidden_rows().size(), d);
    const size_t heads = plan_->logit_rows().size() + plan_->answer_rows().size();
    head_in_.ensure(kernels_, model_->head().storage(), heads, c_.d_model);
    normed_.ensure(heads, d);
    logits_.ensure(plan_->logit_rows().size(), static_cast<size_t>(c_.n_logits()));
    if (const size_t top = plan_->answer_rows().size(); top > 0) {
      strip_panels_ = top <= 16 ? 48 : 12;  // so that a strip of logits stays in the cache
      for (Best& b : best_) {
        b.logits.ensure(top, static_cast<size_t>(strip_panels_) * kLanes);
        b.value.ensure(top, kLanes);
        b.block.ensure(top, kLanes);
      }
    }
    residual_.resize(request_->residual_layers.size());
    for (Rows& r : residual_) r.ensure(rows, d);
    if (request_->prefix != nullptr) load_prefix(*request_->prefix);
    attention_.begin(*plan_, request_->prefix);
    next_unit_.store(0, std::memory_order_relaxed);
    next_strip_.store(0, std::memory_order_relaxed);
    if (measure_) times_ = {}, mark_ = Clock::now();
  }

  void load_prefix(const PrefixBank& bank) {
    if (bank.id != 0 && bank.id == prefix_id_) return;
    prefix_id_ = bank.id;
    const int heads = bank.heads == 0 ? c_.n_kv_heads : bank.heads;
    for (size_t l = 0; l < prefix_.size(); ++l) {
      prefix_[l] = KvStore<T>();  // another bank may have had other heads
      prefix_[l].configure(heads, c_.head_dim);
      prefix_[l].reserve(bank.length);
      for (int p = 0; p < bank.length; ++p) {
        const size_t at = static_cast<size_t>(p) * static_cast<size_t>(heads * c_.head_dim);
        prefix_[l].write(p, bank.k[l].data() + at, bank.v[l].data() + at);
      }
    }
  }

  // Books the time since the last call on a phase; of the first thread only.
  void mark(int thread, double PhaseTimes::*phase) {
    if (!measure_ || thread != 0) return;
    const auto now = Clock::now();
    times_.*phase += std::chrono::duration<double, std::milli>(now - mark_).count();
    mark_ = now;
  }
  void barrier(int thread) {
    pool_.barrier();
    mark(thread, &PhaseTimes::waits);
  }
  // Behind a row phase: others need the rows, unless everybody has them.
  void row_barrier(int thread) {
    if (!own_) barrier(thread);
  }
  template <typename F>
  void for_rows(int thread, const F& f) {
    const auto [begin, end] = own_ ? cpu::ThreadPool::Range{0, n()} : pool_.share(n(), thread);
    for (int i = begin; i < end; ++i) f(static_cast<size_t>(i));
  }

  // Each thread computes its share of all panels of the jobs.
  void multiply(std::span<const MatrixJob> jobs, const cpu::InputRows& in, int rows,
                int thread) const {
    int total = 0;
    for (const MatrixJob& j : jobs) total += j.w->panels();
    const auto [begin, end] = pool_.share(total, thread);
    int first = 0;
    for (const MatrixJob& j : jobs) {
      const int lo = std::max(begin - first, 0), hi = std::min(end - first, j.w->panels());
      if (lo < hi) multiply_panels(*j.w, lo, hi - lo, in, rows, j.y + lo * kLanes, j.ldy);
      first += j.w->panels();
    }
  }
  void multiply_panels(const WeightMatrix& w, int first, int count, const cpu::InputRows& in,
                       int rows, float* y, int ldy) const {
    cpu::multiply(kernels_, w.storage(),
                  {in, rows, w.panel(first), w.panel_bytes(), count, w.in(),
                   w.out() - first * kLanes, y, ldy, kernels_.one_stream});
  }

  void add_bias(float* y, const std::vector<float>& bias) const {
    if (!bias.empty()) kernels_.add(y, bias.data(), static_cast<int>(bias.size()));
  }

  // Of this thread's rows.
  void add_low_rank(int thread, std::initializer_list<cpu::LowRankRows::Job> jobs, Rows& x) {
    if (request_->low_rank != nullptr)
      low_rank_[static_cast<size_t>(thread)].add(kernels_, *plan_, pool_.share(n(), thread), jobs,
                                                 x);
  }
  const LowRankLayer& delta_of(int l) const {
    static const LowRankLayer none;
    return request_->low_rank == nullptr ? none
                                         : request_->low_rank->layers[static_cast<size_t>(l)];
  }
  bool skipped(const std::vector<bool> SkipSet::*set, int l) const {
    return request_->skip != nullptr && !(request_->skip->*set).empty() &&
           (request_->skip->*set)[static_cast<size_t>(l)];
  }

  void run(int thread) {
    Space& s = space(thread);
    for_rows(thread, [&](size_t i) {
      const PlanRow& r = plan_->rows()[i];
      const size_t d = s.x.width;
      if (r.embedding >= 0) {
        const float* in = request_->embeddings.row(r.embedding).data();
        if (c_.paired_input) std::memcpy(s.e.row(i), in, d * sizeof(float));
        std::memcpy(s.x.row(i), c_.paired_input ? in + d : in, d * sizeof(float));
      } else {
        model_->embed(r.token, {s.x.row(i), d});
      }
    });
    for (int l = 0; l < c_.n_layers; ++l) {
      keep_residual(thread, l);
      if (!skipped(&SkipSet::attention, l)) {
        attention_block(thread, l);
        if (plan_->kv_only() && l == c_.n_layers - 1) return;
      }
      if (!skipped(&SkipSet::mlp, l)) mlp_block(thread, l);
    }
    keep_residual(thread, c_.n_layers);
    outputs(thread);
  }

  // Row ranges are the same in every row phase, so a row's residual needs no barrier of its own.
  void keep_residual(int thread, int l) {
    for (size_t j = 0; j < residual_.size(); ++j)
      if (request_->residual_layers[j] == l && (!own_ || thread == 0))
        for_rows(thread, [&](size_t i) {
          Rows& x = space(thread).x;
          std::memcpy(residual_[j].row(i), x.row(i), x.width * sizeof(float));
        });
  }

  void norm(const std::vector<float>& weights, const float* x, float* to) const {
    if (weights.empty())  // a drafter without this norm
      std::memcpy(to, x, static_cast<size_t>(c_.d_model) * sizeof(float));
    else
      kernels_.rms_norm(x, weights.data(), c_.d_model, c_.norm_eps, to);
  }
  void norm_row(Space& s, size_t i, const std::vector<float>& weights, const WeightMatrix& next) {
    norm(weights, s.x.row(i), s.h.row(i));
    s.in.set(i, next, s.h.row(i));
  }

  void attention_block(int thread, int l) {
    const LayerWeights& w = model_->layer(l);
    Space& s = space(thread);
    for_rows(thread, [&](size_t i) {
      if (w.embed_norm.empty()) return norm_row(s, i, w.attn_norm, w.q);
      norm(w.embed_norm, s.e.row(i), s.h.row(i));
      norm(w.attn_norm, s.x.row(i), s.h.row(i) + c_.d_model);
      s.in.set(i, w.q, s.h.row(i));
    });
    mark(thread, &PhaseTimes::norms);
    row_barrier(thread);
    const MatrixJob qkv[] = {
        {&w.q, q_.row(0), q_.ld()}, {&w.k, k_.row(0), k_.ld()}, {&w.v, v_.row(0), v_.ld()}};
    multiply(qkv, s.in.view(w.q), n(), thread);
    mark(thread, &PhaseTimes::weights);
    barrier(thread);
    const LowRankLayer& delta = delta_of(l);
    add_low_rank(thread, {{&delta.q, &q_}, {&delta.k, &k_}, {&delta.v, &v_}}, s.h);
    for_rows(thread, [&](size_t i) { rotate_row(s, i, l); });
    mark(thread, &PhaseTimes::norms);
    row_barrier(thread);
    if (plan_->kv_only() && l == c_.n_layers - 1) return;
    const int units = attention_.units(l);
    for (int u; (u = next_unit_.fetch_add(1, std::memory_order_relaxed)) < units;)
      attention_.run(u, l, thread, s.queries.row(0), cache_pointers_[static_cast<size_t>(l)].data(),
                     s.step[static_cast<size_t>(l)], prefix_[static_cast<size_t>(l)], mixed_.row(0),
                     mixed_.ld());
    mark(thread, &PhaseTimes::attention);
    barrier(thread);
    if (thread == 0) next_unit_.store(0, std::memory_order_relaxed);  // barriers follow before use
    const bool merge = attention_.must_merge(l);
    for_rows(thread, [&](size_t i) {
      float* mixed = own_ ? s.h.row(i) : mixed_.row(i);
      if (merge)
        attention_.merge_row(static_cast<int>(i), mixed);
      else
        mixed = mixed_.row(i);
      s.in.set(i, w.o, mixed);
    });
    mark(thread, &PhaseTimes::attention);
    row_barrier(thread);
    const MatrixJob o = {&w.o, y_.row(0), y_.ld()};
    multiply({&o, 1}, s.in.view(w.o), n(), thread);
    mark(thread, &PhaseTimes::weights);
    barrier(thread);
    add_low_rank(thread, {{&delta.o, &y_}}, mixed_);
    for_rows(thread, [&](size_t i) {
      add_bias(y_.row(i), w.o_bias);
      kernels_.add(s.x.row(i), y_.row(i), c_.d_model);
    });
  }

  // Queries, keys and values of one row: biases, norms of heads, rotation; K and V to the step's
  // store (neighbouring rows of a K block may be written by other threads: other elements of it).
  void rotate_row(Space& s, size_t i, int l) {
    const LayerWeights& w = model_->layer(l);
    add_bias(q_.row(i), w.q_bias), add_bias(k_.row(i), w.k_bias), add_bias(v_.row(i), w.v_bias);
    const int position = plan_->rows()[i].position;
    const size_t width = static_cast<size_t>(group() * c_.head_dim);
    for (int head = 0; head < c_.n_kv_heads; ++head) {
      float* to = s.queries.data.data() +
                  (static_cast<size_t>(head) * static_cast<size_t>(n()) + i) * width;
      std::memcpy(to, q_.row(i) + static_cast<size_t>(head) * width, width * sizeof(float));
      for (int j = 0; j < group(); ++j) rotate(to + j * c_.head_dim, w.q_norm, position);
    }
    // In own mode all threads read k_; h is free by now.
    float* k = s.h.row(i);
    std::memcpy(k, k_.row(i), k_.width * sizeof(float));
    for (int head = 0; head < c_.n_kv_heads; ++head)
      rotate(k + head * c_.head_dim, w.k_norm, position);
    s.step[static_cast<size_t>(l)].write(plan_->n_kept() + static_cast<int>(i), k, v_.row(i));
  }

  void rotate(float* x, const std::vector<float>& norm, int position) const {
    if (!norm.empty()) kernels_.rms_norm(x, norm.data(), c_.head_dim, c_.norm_eps, x);
    const size_t row = static_cast<size_t>(position) * static_cast<size_t>(rope_.half_dim);
    cpu::rope(x, rope_.cos.data() + row, rope_.sin.data() + row, rope_.half_dim);
  }

  void mlp_block(int thread, int l) {
    const LayerWeights& w = model_->layer(l);
    Space& s = space(thread);
    for_rows(thread, [&](size_t i) { norm_row(s, i, w.ffn_norm, w.gate); });
    mark(thread, &PhaseTimes::norms);
    row_barrier(thread);
    // Biases and deltas come between the products and silu, row by row.
    const bool plain = !c_.mlp_bias && request_->low_rank == nullptr;
    gate_and_up(thread, w, s.in.view(w.gate), plain);
    barrier(thread);
    const LowRankLayer& delta = delta_of(l);
    add_low_rank(thread, {{&delta.gate, &gate_}, {&delta.up, &up_}}, s.h);
    for_rows(thread, [&](size_t i) {
      if (plain) return s.in.set(i, w.down, gate_.row(i));
      add_bias(gate_.row(i), w.gate_bias), add_bias(up_.row(i), w.up_bias);
      // In place: the product's input is needed again for its delta.
      kernels_.silu_mul(gate_.row(i), up_.row(i), c_.d_ffn, gate_.row(i));
      s.in.set(i, w.down, gate_.row(i));
    });
    mark(thread, &PhaseTimes::norms);
    row_barrier(thread);
    const MatrixJob down = {&w.down, y_.row(0), y_.ld()};
    multiply({&down, 1}, s.in.view(w.down), n(), thread);
    mark(thread, &PhaseTimes::weights);
    barrier(thread);
    add_low_rank(thread, {{&delta.down, &y_}}, gate_);
    for_rows(thread, [&](size_t i) {
      add_bias(y_.row(i), w.down_bias);
      kernels_.add(s.x.row(i), y_.row(i), c_.d_model);
    });
  }

  // Gate and up of the same channels, so that silu(gate) * up needs nothing of another thread.
  void gate_and_up(int thread, const LayerWeights& w, const cpu::InputRows& in, bool with_silu) {
    const auto [begin, end] = pool_.share(w.gate.panels(), thread);
    const int first = begin * kLanes, width = std::min(end * kLanes, c_.d_ffn) - first;
    if (width <= 0) return;
    multiply_panels(w.gate, begin, end - begin, in, n(), gate_.row(0) + first, gate_.ld());
    multiply_panels(w.up, begin, end - begin, in, n(), up_.row(0) + first, up_.ld());
    mark(thread, &PhaseTimes::weights);
    for (size_t i = 0; with_silu && i < static_cast<size_t>(n()); ++i)
      kernels_.silu_mul(gate_.row(i) + first, up_.row(i) + first, width, gate_.row(i) + first);
    mark(thread, &PhaseTimes::norms);
  }

  void outputs(int thread) {
    row_barrier(thread);  // the rows below may belong to other threads' ranges
    Space& s = space(thread);
    const WeightMatrix& w = model_->head();
    const auto& hidden = plan_->hidden_rows();
    const auto& logits = plan_->logit_rows();
    const auto& top = plan_->answer_rows();
    const auto normed = [&](int32_t row, float* to) {
      norm(model_->final_norm(), s.x.row(static_cast<size_t>(row)), to);
    };
    const auto h = pool_.share(static_cast<int>(hidden.size()), thread);
    for (int i = h.begin; i < h.end; ++i)
      normed(hidden[static_cast<size_t>(i)], hidden_.row(static_cast<size_t>(i)));
    // Rows of logits first, then those that want only the argmax.
    const int n_logits = static_cast<int>(logits.size()), n_top = static_cast<int>(top.size());
    const auto mine = pool_.share(n_logits + n_top, thread);
    for (int i = mine.begin; i < mine.end; ++i) {
      const int32_t row =
          i < n_logits ? logits[static_cast<size_t>(i)] : top[static_cast<size_t>(i - n_logits)];
      float* to = normed_.row(static_cast<size_t>(i));
      normed(row, to);
      head_in_.set(static_cast<size_t>(i), w, to);
    }
    mark(thread, &PhaseTimes::head);
    if (n_logits + n_top == 0) return;
    barrier(thread);
    if (n_logits > 0) {
      const MatrixJob job = {&w, logits_.row(0), logits_.ld()};
      multiply({&job, 1}, head_in_.view(w), n_logits, thread);
    }
    if (n_top > 0) find_top(thread, n_logits, n_top);
    mark(thread, &PhaseTimes::head);
  }

  // The argmax of rows [first, first + n) of the prepared head inputs, strip by strip: no row of
  // logits is ever written to memory.
  void find_top(int thread, int first, int rows) {
    const WeightMatrix& w = model_->head();
    Best& best = best_[static_cast<size_t>(thread)];
    for (int i = 0; i < rows; ++i) {
      std::fill_n(best.value.row(static_cast<size_t>(i)), kLanes, -__builtin_inff());
      std::fill_n(best.block.row(static_cast<size_t>(i)), kLanes, 0.0f);
    }
    const cpu::InputRows in = head_in_.view(w).from(first);
    // Whoever is free takes the next strip: the head is the longest product, and the wait for the
    // slower of two equal halves would show. A thread's strips ascend, so the first of equal logits
    // stays the best.
    for (int panel; (panel = next_strip_.fetch_add(1, std::memory_order_relaxed) * strip_panels_) <
                    w.panels();) {
      const int count = std::min(strip_panels_, w.panels() - panel);
      multiply_panels(w, panel, count, in, rows, best.logits.row(0), best.logits.ld());
      const int n_out = std::min(count * kLanes, w.out() - panel * kLanes);
      for (int i = 0; i < rows; ++i) {
        const size_t r = static_cast<size_t>(i);
        float* value = best.value.row(r);
        const float* y = best.logits.row(r);
        // No later logit is greater than NaN, so it stays to be found in finish_top.
        if (!kernels_.track_max(y, n_out, panel, value, best.block.row(r)) &&
            std::any_of(y, y + n_out, [](float x) { return std::isnan(x); }))
          value[0] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }

  void finish_top(Answers& answers) {
    const auto& rows = plan_->answer_rows();
    for (size_t i = 0; i < rows.size(); ++i) {
      float value = -__builtin_inff();
      int32_t token = -1;
      for (Best& b : best_)
        for (int lane = 0; lane < kLanes; ++lane) {
          const float v = b.value.row(i)[lane];
          if (std::isnan(v)) argmax({&v, 1});  // throws, as it does for NaN wherever one stands
          const int32_t t = static_cast<int32_t>(b.block.row(i)[lane]) * kLanes + lane;
          if (token < 0 || v > value || (v == value && t < token)) value = v, token = t;
        }
      answers.set_top(rows[i], token);
    }
  }

  using Clock = std::chrono::steady_clock;

  std::shared_ptr<const Model> model_;
  const ModelConfig& c_;
  const cpu::Kernels& kernels_;
  cpu::ThreadPool pool_;
  RopeTable rope_;
  cpu::Attention<T> attention_;
  const bool measure_;
  std::vector<std::vector<KvStore<T>>> cache_;                  // [layer][sequence]
  std::vector<std::vector<const KvStore<T>*>> cache_pointers_;  // the same
  std::vector<KvStore<T>> prefix_;                              // [layer]
  uint64_t prefix_id_ = 0;                                      // of what is in there
  std::vector<Space> spaces_;                                   // [thread]
  std::vector<Best> best_;                                      // [thread]
  std::vector<cpu::LowRankRows> low_rank_;                      // [thread]
  Rows q_, k_, v_, mixed_, y_, gate_, up_, hidden_, normed_, logits_;
  PreparedRows head_in_;
  HostRows computed_;
  Rows product_;  // of multiply()
  PreparedRows product_in_;
  std::vector<Rows> residual_;
  std::vector<MatrixView> residual_views_;
  bool own_ = false;
  int strip_panels_ = 0;
  std::atomic<int> next_unit_{0}, next_strip_{0};
  const ForwardPlan* plan_ = nullptr;
  const ForwardRequest* request_ = nullptr;
  PhaseTimes times_;
  Clock::time_point mark_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<const Model> model,
                                          const SessionOptions& options) {
  if (options.kv_dtype == "f32")
    return std::make_unique<CpuBackend<float>>(std::move(model), options);
  if (options.kv_dtype == "int8")
    return std::make_unique<CpuBackend<int8_t>>(std::move(model), options);
  return std::make_unique<CpuBackend<uint16_t>>(std::move(model), options);
}

}  // namespace evalrun::engine
