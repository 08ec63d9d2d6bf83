#include "methods/draft_network.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/model/model.h"

namespace evalrun::methods {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

std::vector<float> sum_of(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < b.size(); ++i) a[i] += b[i];
  return a;
}

std::span<float> row_of(std::vector<float>& values, size_t row, size_t width) {
  return {values.data() + row * width, width};
}

}  // namespace

std::shared_ptr<const engine::LayerWeights> read_draft_layer(AdapterReader& adapter, int layer,
                                                             const engine::ModelConfig& config,
                                                             engine::WeightStorage storage) {
  const auto name = [&](const char* part) { return fmt::format("layers.{}.{}", layer, part); };
  const int d = config.d_model, in = layer == 0 ? config.input_width() : d;
  auto w = std::make_shared<engine::LayerWeights>();
  if (layer > 0 || !config.bare_input) w->attn_norm = adapter.vector(name("attn_norm"), d);
  if (layer == 0 && config.paired_input) w->embed_norm = adapter.vector(name("embed_norm"), d);
  w->q = adapter.matrix(name("q.weight"), config.q_dim(), in, storage);
  w->k = adapter.matrix(name("k.weight"), config.kv_dim(), in, storage);
  w->v = adapter.matrix(name("v.weight"), config.kv_dim(), in, storage);
  if (config.qkv_bias) {
    w->q_bias = adapter.vector(name("q.bias"), config.q_dim());
    w->k_bias = adapter.vector(name("k.bias"), config.kv_dim());
    w->v_bias = adapter.vector(name("v.bias"), config.kv_dim());
  }
  w->o = adapter.matrix(name("o.weight"), d, config.q_dim(), storage);
  w->ffn_norm = adapter.vector(name("ffn_norm"), d);
  w->gate = adapter.matrix(name("gate.weight"), config.d_ffn, d, storage);
  w->up = adapter.matrix(name("up.weight"), config.d_ffn, d, storage);
  w->down = adapter.matrix(name("down.weight"), d, config.d_ffn, storage);
  return w;
}

engine::ModelConfig draft_config(const AdapterReader& adapter, const engine::Model& target,
                                 int layers) {
  constexpr int kMost = 1 << 20;
  engine::ModelConfig c = target.config();
  c.name = target.config().name + "[draft]";
  c.n_layers = layers;
  c.n_heads = adapter.integer("n_heads", 1, kMost);
  c.n_kv_heads = adapter.integer("n_kv_heads", 1, kMost);
  if (c.n_heads % c.n_kv_heads != 0)
    adapter.fail("config.n_kv_heads",
                 fmt::format("{} does not divide {} heads", c.n_kv_heads, c.n_heads));
  c.head_dim = static_cast<int>(adapter.number("head_dim", c.d_model / c.n_heads));
  c.d_ffn = adapter.integer("d_ffn", 1, kMost);
  c.norm_eps = static_cast<float>(adapter.number("norm_eps", c.norm_eps));
  const double theta = adapter.number("rope_theta", c.rope.theta);
  if (theta != c.rope.theta) {  // its own rotation, not the target's scaled one
    c.rope = {};
    c.rope.theta = theta;
  }
  c.qkv_bias = adapter.has("layers.0.q.bias");
  c.o_bias = c.mlp_bias = c.qk_norm = false;
  c.sliding_window = 0;
  c.windowed.clear();
  c.tied_head = false;
  return c;
}

