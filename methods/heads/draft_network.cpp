#include "methods/heads/draft_network.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/model/model.h"

namespace evalrun::methods {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

engine::SharedVector shared(std::vector<float> values) {
  if (values.empty()) return nullptr;
  return std::make_shared<const std::vector<float>>(std::move(values));
}

engine::SharedVector sum_of(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < b.size(); ++i) a[i] += b[i];
  return shared(std::move(a));
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
      input_bias_ = shared(adapter.optional_vector("fc.bias", d_));
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
        skip_bias_ = shared(adapter.optional_vector("lstm.skip.bias", d_));
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
  session.n_sequences = options.slots;
  session.kv_cache = true;
  session.measure_phases = false;
  session.kv_dtype.clear();
  session_ = engine::Session::create(net_, session);
  states_.resize(static_cast<size_t>(options.slots));
  if (options.input == Input::kRecurrent)
    for (std::vector<float>& states : states_)
      states.reserve(static_cast<size_t>(session_->capacity()) * 4 * static_cast<size_t>(d_));

  size_t extra = 0;
  for (const engine::WeightMatrix* w :
       {&input_, &lstm_[0], &lstm_[1], &hidden_[0], &hidden_[1], &skip_})
    extra += w->empty() ? 0 : w->size();
  weight_bytes_ = extra + net_->streamed_bytes() - (own_head ? 0 : net_->head().size());
  relative_cost_ = static_cast<double>(extra + net_->streamed_bytes()) /
                   static_cast<double>(target.streamed_bytes());
}

void DraftNetwork::add_kept(KeptMemory& kept) const {
  kept.sessions.push_back(session_.get());
  if (options_.input == Input::kRecurrent)  // states_
    kept.bytes_per_slot += 4.0 * sizeof(float) * d_ * session_->capacity();
}

void DraftNetwork::rewind(int pairs, int slot) {
  session_->rewind(pairs, slot);
  if (options_.input == Input::kRecurrent)
    states_[static_cast<size_t>(slot)].resize(static_cast<size_t>(pairs) * 4 *
                                              static_cast<size_t>(d_));
}

void DraftNetwork::begin() {
  staged_.clear();
  extend_ = false;
}

int DraftNetwork::add(const Row& row) {
  const size_t i = staged_.size();
  const auto width = static_cast<size_t>(feature_width_);
  const size_t expected = row.predicted ? static_cast<size_t>(d_) : width;
  EVALRUN_CHECK(row.feature.size() == expected, "a feature of {} values, not {}", expected,
                row.feature.size());
  if (i == 0) {
    if (!extend_) kept_rows_ = 0;
    rows_.clear(), draws_.clear(), drawn_.clear();
    blocks_ = 0;
  }
  if (i == 0 || row.slot != staged_.back().slot) first_block_ = blocks_;
  if (given_.size() < (i + 1) * width) given_.resize((i + 1) * width);
  std::copy(row.feature.begin(), row.feature.end(),
            given_.begin() + static_cast<ptrdiff_t>(i * width));
  staged_.push_back({row.token, row.predicted, row.keep, row.slot, row.previous});
  engine::Row r;
  r.sequence = row.slot;
  r.embedding = static_cast<int32_t>(i);
  r.parent = row.parent;
  if (row.block >= 0) {
    r.block = first_block_ + row.block;
    blocks_ = std::max(blocks_, r.block + 1);
  }
  r.logits = row.read && best_ == 0 && dists_ == nullptr;
  r.best = row.read && best_ > 0;
  r.hidden = row.read;
  drawn_.emplace_back();
  if (row.read && dists_ != nullptr) {
    const int before = i == 0 ? 0 : drawn_[i - 1].first + drawn_[i - 1].n;
    drawn_[i] = {before, static_cast<int>(row.draw.uniforms.size())};
    draws_.push_back(row.draw);
    draws_.back().row = static_cast<int32_t>(i);
    r.uniform = row.draw.uniforms[0];
  } else if (i > 0) {
    drawn_[i] = {drawn_[i - 1].first + drawn_[i - 1].n, 0};
  }
  rows_.push_back(r);
  return kept_rows_ + static_cast<int>(i);
}

// [embedding ; feature] of every staged row, each times its scale.
int DraftNetwork::join_pairs(std::span<const float> scale, float divisor) {
  const int n = static_cast<int>(staged_.size());
  const int joined = program_.value(n, 2 * d_);
  program_.embed({joined}, tokens_, d_, scale[0] / divisor);
  program_.copy({joined, 0, d_}, {given_value_}, n, d_, scale[1] / divisor);
  return joined;
}

