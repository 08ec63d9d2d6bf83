// The vector path: kernels of one instruction set on a thread pool. One parallel region per
// forward; inside it phases separated by barriers:
//   norm | q, k, v | rope, K/V to scratch | attention | o | residual, norm | gate, up | silu | down
//   | residual, next norm
// Work is split over output channels (matrices), rows (norms) or (row, kv head) units (attention),
// so no sum is ever split between threads and results do not depend on their number.
#include <atomic>
#include <cmath>
#include <cstring>

#include "engine/backend.h"
#include "engine/base/aligned.h"
#include "engine/base/error.h"
#include "engine/cpu/arith.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/kv_store.h"
#include "engine/cpu/thread_pool.h"

namespace evalrun::engine {
namespace {

using base::AlignedVector;
using cpu::kChunk;
using cpu::kLanes;
using cpu::KvStore;

constexpr int kMaxGroup = 64;  // query heads per kv head

constexpr size_t round_up(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// A growing buffer of rows; never shrinks, so a steady state allocates nothing.
struct Rows {
  AlignedVector<float> data;
  size_t width = 0;
  void ensure(size_t rows, size_t w) {
    width = w;
    if (data.size() < rows * w) data.resize(rows * w);
  }
  float* row(size_t i) { return data.data() + i * width; }
  int ld() const { return static_cast<int>(width); }
};

struct MatrixJob {
  const WeightMatrix* w;
  const float* x;
  int ldx;
  float* y;
  int ldy;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::shared_ptr<const Model> model, const SessionOptions& options)
      : model_(std::move(model)),
        c_(model_->config()),
        kernels_(cpu::find_kernels(options.isa)),
        pool_(options.n_threads),
        rope_(make_rope_table(c_, options.max_tokens)),
        attention_scratch_(static_cast<size_t>(pool_.size())) {
    EVALRUN_CHECK(kernels_ != nullptr, "no kernels named '{}'", options.isa);
    const size_t layers = static_cast<size_t>(c_.n_layers);
    EVALRUN_CHECK(group() <= kMaxGroup, "{} query heads per kv head", group());
    cache_.resize(static_cast<size_t>(options.n_sequences));
    for (auto& sequence : cache_) {
      sequence.resize(layers);
      for (KvStore& store : sequence) {
        store.configure(c_.n_kv_heads, c_.head_dim);
        store.reserve(options.max_tokens);
      }
    }
    scratch_.resize(layers);
    for (KvStore& store : scratch_) store.configure(c_.n_kv_heads, c_.head_dim);
    prefix_.resize(layers);
    for (KvStore& store : prefix_) store.configure(c_.n_kv_heads, c_.head_dim);
  }

  std::string isa() const override { return kernels_->name; }
  int n_threads() const override { return pool_.size(); }

  void forward(const ForwardPlan& plan, const ForwardRequest& request,
               ForwardResult& result) override {
    plan_ = &plan;
    request_ = &request;
    prepare();
    next_unit_.store(0, std::memory_order_relaxed);
    pool_.run([this](int thread) { run(thread); });
    result.logits = {logits_.data.data(), static_cast<int>(plan.logit_rows().size()),
                     c_.vocab_size};
    result.hidden = {hidden_.data.data(), static_cast<int>(plan.hidden_rows().size()), c_.d_model};
    result.residual.clear();
    for (Rows& r : residual_) result.residual.push_back({r.row(0), plan.n_rows(), c_.d_model});
  }

  void commit(std::span<const int> rows, int first, int sequence) override {
    auto& cache = cache_[static_cast<size_t>(sequence)];
    for (size_t l = 0; l < cache.size(); ++l)
      for (size_t j = 0; j < rows.size(); ++j)
        cache[l].copy_position(scratch_[l], rows[j], first + static_cast<int>(j));
  }

  void copy_sequence(int from, int to, int length) override {
    auto& target = cache_[static_cast<size_t>(to)];
    const auto& source = cache_[static_cast<size_t>(from)];
    for (size_t l = 0; l < target.size(); ++l)
      for (int p = 0; p < length; ++p) target[l].copy_position(source[l], p, p);
  }

  MatrixView head(MatrixView hidden) override {
    logits_.ensure(static_cast<size_t>(hidden.rows), static_cast<size_t>(c_.vocab_size));
    const MatrixJob job = {&model_->head(), hidden.data, hidden.cols, logits_.row(0), logits_.ld()};
    pool_.run([&](int thread) { multiply({&job, 1}, hidden.rows, thread); });
    return {logits_.row(0), hidden.rows, c_.vocab_size};
  }

  void read_kv(int layer, int position, int sequence, std::span<float> k,
               std::span<float> v) const override {
    cache_[static_cast<size_t>(sequence)][static_cast<size_t>(layer)].read(position, k.data(),
                                                                           v.data());
  }

  size_t kv_bytes_per_token() const override {
    return static_cast<size_t>(c_.n_layers) * 2 * static_cast<size_t>(c_.kv_dim()) * sizeof(float);
  }
  size_t kv_bytes() const override {
    size_t bytes = 0;
    for (const auto& sequence : cache_)
      for (const KvStore& store : sequence) bytes += store.bytes();
    return bytes;
  }
  size_t workspace_bytes() const override {
    size_t floats = 0;
    for (const Rows* r :
         {&x_, &h_, &q_, &k_, &v_, &mixed_, &y_, &gate_, &up_, &hidden_, &head_in_, &logits_})
      floats += r->data.size();
    for (const Rows& r : residual_) floats += r.data.size();
    size_t bytes = floats * sizeof(float);
    for (const KvStore& store : scratch_) bytes += store.bytes();
    for (const AttentionScratch& a : attention_scratch_)
      bytes += (a.scores.size() + a.step_scores.size() + a.sums.size()) * sizeof(float);
    return bytes;
  }

 private:
  struct AttentionScratch {
    AlignedVector<float> scores;       // [group][ld] in logical order
    AlignedVector<float> step_scores;  // [group][rows of the forward]
    AlignedVector<float> sums;         // [group][2][padded head_dim]: merged and current chunk
  };

  size_t n() const { return static_cast<size_t>(plan_->n_rows()); }
  int group() const { return c_.n_heads / c_.n_kv_heads; }

  void prepare() {
    const size_t rows = n();
    const size_t d = static_cast<size_t>(c_.d_model);
    x_.ensure(rows, d), h_.ensure(rows, d), y_.ensure(rows, d);
    q_.ensure(rows, static_cast<size_t>(c_.q_dim()));
    mixed_.ensure(rows, static_cast<size_t>(c_.q_dim()));
    k_.ensure(rows, static_cast<size_t>(c_.kv_dim()));
    v_.ensure(rows, static_cast<size_t>(c_.kv_dim()));
    gate_.ensure(rows, static_cast<size_t>(c_.d_ffn));
    up_.ensure(rows, static_cast<size_t>(c_.d_ffn));
    hidden_.ensure(plan_->hidden_rows().size(), d);
    head_in_.ensure(plan_->logit_rows().size(), d);
    logits_.ensure(plan_->logit_rows().size(), static_cast<size_t>(c_.vocab_size));
    residual_.resize(request_->residual_layers.size());
    for (Rows& r : residual_) r.ensure(rows, d);
    for (KvStore& store : scratch_) store.reserve(static_cast<int>(rows));
    size_t longest = 0;
    for (const PlanRow& r : plan_->rows())
      longest = std::max(longest, static_cast<size_t>(r.context + r.visible_count));
    if (request_->prefix != nullptr) {
      longest = std::max(longest, static_cast<size_t>(request_->prefix->length));
      load_prefix(*request_->prefix);
    }
    score_ld_ = round_up(longest, kChunk);
    step_ld_ = round_up(rows, kLanes);
    const size_t g = static_cast<size_t>(group());
    const size_t width = round_up(static_cast<size_t>(c_.head_dim), kLanes);
    for (AttentionScratch& a : attention_scratch_) {
      // Grown with slack: the context grows by a few tokens a step.
      if (a.scores.size() < g * score_ld_) a.scores.resize(g * (score_ld_ + 1024));
      if (a.step_scores.size() < g * step_ld_) a.step_scores.resize(g * step_ld_);
      if (a.sums.size() < g * 2 * width) a.sums.resize(g * 2 * width);
    }
  }

  void load_prefix(const PrefixBank& bank) {
    for (size_t l = 0; l < prefix_.size(); ++l) {
      prefix_[l].reserve(bank.length);
      for (int p = 0; p < bank.length; ++p) {
        const size_t at = static_cast<size_t>(p) * static_cast<size_t>(c_.kv_dim());
        prefix_[l].write(p, bank.k[l].data() + at, bank.v[l].data() + at);
      }
    }
  }

  // Each thread computes its share of all panels of the jobs.
  void multiply(std::span<const MatrixJob> jobs, int rows, int thread) const {
    int total = 0;
    for (const MatrixJob& j : jobs) total += j.w->panels();
    const auto [begin, end] = pool_.share(total, thread);
    int first = 0;
    for (const MatrixJob& j : jobs) {
      const int lo = std::max(begin - first, 0), hi = std::min(end - first, j.w->panels());
      if (lo < hi)
        kernels_->gemm(j.x, j.ldx, rows, reinterpret_cast<const float*>(j.w->panel(lo)), hi - lo, j.w->in(),
                       j.w->out() - lo * kLanes, j.y + lo * kLanes, j.ldy);
      first += j.w->panels();
    }
  }

  template <typename F>
  void for_rows(int thread, const F& f) {
    const auto [begin, end] = pool_.share(static_cast<int>(n()), thread);
    for (int i = begin; i < end; ++i) f(static_cast<size_t>(i));
  }

  void add_bias(float* y, const std::vector<float>& bias) const {
    if (!bias.empty()) kernels_->add(y, bias.data(), static_cast<int>(bias.size()));
  }

  static void add_low_rank(const LowRankFactor& f, const float* x, size_t n_in, float* y,
                           size_t n_out) {
    for (size_t r = 0; r < static_cast<size_t>(f.rank); ++r) {
      float inner = 0;
      for (size_t k = 0; k < n_in; ++k) inner = std::fma(f.a[r * n_in + k], x[k], inner);
      inner = inner * f.scale;
      for (size_t o = 0; o < n_out; ++o)
        y[o] = std::fma(f.b[o * static_cast<size_t>(f.rank) + r], inner, y[o]);
    }
  }
  const LowRankLayer* delta_of(size_t row, int l) const {
    return plan_->rows()[row].low_rank ? &request_->low_rank->layers[static_cast<size_t>(l)]
                                       : nullptr;
  }
  bool skipped(const std::vector<bool> SkipSet::*set, int l) const {
    return request_->skip != nullptr && !(request_->skip->*set).empty() &&
           (request_->skip->*set)[static_cast<size_t>(l)];
  }

  void run(int thread) {
    for_rows(thread, [&](size_t i) {
      const PlanRow& r = plan_->rows()[i];
      if (r.embedding >= 0)
        std::memcpy(x_.row(i), request_->embeddings.row(r.embedding).data(),
                    x_.width * sizeof(float));
      else
        model_->embed(r.token, {x_.row(i), x_.width});
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
      if (request_->residual_layers[j] == l)
        for_rows(thread, [&](size_t i) {
          std::memcpy(residual_[j].row(i), x_.row(i), x_.width * sizeof(float));
        });
  }

  void attention_block(int thread, int l) {
    const LayerWeights& w = model_->layer(l);
    const int rows = static_cast<int>(n());
    for_rows(thread, [&](size_t i) {
      kernels_->rms_norm(x_.row(i), w.attn_norm.data(), c_.d_model, c_.norm_eps, h_.row(i));
    });
    pool_.barrier();
    const MatrixJob qkv[] = {{&w.q, h_.row(0), h_.ld(), q_.row(0), q_.ld()},
                             {&w.k, h_.row(0), h_.ld(), k_.row(0), k_.ld()},
                             {&w.v, h_.row(0), h_.ld(), v_.row(0), v_.ld()}};
    multiply(qkv, rows, thread);
    pool_.barrier();
    for_rows(thread, [&](size_t i) {
      if (const LowRankLayer* delta = delta_of(i, l)) {
        add_low_rank(delta->q, h_.row(i), h_.width, q_.row(i), q_.width);
        add_low_rank(delta->k, h_.row(i), h_.width, k_.row(i), k_.width);
        add_low_rank(delta->v, h_.row(i), h_.width, v_.row(i), v_.width);
      }
      add_bias(q_.row(i), w.q_bias), add_bias(k_.row(i), w.k_bias), add_bias(v_.row(i), w.v_bias);
      const int position = plan_->rows()[i].position;
      for (int head = 0; head < c_.n_heads; ++head)
        rotate(q_.row(i) + head * c_.head_dim, w.q_norm, position);
      for (int head = 0; head < c_.n_kv_heads; ++head)
        rotate(k_.row(i) + head * c_.head_dim, w.k_norm, position);
      // Lanes of one K block belong to neighbouring rows: other threads write other floats of it.
      scratch_[static_cast<size_t>(l)].write(static_cast<int>(i), k_.row(i), v_.row(i));
    });
    if (thread == 0) next_unit_.store(0, std::memory_order_relaxed);
    pool_.barrier();
    if (plan_->kv_only() && l == c_.n_layers - 1) return;
    const int units = rows * c_.n_kv_heads;
    AttentionScratch& scratch = attention_scratch_[static_cast<size_t>(thread)];
    for (int u; (u = next_unit_.fetch_add(1, std::memory_order_relaxed)) < units;)
      attend(l, static_cast<size_t>(u / c_.n_kv_heads), u % c_.n_kv_heads, scratch);
    pool_.barrier();
    const MatrixJob o = {&w.o, mixed_.row(0), mixed_.ld(), y_.row(0), y_.ld()};
    multiply({&o, 1}, rows, thread);
    pool_.barrier();
    for_rows(thread, [&](size_t i) {
      if (const LowRankLayer* delta = delta_of(i, l))
        add_low_rank(delta->o, mixed_.row(i), mixed_.width, y_.row(i), y_.width);
      add_bias(y_.row(i), w.o_bias);
      kernels_->add(x_.row(i), y_.row(i), c_.d_model);
    });
  }

  void mlp_block(int thread, int l) {
    const LayerWeights& w = model_->layer(l);
    const int rows = static_cast<int>(n());
    for_rows(thread, [&](size_t i) {
      kernels_->rms_norm(x_.row(i), w.ffn_norm.data(), c_.d_model, c_.norm_eps, h_.row(i));
    });
    pool_.barrier();
    const MatrixJob gate_up[] = {{&w.gate, h_.row(0), h_.ld(), gate_.row(0), gate_.ld()},
                                 {&w.up, h_.row(0), h_.ld(), up_.row(0), up_.ld()}};
    multiply(gate_up, rows, thread);
    pool_.barrier();
    for_rows(thread, [&](size_t i) {
      if (const LowRankLayer* delta = delta_of(i, l)) {
        add_low_rank(delta->gate, h_.row(i), h_.width, gate_.row(i), gate_.width);
        add_low_rank(delta->up, h_.row(i), h_.width, up_.row(i), up_.width);
      }
      add_bias(gate_.row(i), w.gate_bias), add_bias(up_.row(i), w.up_bias);
      kernels_->silu_mul(gate_.row(i), up_.row(i), c_.d_ffn, gate_.row(i));
    });
    pool_.barrier();
    const MatrixJob down = {&w.down, gate_.row(0), gate_.ld(), y_.row(0), y_.ld()};
    multiply({&down, 1}, rows, thread);
    pool_.barrier();
    for_rows(thread, [&](size_t i) {
      if (const LowRankLayer* delta = delta_of(i, l))
        add_low_rank(delta->down, gate_.row(i), gate_.width, y_.row(i), y_.width);
      add_bias(y_.row(i), w.down_bias);
      kernels_->add(x_.row(i), y_.row(i), c_.d_model);
    });
  }

  void outputs(int thread) {
    pool_.barrier();  // the rows below may belong to other threads' ranges
    const auto normed = [&](std::span<const int32_t> rows, Rows& out) {
      const auto [begin, end] = pool_.share(static_cast<int>(rows.size()), thread);
      for (int i = begin; i < end; ++i)
        kernels_->rms_norm(x_.row(static_cast<size_t>(rows[static_cast<size_t>(i)])),
                           model_->final_norm().data(), c_.d_model, c_.norm_eps,
                           out.row(static_cast<size_t>(i)));
    };
    normed(plan_->hidden_rows(), hidden_);
    normed(plan_->logit_rows(), head_in_);
    pool_.barrier();
    if (plan_->logit_rows().empty()) return;
    const MatrixJob job = {&model_->head(), head_in_.row(0), head_in_.ld(), logits_.row(0),
                           logits_.ld()};
    multiply({&job, 1}, static_cast<int>(plan_->logit_rows().size()), thread);
  }

  void rotate(float* x, const std::vector<float>& norm, int position) const {
    if (!norm.empty()) kernels_->rms_norm(x, norm.data(), c_.head_dim, c_.norm_eps, x);
    const size_t row = static_cast<size_t>(position) * static_cast<size_t>(rope_.half_dim);
    cpu::rope(x, rope_.cos.data() + row, rope_.sin.data() + row, rope_.half_dim);
  }

  // Running state of one (row, kv head) unit over its chunks.
  struct Unit {
    float m[kMaxGroup], l[kMaxGroup];  // per query head of the group
    bool first = true;
  };

  void attend(int l, size_t row, int kv_head, AttentionScratch& s) {
    const PlanRow& r = plan_->rows()[row];
    const int g = group();
    const int width = static_cast<int>(round_up(static_cast<size_t>(c_.head_dim), kLanes));
    const float scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim));
    const float* q = q_.row(row) + kv_head * g * c_.head_dim;
    const int ld = static_cast<int>(score_ld_);
    Unit unit;

    if (r.prefix) {
      const KvStore& store = prefix_[static_cast<size_t>(l)];
      const int length = request_->prefix->length;
      kernels_->scores(q, c_.head_dim, g, store.k_blocks(kv_head, 0),
                       (length + kLanes - 1) / kLanes, c_.head_dim, scale, s.scores.data(), ld);
      for (int begin = 0; begin < length; begin += kChunk) {
        const int end = std::min(begin + kChunk, length);
        chunk(unit, s, begin, begin, end, [&](float* sums) {
          kernels_->weighted_sum(s.scores.data() + begin, ld, g, store.v_row(kv_head, begin),
                                 store.v_stride(), end - begin, width, sums, 2 * width);
        });
      }
    }

    const KvStore& cache = cache_[static_cast<size_t>(r.sequence)][static_cast<size_t>(l)];
    const KvStore& step = scratch_[static_cast<size_t>(l)];
    const auto visible = plan_->visible(r);
    // Sliding window by position difference; visible rows are in order of position.
    const int oldest = c_.layer_is_windowed(l) ? r.position - c_.sliding_window + 1 : 0;
    const int context_begin = std::clamp(oldest, 0, r.context);
    int hidden_rows = 0;  // visible rows that fell out of the window
    if (context_begin == r.context)
      while (
          plan_->rows()[static_cast<size_t>(visible[static_cast<size_t>(hidden_rows)])].position <
          oldest)
        ++hidden_rows;
    const int begin = hidden_rows > 0 ? r.context + hidden_rows : context_begin;
    const int end = r.context + r.visible_count;

    if (context_begin < r.context) {
      const int block = context_begin / kLanes;
      kernels_->scores(q, c_.head_dim, g, cache.k_blocks(kv_head, block),
                       (r.context + kLanes - 1) / kLanes - block, c_.head_dim, scale,
                       s.scores.data() + block * kLanes, ld);
    }
    const int step_ld = static_cast<int>(step_ld_);
    const int last_row = *std::max_element(visible.begin(), visible.end());
    kernels_->scores(q, c_.head_dim, g, step.k_blocks(kv_head, 0), last_row / kLanes + 1,
                     c_.head_dim, scale, s.step_scores.data(), step_ld);
    for (int head = 0; head < g; ++head) {
      float* to = s.scores.data() + static_cast<size_t>(head) * score_ld_ + r.context;
      const float* from = s.step_scores.data() + static_cast<size_t>(head) * step_ld_;
      for (size_t j = 0; j < visible.size(); ++j) to[j] = from[visible[j]];
    }

    for (int at = begin; at < end;) {
      const int base = at / kChunk * kChunk;
      const int stop = std::min(base + kChunk, end);
      chunk(unit, s, base, at, stop, [&](float* sums) {
        const int context_end = std::min(stop, r.context);
        if (at < context_end)
          kernels_->weighted_sum(s.scores.data() + at, ld, g, cache.v_row(kv_head, at),
                                 cache.v_stride(), context_end - at, width, sums, 2 * width);
        // Rows of the request: runs of neighbouring rows in one call.
        for (int j = std::max(at, r.context); j < stop;) {
          const int row_j = visible[static_cast<size_t>(j - r.context)];
          int run = 1;
          while (j + run < stop && visible[static_cast<size_t>(j + run - r.context)] == row_j + run)
            ++run;
          kernels_->weighted_sum(s.scores.data() + j, ld, g, step.v_row(kv_head, row_j),
                                 step.v_stride(), run, width, sums, 2 * width);
          j += run;
        }
      });
      at = stop;
    }
    for (int head = 0; head < g; ++head) {
      const float* merged = s.sums.data() + head * 2 * width;
      float* out = mixed_.row(row) + (kv_head * g + head) * c_.head_dim;
      for (int d = 0; d < c_.head_dim; ++d) out[d] = merged[d] / unit.l[head];
    }
  }

  // Softmax of the scores at logical [from, to) inside the chunk that starts at `base`, weighted
  // values by `values(sums)`, merged into the unit.
  template <typename F>
  void chunk(Unit& unit, AttentionScratch& s, int base, int from, int to, const F& values) {
    const int g = group();
    const int width = static_cast<int>(round_up(static_cast<size_t>(c_.head_dim), kLanes));
    float m[kMaxGroup], l[kMaxGroup];
    for (int head = 0; head < g; ++head) {
      float* scores = s.scores.data() + static_cast<size_t>(head) * score_ld_ + base;
      // Scores behind `to` belong to the next chunk's front only at a border, where to - base =
      // kChunk.
      l[head] = kernels_->softmax_chunk(scores, from - base, to - base, &m[head]);
    }
    float* current = s.sums.data() + width;
    for (int head = 0; head < g; ++head)
      std::memset(current + head * 2 * width, 0, static_cast<size_t>(width) * sizeof(float));
    values(current);
    for (int head = 0; head < g; ++head) {
      float* merged = s.sums.data() + head * 2 * width;
      if (unit.first) {
        unit.m[head] = m[head], unit.l[head] = l[head];
        std::memcpy(merged, merged + width, static_cast<size_t>(width) * sizeof(float));
      } else {
        const cpu::Merge f = cpu::merge_chunk(unit.m[head], unit.l[head], m[head], l[head]);
        unit.m[head] = f.m, unit.l[head] = f.l;
        kernels_->merge(merged, merged + width, width, f.keep, f.add);
      }
    }
    unit.first = false;
  }

  std::shared_ptr<const Model> model_;
  const ModelConfig& c_;
  const cpu::Kernels* kernels_;
  cpu::ThreadPool pool_;
  RopeTable rope_;
  std::vector<std::vector<KvStore>> cache_;  // [sequence][layer]
  std::vector<KvStore> scratch_, prefix_;    // [layer]
  std::vector<AttentionScratch> attention_scratch_;
  Rows x_, h_, q_, k_, v_, mixed_, y_, gate_, up_, hidden_, head_in_, logits_;
  std::vector<Rows> residual_;
  size_t score_ld_ = 0, step_ld_ = 0;
  std::atomic<int> next_unit_{0};
  const ForwardPlan* plan_ = nullptr;
  const ForwardRequest* request_ = nullptr;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<const Model> model,
                                          const SessionOptions& options) {
  return std::make_unique<CpuBackend>(std::move(model), options);
}

}  // namespace evalrun::engine