DraftNetwork::DraftNetwork(AdapterReader& adapter, const engine::Model& target,
                           const Options& options)
    : target_(target), options_(options), d_(target.config().d_model) {
  const engine::WeightStorage storage = options.storage;
  const bool paired = options.input == Input::kPaired;
  feature_width_ = paired ? 3 * d_ : d_;
  switch (options.input) {
    case Input::kLinear:
      input_ = adapter.balanced_matrix("fc.weight", d_, 2 * d_, storage, 2, input_scale_);
      input_bias_ = adapter.optional_vector("fc.bias", d_);
      break;
    case Input::kPaired:
      input_ = adapter.balanced_matrix("fc.weight", d_, feature_width_, storage, 3, input_scale_);
      break;
    case Input::kPerToken:
    case Input::kRecurrent: {
      const bool recurrent = options.input == Input::kRecurrent;
      for (int l = 0; l < 2; ++l) {
        const auto at = static_cast<size_t>(l);
        const std::string name = fmt::format("lstm.{}", l);
        // A published file holds all four gates and both biases, whichever way it is run.
        const int gates = adapter.rows(name + ".weight") == 4 * d_ ? 4 : 3;
        if (recurrent && gates != 4)
          adapter.fail("tensor " + name + ".weight", "has no forget gate: trained per token",
                       "use lstm=per_token, or train with --input recurrent");
        lstm_[at] = l == 0 ? adapter.balanced_matrix(name + ".weight", gates * d_, 2 * d_, storage,
                                                     2, input_scale_)
                           : adapter.matrix(name + ".weight", gates * d_, d_, storage);
        lstm_bias_[at] = sum_of(adapter.vector(name + ".bias", gates * d_),
                                adapter.optional_vector(name + ".bias_hidden", gates * d_));
        if (adapter.has(name + ".hidden.weight")) {
          auto hidden = adapter.matrix(name + ".hidden.weight", 4 * d_, d_, storage);
          if (recurrent) hidden_[at] = std::move(hidden);
        } else if (recurrent) {
          adapter.matrix(name + ".hidden.weight", 4 * d_, d_, storage);  // says what is missing
        }
      }
      if (adapter.has("lstm.skip.weight")) {
        skip_ = adapter.balanced_matrix("lstm.skip.weight", d_, 2 * d_, storage, 2, skip_scale_);
        skip_bias_ = adapter.optional_vector("lstm.skip.bias", d_);
      }
      break;
    }
  }

  engine::ModelParts parts;
  parts.config = draft_config(adapter, target, options.layers);
  parts.config.paired_input = paired;
  parts.config.bare_input = !paired && !adapter.has("layers.0.attn_norm");
  parts.config.bare_output = !paired;
  ids_ = adapter.draft_vocabulary();
  parts.head = adapter.head("lm_head.weight", ids_, storage);
  parts.config.head_size = parts.head->out();
  for (int l = 0; l < options.layers; ++l)
    parts.layers.push_back(read_draft_layer(adapter, l, parts.config, storage));
  if (paired) parts.final_norm = adapter.vector("norm", d_);
  adapter.finish();
  parts.format = storage == engine::WeightStorage::kF32 ? engine::WeightFormat::kF32
                                                        : engine::WeightFormat::kInt8;
  parts.path = "draft network";
  parts.embedding = target.shared_embedding();
  const bool own_head = parts.head != target.shared_head();
  net_ = engine::Model::create(std::move(parts));

  engine::SessionOptions session = options.session;
  session.n_sequences = 1;
  session.kv_cache = true;
  session.measure_phases = false;
  session.kv_dtype.clear();
  session_ = engine::Session::create(net_, session);
  if (options.input == Input::kRecurrent)
    states_.reserve(static_cast<size_t>(session_->capacity()) * 4 * static_cast<size_t>(d_));

  size_t extra = 0;
  for (const engine::WeightMatrix* w :
       {&input_, &lstm_[0], &lstm_[1], &hidden_[0], &hidden_[1], &skip_})
    extra += w->empty() ? 0 : w->size();
  weight_bytes_ = extra + net_->streamed_bytes() - (own_head ? 0 : net_->head().size());
  relative_cost_ = static_cast<double>(extra + net_->streamed_bytes()) /
                   static_cast<double>(target.streamed_bytes());
}

void DraftNetwork::reset() {
  session_->reset();
  states_.clear();
}

void DraftNetwork::rewind(int pairs) {
  session_->rewind(pairs);
  if (options_.input == Input::kRecurrent)
    states_.resize(static_cast<size_t>(pairs) * 4 * static_cast<size_t>(d_));
}

int DraftNetwork::add(const Row& row) {
  const size_t i = staged_.size();
  const auto width = static_cast<size_t>(feature_width_);
  const size_t expected = row.predicted ? static_cast<size_t>(d_) : width;
  EVALRUN_CHECK(row.feature.size() == expected, "a feature of {} values, not {}", expected,
                row.feature.size());
  if (i == 0) rows_.clear(), draws_.clear();
  if (given_.size() < (i + 1) * width) given_.resize((i + 1) * width);
  std::copy(row.feature.begin(), row.feature.end(),
            given_.begin() + static_cast<ptrdiff_t>(i * width));
  staged_.push_back({row.token, row.predicted, row.previous});
  engine::Row r;
  r.embedding = static_cast<int32_t>(i);
  r.parent = row.parent;
  r.block = row.block;
  r.logits = row.read && best_ == 0 && laws_ == nullptr;
  r.best = row.read && best_ > 0;
  r.hidden = row.read;
  if (row.read && laws_ != nullptr) {
    draws_.push_back(row.draw);
    draws_.back().row = static_cast<int32_t>(i);
    r.chance = row.draw.chances[0];
  }
  rows_.push_back(r);
  return kept_rows_ + static_cast<int>(i);
}

