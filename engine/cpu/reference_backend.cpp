// The CPU oracle, written to be read: one row at a time, every reduction spelled out in the order
// the numerics are defined in (docs/architecture.md, "Numerics"). The vector path must give the
// same bits, and a CUDA path is compared with it.
#include <algorithm>
#include <cmath>
#include <map>

#include "engine/backend.h"
#include "engine/base/error.h"
#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kernels/fp8.h"
#include "engine/cpu/kernels/int4.h"
#include "engine/cpu/reference_products.h"
#include "engine/row_program.h"
#include "engine/sampling.h"

namespace evalrun::engine {
namespace {

using Floats = std::vector<float>;

float rounded_bf16(float x) { return bfloat16_to_float(float_to_bfloat16(x)); }

void add(std::span<float> x, std::span<const float> y) {
  for (size_t i = 0; i < y.size(); ++i) x[i] = x[i] + y[i];
}

// y += B (scale * A x)
void add_low_rank(const LowRankFactor& f, std::span<const float> x, std::span<float> y) {
  if (f.empty()) return;
  Floats inner = cpu::reference_product(f.a, x);
  for (float& v : inner) v = v * f.scale;
  add(y, cpu::reference_product(f.b, inner));
}

// x * 1/sqrt(mean(x^2) + eps) * w; the sum of squares in 16 lanes, then their tree.
Floats rms_norm(std::span<const float> x, std::span<const float> w, float eps) {
  float lane[cpu::kLanes] = {};
  for (size_t i = 0; i < x.size(); ++i)
    lane[i % cpu::kLanes] = std::fma(x[i], x[i], lane[i % cpu::kLanes]);
  const float scale = cpu::rms_scale(cpu::sum_lanes(lane), static_cast<int>(x.size()), eps);
  Floats y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * w[i];
  return y;
}

Floats side_by_side(const Floats& a, const Floats& b) {
  Floats both(a.size() + b.size());
  std::copy(a.begin(), a.end(), both.begin());
  std::copy(b.begin(), b.end(), both.begin() + static_cast<ptrdiff_t>(a.size()));
  return both;
}

// Keys and values one query row sees in one run of logical positions, in order.
struct Visible {
  std::vector<const float*> k, v;  // rows of one kv head, [head_dim]
  int first = 0;                   // logical index of the first
};

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(std::shared_ptr<const Model> model, const SessionOptions& options);

  std::string isa() const override { return "reference"; }
  int n_threads() const override { return 1; }

  void forward(const ForwardPlan& plan, const ForwardRequest& request, ForwardResult& result,
               Answers& answers) override;
  void commit(std::span<const CommitRow> rows) override;
  void copy_sequence(int from, int to, int length) override;

  InputView compute(const RowProgram& program, int result) override;
  MatrixView multiply(const WeightMatrix& w, InputView x) override;

  void read_kv(int layer, int position, int sequence, std::span<float> k,
               std::span<float> v) const override;

  size_t kv_bytes_per_token() const override;
  size_t kv_bytes() const override;
  size_t workspace_bytes() const override { return logits_.capacity() * sizeof(float); }

 private:
  struct KeyValue {
    Floats k, v;  // [kv_dim]
  };

  Floats norm(const Floats& x, const Floats& weights) const {
    return weights.empty() ? x : rms_norm(x, weights, c_.norm_eps);
  }
  void layer(int l, const ForwardPlan& plan, const ForwardRequest& request, std::vector<Floats>& x);
  // What the cache keeps of keys and values.
  Floats stored(Floats v) const;
  // Optional norm of one head, then rotary embedding at a position.
  void rotate(Floats& heads, int head, const std::vector<float>& norm, int position);
  // Softmax attention of one row, all heads. Keys in logical order: prefix bank, then committed
  // context, then the rows of the request it sees.
  Floats attention(int l, const ForwardPlan& plan, const PlanRow& r, const ForwardRequest& request,
                   const Floats& q);
  // Chunks of 128 logical positions with absolute borders, each with its own maximum and sums,
  // merged in order.
  void attend(const Visible& part, std::span<const float> q, bool& first, float& m,
              float& denominator, Floats& mixed);