int DraftNetwork::linear_inputs() {
  const int n = static_cast<int>(staged_.size()), y = program_.value(n, d_);
  program_.product({y}, input_, {join_pairs(input_scale_, 1)}, n, input_bias_);
  return y;
}

int DraftNetwork::paired_inputs() {
  const int n = static_cast<int>(staged_.size()), y = program_.value(n, 2 * d_);
  program_.embed({y}, tokens_, d_);
  const bool scaled = std::ranges::any_of(input_scale_, [](float s) { return s != 1; });
  const int features = scaled ? program_.value(n, feature_width_) : given_value_;
  // Neighbours of a kind at once.
  for (int first = 0, last = 0; first < n; first = last) {
    const bool predicted = staged_[static_cast<size_t>(first)].predicted;
    while (last < n && staged_[static_cast<size_t>(last)].predicted == predicted) ++last;
    const int rows = last - first;
    if (predicted) {
      program_.copy({y, first, d_}, {given_value_, first}, rows, d_);
      continue;
    }
    if (scaled)
      for (int part = 0; part < feature_width_ / d_; ++part)
        program_.copy({features, first, part * d_}, {given_value_, first, part * d_}, rows, d_,
                      input_scale_[static_cast<size_t>(part)]);
    program_.product({y, first, d_}, input_, {features, first}, rows);
  }
  return y;
}

// y = skip + scale lstm(lstm(joined / scale)), cells without a state.
int DraftNetwork::lstm_inputs() {
  const int n = static_cast<int>(staged_.size()), y = program_.value(n, d_);
  const auto scale = static_cast<float>(options_.scale);
  if (!skip_.empty()) program_.product({y}, skip_, {join_pairs(skip_scale_, 1)}, n, skip_bias_);
  int from = join_pairs(input_scale_, scale);
  for (size_t l = 0; l < 2; ++l) {
    const int gates = program_.value(n, lstm_[l].out()), h = program_.value(n, d_);
    program_.product({gates}, lstm_[l], {from}, n, lstm_bias_[l]);
    program_.lstm(h, gates);
    from = h;
  }
  if (skip_.empty())
    program_.copy({y}, {from}, n, d_, scale);
  else
    program_.add(y, from, scale);
  return y;
}

// joined_ = [embedding ; feature] of every staged row, each times its scale.
void DraftNetwork::join_on_the_host(std::span<const float> scale, float divisor) {
  const auto d = static_cast<size_t>(d_);
  joined_.resize(staged_.size() * 2 * d);
  for (size_t i = 0; i < staged_.size(); ++i) {
    const auto e = row_of(joined_, 2 * i, d), f = row_of(joined_, 2 * i + 1, d);
    target_.embed(staged_[i].token, e);
    const auto feature = row_of(given_, i, d);
    for (size_t j = 0; j < d; ++j) {
      e[j] = e[j] * (scale[0] / divisor);
      f[j] = feature[j] * (scale[1] / divisor);
    }
  }
}

// The same with states, pair after pair: each waits for its products. inputs_ of all staged rows.
void DraftNetwork::recurrent_inputs() {
  const auto d = static_cast<size_t>(d_);
  const size_t n = staged_.size(), size = 4 * d, first_row = static_cast<size_t>(kept_rows_);
  const auto scale = static_cast<float>(options_.scale);
  inputs_.assign(n * d, 0.0f);
  if (!skip_.empty()) {
    join_on_the_host(skip_scale_, 1);
    const engine::MatrixView y =
        session_->multiply(skip_, {joined_.data(), static_cast<int>(n), 2 * d_});
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < d; ++j)
        inputs_[i * d + j] =
            y.row(static_cast<int>(i))[j] + (skip_bias_ == nullptr ? 0.0f : (*skip_bias_)[j]);
  }
  join_on_the_host(input_scale_, scale);
  if (row_states_.size() < (first_row + n) * size) row_states_.resize((first_row + n) * size);
  for (size_t i = 0; i < n; ++i) {
    const int previous = staged_[i].previous;
    const std::span<float> state = row_of(row_states_, first_row + i, size);
    std::vector<float>& committed = states_[static_cast<size_t>(staged_[i].slot)];
    if (previous >= 0)
      std::ranges::copy(row_of(row_states_, static_cast<size_t>(previous), size), state.begin());
    else if (!committed.empty())
      std::ranges::copy(row_of(committed, committed.size() / size - 1, size), state.begin());
    else
      std::ranges::fill(state, 0.0f);
    lstm_row(row_of(joined_, i, 2 * d), state);
    for (size_t j = 0; j < d; ++j) inputs_[i * d + j] += scale * state[2 * d + j];
  }
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
    std::ranges::copy(*lstm_bias_[l], gates.begin());
    add(lstm_[l], x);
    add(hidden_[l], h);
    for (size_t j = 0; j < d; ++j) {
      c[j] = sigmoid(gates[d + j]) * c[j] + sigmoid(gates[j]) * std::tanh(gates[2 * d + j]);
      h[j] = sigmoid(gates[3 * d + j]) * std::tanh(c[j]);
    }
    x.assign(h.begin(), h.end());
  }
}