// joined_ = [embedding ; feature] of every staged row, each times its scale.
void DraftNetwork::join_pairs(std::span<const float> scale, float divisor) {
  const auto d = static_cast<size_t>(d_);
  const size_t n = staged_.size();
  if (joined_.size() < n * 2 * d) joined_.resize(n * 2 * d);
  for (size_t i = 0; i < n; ++i) {
    const auto e = row_of(joined_, 2 * i, d), f = row_of(joined_, 2 * i + 1, d);
    target_.embed(staged_[i].token, e);
    const auto feature = row_of(given_, i, d);
    for (size_t j = 0; j < d; ++j) {
      e[j] = e[j] * scale[0] / divisor;
      f[j] = feature[j] * scale[1] / divisor;
    }
  }
}

void DraftNetwork::linear_inputs() {
  const auto d = static_cast<size_t>(d_);
  const size_t n = staged_.size();
  join_pairs(input_scale_, 1);
  const engine::MatrixView y =
      session_->multiply(input_, {joined_.data(), static_cast<int>(n), 2 * d_});
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < d; ++j)
      inputs_[i * d + j] =
          y.row(static_cast<int>(i))[j] + (input_bias_.empty() ? 0.0f : input_bias_[j]);
}

void DraftNetwork::paired_inputs() {
  const auto d = static_cast<size_t>(d_), width = static_cast<size_t>(feature_width_);
  const size_t n = staged_.size();
  size_t n_true = 0;
  if (joined_.size() < n * width) joined_.resize(n * width);
  for (size_t i = 0; i < n; ++i) {
    target_.embed(staged_[i].token, row_of(inputs_, 2 * i, d));
    const auto feature = row_of(given_, i, width);
    if (staged_[i].predicted) {
      std::copy_n(feature.begin(), d, row_of(inputs_, 2 * i + 1, d).begin());
    } else {
      const auto to = row_of(joined_, n_true++, width);
      for (size_t j = 0; j < width; ++j) to[j] = feature[j] * input_scale_[j / d];
    }
  }
  if (n_true == 0) return;
  const engine::MatrixView y =
      session_->multiply(input_, {joined_.data(), static_cast<int>(n_true), feature_width_});
  int next = 0;
  for (size_t i = 0; i < n; ++i) {
    if (staged_[i].predicted) continue;
    const auto g = y.row(next++);
    std::copy(g.begin(), g.end(), row_of(inputs_, 2 * i + 1, d).begin());
  }
}

// y = sig(o) tanh(c), c = [sig(f) c +] sig(i) tanh(g), twice; gates i, g, o or i, f, g, o.
void DraftNetwork::lstm_inputs() {
  const auto d = static_cast<size_t>(d_);
  const size_t n = staged_.size();
  const bool recurrent = options_.input == Input::kRecurrent;
  const auto scale = static_cast<float>(options_.scale);
  if (!skip_.empty()) {
    join_pairs(skip_scale_, 1);
    const engine::MatrixView y =
        session_->multiply(skip_, {joined_.data(), static_cast<int>(n), 2 * d_});
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < d; ++j)
        inputs_[i * d + j] =
            y.row(static_cast<int>(i))[j] + (skip_bias_.empty() ? 0.0f : skip_bias_[j]);
  } else {
    std::fill(inputs_.begin(), inputs_.begin() + static_cast<ptrdiff_t>(n * d), 0.0f);
  }
  join_pairs(input_scale_, scale);
  if (recurrent) {
    const auto first_row = static_cast<size_t>(kept_rows_);
    const size_t size = 4 * d;
    if (row_states_.size() < (first_row + n) * size) row_states_.resize((first_row + n) * size);
    for (size_t i = 0; i < n; ++i) {
      const int previous = staged_[i].previous;
      const std::span<float> state = row_of(row_states_, first_row + i, size);
      if (previous >= 0)
        std::ranges::copy(row_of(row_states_, static_cast<size_t>(previous), size), state.begin());
      else if (!states_.empty())
        std::ranges::copy(row_of(states_, states_.size() / size - 1, size), state.begin());
      else
        std::ranges::fill(state, 0.0f);
      lstm_row(row_of(joined_, i, 2 * d), state);
      for (size_t j = 0; j < d; ++j) inputs_[i * d + j] += scale * state[2 * d + j];
    }
    return;
  }
  for (size_t l = 0; l < 2; ++l) {
    const int in = l == 0 ? 2 * d_ : d_;
    const engine::MatrixView y =
        session_->multiply(lstm_[l], {joined_.data(), static_cast<int>(n), in});
    const size_t gates = static_cast<size_t>(y.cols) / d;
    const size_t g_at = gates == 4 ? 2 * d : d, o_at = gates == 4 ? 3 * d : 2 * d;
    const std::vector<float>& b = lstm_bias_[l];
    for (size_t i = 0; i < n; ++i) {
      const auto row = y.row(static_cast<int>(i));
      for (size_t j = 0; j < d; ++j) {
        const float c = sigmoid(row[j] + b[j]) * std::tanh(row[g_at + j] + b[g_at + j]);
        joined_[i * d + j] = sigmoid(row[o_at + j] + b[o_at + j]) * std::tanh(c);
      }
    }
  }
  for (size_t i = 0; i < n * d; ++i) inputs_[i] += scale * joined_[i];
}