  std::shared_ptr<const Model> model_;
  const ModelConfig& c_;
  const std::string kv_dtype_;
  RopeTable rope_;
  std::vector<std::vector<std::vector<KeyValue>>> cache_;  // [sequence][layer][position]
  std::vector<std::map<int, KeyValue>> scratch_;           // [layer][row of the last forward]
  std::vector<KeyValue> prefix_;                           // [layer]
  std::vector<Floats> residual_;
  std::vector<MatrixView> residual_views_;
  std::vector<Floats> paired_;  // [row] the embedding beside it
  HostRows computed_;
  Floats hidden_, logits_, product_;
};

ReferenceBackend::ReferenceBackend(std::shared_ptr<const Model> model,
                                   const SessionOptions& options)
    : model_(std::move(model)),
      c_(model_->config()),
      kv_dtype_(options.kv_dtype),
      rope_(make_rope_table(c_, options.max_tokens)),
      cache_(static_cast<size_t>(options.n_sequences)) {
  for (auto& sequence : cache_) sequence.resize(static_cast<size_t>(c_.n_layers));
}

// --- one forward ---------------------------------------------------------------------------------

void ReferenceBackend::forward(const ForwardPlan& plan, const ForwardRequest& request,
                               ForwardResult& result, Answers& answers) {
  const size_t n = static_cast<size_t>(plan.n_rows());
  const size_t d = static_cast<size_t>(c_.d_model);
  std::vector<Floats> x(n, Floats(d));
  paired_.assign(n, {});
  for (size_t i = 0; i < n; ++i) {
    const PlanRow& r = plan.rows()[i];
    if (r.embedding >= 0) {
      auto in = request.embeddings.row(r.embedding);
      if (c_.paired_input) {
        paired_[i].assign(in.begin(), in.begin() + static_cast<ptrdiff_t>(d));
        in = in.subspan(d);
      }
      std::copy(in.begin(), in.end(), x[i].begin());
    } else {
      model_->embed(r.token, x[i]);
    }
  }
  prefix_.clear();
  if (request.prefix != nullptr)
    for (size_t l = 0; l < static_cast<size_t>(c_.n_layers); ++l)
      prefix_.push_back({stored(request.prefix->k[l]), stored(request.prefix->v[l])});
  residual_.assign(request.residual_layers.size(), {});
  if (plan.n_kept() == 0) scratch_.assign(static_cast<size_t>(c_.n_layers), {});
  for (int l = 0; l <= c_.n_layers; ++l) {
    for (size_t j = 0; j < request.residual_layers.size(); ++j)
      if (request.residual_layers[j] == l)
        for (const Floats& row : x) residual_[j].insert(residual_[j].end(), row.begin(), row.end());
    if (l < c_.n_layers) layer(l, plan, request, x);
  }
  residual_views_.clear();
  for (const Floats& r : residual_)
    residual_views_.push_back({r.data(), static_cast<int>(n), c_.d_model});
  result.residual = residual_views_;

  hidden_.clear();
  for (const int32_t i : plan.hidden_rows()) {
    const Floats h = norm(x[static_cast<size_t>(i)], model_->final_norm());
    hidden_.insert(hidden_.end(), h.begin(), h.end());
  }
  logits_.clear();
  for (const int32_t i : plan.logit_rows()) {
    const Floats y = cpu::reference_product(model_->head(),
                                            norm(x[static_cast<size_t>(i)], model_->final_norm()));
    logits_.insert(logits_.end(), y.begin(), y.end());
  }
  for (const int32_t i : plan.answer_rows()) {
    const Floats y = cpu::reference_product(model_->head(),
                                            norm(x[static_cast<size_t>(i)], model_->final_norm()));
    answers.set_top(i, argmax(y));
  }
  result.hidden = {hidden_.data(), static_cast<int>(plan.hidden_rows().size()), c_.d_model};
  result.logits = {logits_.data(), static_cast<int>(plan.logit_rows().size()), c_.n_logits()};
}

// --- sequences -----------------------------------------------------------------------------------

void ReferenceBackend::commit(std::span<const CommitRow> rows) {
  const Floats none(static_cast<size_t>(c_.kv_dim()));
  for (size_t l = 0; l < static_cast<size_t>(c_.n_layers); ++l)
    for (const CommitRow& r : rows) {
      auto& cache = cache_[static_cast<size_t>(r.sequence)][l];
      cache.resize(static_cast<size_t>(r.position));
      // A layer whose attention was skipped has no K/V; the session forbids reading these later.
      const auto it = scratch_[l].find(r.row);
      cache.push_back(it != scratch_[l].end() ? it->second : KeyValue{none, none});
    }
}

void ReferenceBackend::copy_sequence(int from, int to, int length) {
  for (size_t l = 0; l < static_cast<size_t>(c_.n_layers); ++l) {
    const auto& source = cache_[static_cast<size_t>(from)][l];
    cache_[static_cast<size_t>(to)][l].assign(source.begin(), source.begin() + length);
  }
}

InputView ReferenceBackend::compute(const RowProgram& program, int result) {
  return computed_.run(program, result, *model_,
                       {[this](const WeightMatrix& w, MatrixView x) { return multiply(w, x); },
                        HostRows::plain_silu_mul, HostRows::plain_lstm});
}

MatrixView ReferenceBackend::multiply(const WeightMatrix& w, InputView x) {
  Floats product;  // x may be the last one
  for (int i = 0; i < x.rows; ++i) {
    const Floats y = cpu::reference_product(w, x.row(i));
    product.insert(product.end(), y.begin(), y.end());
  }
  product_ = std::move(product);
  return {product_.data(), x.rows, w.out()};
}

void ReferenceBackend::read_kv(int layer, int position, int sequence, std::span<float> k,
                               std::span<float> v) const {
  const KeyValue& kv = cache_[static_cast<size_t>(sequence)][static_cast<size_t>(layer)]
                             [static_cast<size_t>(position)];
  std::copy(kv.k.begin(), kv.k.end(), k.begin());
  std::copy(kv.v.begin(), kv.v.end(), v.begin());
}

size_t ReferenceBackend::kv_bytes_per_token() const {
  return static_cast<size_t>(c_.n_layers) * 2 * static_cast<size_t>(c_.kv_dim()) * sizeof(float);
}

size_t ReferenceBackend::kv_bytes() const {
  size_t positions = 0;
  for (const auto& sequence : cache_)
    for (const auto& layer : sequence) positions += layer.size();
  return positions * 2 * static_cast<size_t>(c_.kv_dim()) * sizeof(float);
}

// --- one layer -----------------------------------------------------------------------------------

void ReferenceBackend::layer(int l, const ForwardPlan& plan, const ForwardRequest& request,
                             std::vector<Floats>& x) {
  const LayerWeights& w = model_->layer(l);
  const size_t n = x.size();
  const auto delta_of = [&](size_t i) -> const LowRankLayer* {
    return plan.rows()[i].low_rank ? &request.low_rank->layers[static_cast<size_t>(l)] : nullptr;
  };
  const bool skip_attention = request.skip != nullptr && !request.skip->attention.empty() &&
                              request.skip->attention[static_cast<size_t>(l)];
  const bool skip_mlp = request.skip != nullptr && !request.skip->mlp.empty() &&
                        request.skip->mlp[static_cast<size_t>(l)];

  if (!skip_attention) {
    std::vector<Floats> q;
    q.reserve(n);
    for (size_t i = 0; i < n; ++i) {
      const PlanRow& r = plan.rows()[i];
      const Floats h = w.embed_norm.empty()
                           ? norm(x[i], w.attn_norm)
                           : side_by_side(norm(paired_[i], w.embed_norm), norm(x[i], w.attn_norm));
      q.push_back(cpu::reference_product(w.q, h));
      Floats k = cpu::reference_product(w.k, h), v = cpu::reference_product(w.v, h);
      if (const LowRankLayer* delta = delta_of(i)) {
        add_low_rank(delta->q, h, q[i]);
        add_low_rank(delta->k, h, k);
        add_low_rank(delta->v, h, v);
      }
      add(q[i], w.q_bias), add(k, w.k_bias), add(v, w.v_bias);
      for (int head = 0; head < c_.n_heads; ++head) rotate(q[i], head, w.q_norm, r.position);
      for (int head = 0; head < c_.n_kv_heads; ++head) rotate(k, head, w.k_norm, r.position);
      scratch_[static_cast<size_t>(l)][plan.n_kept() + static_cast<int>(i)] = {
          stored(std::move(k)), stored(std::move(v))};
    }
    if (plan.kv_only() && l == c_.n_layers - 1) return;
    for (size_t i = 0; i < n; ++i) {
      const Floats mixed = attention(l, plan, plan.rows()[i], request, q[i]);
      Floats y = cpu::reference_product(w.o, mixed);
      if (const LowRankLayer* delta = delta_of(i)) add_low_rank(delta->o, mixed, y);
      add(y, w.o_bias);
      add(x[i], y);
    }
  }
  if (!skip_mlp) {
    for (size_t i = 0; i < n; ++i) {
      const Floats h = rms_norm(x[i], w.ffn_norm, c_.norm_eps);
      Floats gate = cpu::reference_product(w.gate, h), up = cpu::reference_product(w.up, h);
      const LowRankLayer* delta = delta_of(i);
      if (delta != nullptr) add_low_rank(delta->gate, h, gate), add_low_rank(delta->up, h, up);
      add(gate, w.gate_bias), add(up, w.up_bias);
      for (size_t j = 0; j < gate.size(); ++j) gate[j] = cpu::silu_mul(gate[j], up[j]);
      Floats y = cpu::reference_product(w.down, gate);
      if (delta != nullptr) add_low_rank(delta->down, gate, y);
      add(y, w.down_bias);
      add(x[i], y);
    }
  }
}

Floats ReferenceBackend::stored(Floats v) const {
  if (kv_dtype_ == "bf16")
    for (float& x : v) x = rounded_bf16(x);
  const size_t hd = static_cast<size_t>(c_.head_dim);
  if (kv_dtype_ == "int8") {
    std::vector<int8_t> q(hd);
    for (size_t at = 0; at < v.size(); at += hd) {
      const float scale = cpu::round_to_bytes(v.data() + at, hd, q.data(), 1);
      for (size_t i = 0; i < hd; ++i) v[at + i] = static_cast<float>(q[i]) * scale;
    }
  }
  if (kv_dtype_ == "fp8") {
    std::vector<cpu::Fp8> codes(hd);
    for (size_t at = 0; at < v.size(); at += hd) {
      const float scale = cpu::round_to_fp8(v.data() + at, hd, codes.data(), 1);
      for (size_t i = 0; i < hd; ++i) v[at + i] = cpu::fp8_value(codes[i]) * scale;
    }
  }
  if (kv_dtype_ == "int4") {
    std::vector<uint8_t> codes(hd);
    for (size_t at = 0; at < v.size(); at += hd) {
      const cpu::Int4Steps steps = cpu::round_to_int4(v.data() + at, hd, codes.data());
      for (size_t i = 0; i < hd; ++i) v[at + i] = cpu::int4_value(codes[i], steps);
    }
  }
  return v;
}

void ReferenceBackend::rotate(Floats& heads, int head, const std::vector<float>& norm,
                              int position) {
  const size_t hd = static_cast<size_t>(c_.head_dim);
  float* x = heads.data() + static_cast<size_t>(head) * hd;
  if (!norm.empty()) {
    const Floats y = rms_norm({x, hd}, norm, c_.norm_eps);
    std::copy(y.begin(), y.end(), x);
  }
  const size_t row = static_cast<size_t>(position) * static_cast<size_t>(rope_.half_dim);
  cpu::rope(x, rope_.cos.data() + row, rope_.sin.data() + row, rope_.half_dim);
}

Floats ReferenceBackend::attention(int l, const ForwardPlan& plan, const PlanRow& r,
                                   const ForwardRequest& request, const Floats& q) {
  const size_t hd = static_cast<size_t>(c_.head_dim);
  const int group = c_.n_heads / c_.n_kv_heads;
  const int oldest = c_.layer_is_windowed(l) ? r.position - c_.sliding_window + 1 : 0;
  const auto& cache = cache_[static_cast<size_t>(r.sequence)][static_cast<size_t>(l)];
  Floats out(static_cast<size_t>(c_.q_dim()));
  for (int head = 0; head < c_.n_heads; ++head) {
    const size_t kv = static_cast<size_t>(head / group) * hd;
    Visible prefix, own;
    if (r.prefix)
      for (int j = 0; j < request.prefix->length; ++j) {
        const bool all_heads = request.prefix->heads == c_.n_heads;
        const auto heads = static_cast<size_t>(all_heads ? c_.n_heads : c_.n_kv_heads);
        const size_t at =
            static_cast<size_t>(j) * heads * hd + (all_heads ? static_cast<size_t>(head) * hd : kv);
        prefix.k.push_back(prefix_[static_cast<size_t>(l)].k.data() + at);
        prefix.v.push_back(prefix_[static_cast<size_t>(l)].v.data() + at);
      }
    own.first = std::clamp(oldest, 0, r.context);
    for (int j = own.first; j < r.context; ++j) {
      own.k.push_back(cache[static_cast<size_t>(j)].k.data() + kv);
      own.v.push_back(cache[static_cast<size_t>(j)].v.data() + kv);
    }
    for (const int32_t row : plan.visible(r)) {
      if (plan.all_rows()[static_cast<size_t>(row)].position < oldest) {
        ++own.first;  // only when no context is left: visible rows are in order of position
        continue;
      }
      const KeyValue& s = scratch_[static_cast<size_t>(l)].at(row);
      own.k.push_back(s.k.data() + kv);
      own.v.push_back(s.v.data() + kv);
    }
    const std::span<const float> qh(q.data() + static_cast<size_t>(head) * hd, hd);
    float m = 0, denominator = 0;
    Floats mixed(hd);
    bool first = true;
    for (const Visible* part : {&prefix, &own}) attend(*part, qh, first, m, denominator, mixed);
    for (size_t i = 0; i < hd; ++i)
      out[static_cast<size_t>(head) * hd + i] = mixed[i] / denominator;
  }
  return out;
}

void ReferenceBackend::attend(const Visible& part, std::span<const float> q, bool& first, float& m,
                              float& denominator, Floats& mixed) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim));
  for (size_t j = 0; j < part.k.size();) {
    const int begin = part.first + static_cast<int>(j);
    const size_t n =
        std::min<size_t>(static_cast<size_t>(cpu::kChunk - begin % cpu::kChunk), part.k.size() - j);
    Floats s(n);
    for (size_t t = 0; t < n; ++t) {
      float sum = 0;
      for (size_t i = 0; i < q.size(); ++i) sum = std::fma(q[i], part.k[j + t][i], sum);
      s[t] = sum * scale;
    }
    const float top = *std::max_element(s.begin(), s.end());
    float lane[cpu::kLanes] = {};
    for (size_t t = 0; t < n; ++t) {
      s[t] = cpu::exp_fixed(s[t] - top);
      float& sum = lane[(static_cast<size_t>(begin) + t) % cpu::kLanes];
      sum = sum + s[t];
    }
    const float chunk_sum = cpu::sum_lanes(lane);
    Floats chunk(q.size());
    for (size_t t = 0; t < n; ++t)
      for (size_t i = 0; i < q.size(); ++i) chunk[i] = std::fma(s[t], part.v[j + t][i], chunk[i]);
    if (first) {
      m = top, denominator = chunk_sum, mixed = chunk, first = false;
    } else {
      const cpu::Merge g = cpu::merge_chunk(m, denominator, top, chunk_sum);
      m = g.m, denominator = g.l;
      for (size_t i = 0; i < q.size(); ++i) mixed[i] = mixed[i] * g.keep + chunk[i] * g.add;
    }
    j += n;
  }
}

}  // namespace

std::unique_ptr<Backend> make_reference_backend(std::shared_ptr<const Model> model,
                                                const SessionOptions& options) {
  return std::make_unique<ReferenceBackend>(std::move(model), options);
}

}  // namespace evalrun::engine