engine::InputView DraftNetwork::inputs() {
  const auto n = static_cast<int>(staged_.size());
  if (options_.input == Input::kRecurrent) {
    recurrent_inputs();
    return {inputs_.data(), n, d_};
  }
  tokens_.clear();
  for (const Staged& row : staged_) tokens_.push_back(row.token);
  program_.clear();
  given_value_ = program_.given({given_.data(), n, feature_width_});
  const int value = options_.input == Input::kLinear   ? linear_inputs()
                    : options_.input == Input::kPaired ? paired_inputs()
                                                       : lstm_inputs();
  return session_->compute(program_, value);
}

void DraftNetwork::run() {
  EVALRUN_CHECK(!staged_.empty(), "a draft forward without rows");
  const size_t n = staged_.size();
  const auto d = static_cast<size_t>(d_);
  engine::ForwardRequest request;
  request.rows = rows_;
  request.embeddings = inputs();
  request.extend = extend_;
  request.best = best_;
  request.log_sums = log_sums_;
  request.dists = dists_, request.distribution_draws = draws_, request.sampling = sampling_;
  // EAGLE-3 hands on the stream before the final norm.
  const int last = net_->config().n_layers;
  const bool paired = options_.input == Input::kPaired;
  if (paired) request.residual_layers = {&last, 1};
  result_ = session_->forward(request);
  first_row_ = kept_rows_;
  const auto before = static_cast<size_t>(first_row_);
  if (features_.size() < (before + n) * d) features_.resize((before + n) * d);
  for (size_t i = 0; i < n; ++i) {
    if (!rows_[i].hidden) continue;
    const auto from = paired ? result_.residual[0].row(static_cast<int>(i))
                             : result_.hidden_row(static_cast<int>(i));
    std::copy(from.begin(), from.end(), row_of(features_, before + i, d).begin());
  }
  kept_rows_ += static_cast<int>(n);
  extend_ = std::ranges::none_of(staged_, [](const Staged& row) { return row.keep; });
  if (!extend_) commit();
  staged_.clear();
}

// Slot by slot, as they stand.
void DraftNetwork::commit() {
  path_.clear();
  paths_.clear();
  path_.reserve(staged_.size());  // the paths point into it
  for (size_t i = 0; i < staged_.size();) {
    const int slot = staged_[i].slot;
    const size_t begin = path_.size();
    for (; i < staged_.size() && staged_[i].slot == slot; ++i)
      if (staged_[i].keep) path_.push_back(first_row_ + static_cast<int>(i));
    if (path_.size() > begin) paths_.push_back({slot, std::span<const int>(path_).subspan(begin)});
  }
  session_->commit(paths_);
  if (options_.input != Input::kRecurrent) return;
  for (const engine::SequencePath& p : paths_)
    for (const int row : p.path) {
      std::vector<float>& states = states_[static_cast<size_t>(p.sequence)];
      const auto state = row_of(row_states_, static_cast<size_t>(row), 4 * static_cast<size_t>(d_));
      states.insert(states.end(), state.begin(), state.end());
    }
}

engine::RowScores DraftNetwork::scores(int row) const {
  const int at = row - first_row_;
  EVALRUN_CHECK(at >= 0 && row < kept_rows_, "row {} of {} to {}", row, first_row_, kept_rows_);
  if (dists_ == nullptr) return result_.scores(at);
  const Drawn& drawn = drawn_[static_cast<size_t>(at)];
  engine::RowScores scores;
  scores.drawn =
      result_.drawn_tokens.subspan(static_cast<size_t>(drawn.first), static_cast<size_t>(drawn.n));
  return scores;
}

std::span<const float> DraftNetwork::feature(int row) const {
  EVALRUN_CHECK(row >= 0 && row < kept_rows_, "row {} of {}", row, kept_rows_);
  return {features_.data() + static_cast<size_t>(row) * static_cast<size_t>(d_),
          static_cast<size_t>(d_)};
}

}  // namespace evalrun::methods