// One pair through both layers; state = h0, c0, h1, c1.
void DraftNetwork::lstm_row(std::span<const float> in, std::span<float> state) {
  const auto d = static_cast<size_t>(d_);
  std::vector<float>&x = lstm_in_, &gates = gates_;
  x.assign(in.begin(), in.end());
  gates.resize(4 * d);
  for (size_t l = 0; l < 2; ++l) {
    const std::span<float> h = state.subspan(2 * l * d, d), c = state.subspan((2 * l + 1) * d, d);
    const auto add = [&](const engine::WeightMatrix& w, std::span<const float> from) {
      const engine::MatrixView y =
          session_->multiply(w, {from.data(), 1, static_cast<int>(from.size())});
      for (size_t j = 0; j < 4 * d; ++j) gates[j] += y.row(0)[j];
    };
    std::copy(lstm_bias_[l].begin(), lstm_bias_[l].end(), gates.begin());
    add(lstm_[l], x);
    add(hidden_[l], h);
    for (size_t j = 0; j < d; ++j) {
      c[j] = sigmoid(gates[d + j]) * c[j] + sigmoid(gates[j]) * std::tanh(gates[2 * d + j]);
      h[j] = sigmoid(gates[3 * d + j]) * std::tanh(c[j]);
    }
    x.assign(h.begin(), h.end());
  }
}

void DraftNetwork::run(Look look) {
  EVALRUN_CHECK(!staged_.empty(), "a draft forward without rows");
  const size_t n = staged_.size();
  const auto d = static_cast<size_t>(d_);
  const int width = net_->config().input_width();
  if (inputs_.size() < n * static_cast<size_t>(width))
    inputs_.resize(n * static_cast<size_t>(width));
  if (options_.input == Input::kLinear)
    linear_inputs();
  else if (options_.input == Input::kPaired)
    paired_inputs();
  else
    lstm_inputs();

  engine::ForwardRequest request;
  request.rows = rows_;
  request.embeddings = {inputs_.data(), static_cast<int>(n), width};
  request.extend = extend_;
  request.best = best_;
  request.log_sums = log_sums_;
  request.laws = laws_, request.law_draws = draws_, request.sampling = sampling_;
  // EAGLE-3 hands on the stream in front of the final norm.
  const int last = net_->config().n_layers;
  const bool paired = options_.input == Input::kPaired;
  if (paired) request.residual_layers = {&last, 1};
  const engine::ForwardResult result = session_->forward(request);
  const size_t before = static_cast<size_t>(kept_rows_);
  if (features_.size() < (before + n) * d) features_.resize((before + n) * d);
  for (size_t i = 0; i < n; ++i) {
    if (!rows_[i].hidden) continue;
    const auto from = paired ? result.residual[0].row(static_cast<int>(i))
                             : result.hidden_row(static_cast<int>(i));
    std::copy(from.begin(), from.end(), row_of(features_, before + i, d).begin());
  }
  kept_rows_ += static_cast<int>(n);
  staged_.clear();
  for (size_t i = 0; i < n; ++i)
    if (rows_[i].logits || rows_[i].best)
      look(static_cast<int>(before + i), result.scores(static_cast<int>(i)));
  size_t tokens = 0;
  for (const engine::LawDraw& draw : draws_) {
    engine::RowScores scores;
    scores.drawn = result.law_tokens.subspan(tokens, draw.chances.size());
    tokens += draw.chances.size();
    look(static_cast<int>(before) + draw.row, scores);
  }
}

std::span<const float> DraftNetwork::feature(int row) const {
  EVALRUN_CHECK(row >= 0 && row < kept_rows_, "row {} of {}", row, kept_rows_);
  return {features_.data() + static_cast<size_t>(row) * static_cast<size_t>(d_),
          static_cast<size_t>(d_)};
}

void DraftNetwork::commit(std::span<const int> rows) {
  session_->commit(rows);
  if (options_.input == Input::kRecurrent)
    for (const int row : rows) {
      const auto state = row_of(row_states_, static_cast<size_t>(row), 4 * static_cast<size_t>(d_));
      states_.insert(states_.end(), state.begin(), state.end());
    }
}

}  // namespace evalrun::methods
