#include "engine/model/model.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace evalrun::engine {

namespace {

// Compares every weight's shape with the configuration.
class ShapeCheck {
 public:
  explicit ShapeCheck(const std::string& path) : path_(path) {}
  void matrix(const std::string& name, const WeightMatrix& m, int out, int in) const {
    if (m.out() != out || m.in() != in)
      fail(name, fmt::format("is [{}, {}], expected [{}, {}]", m.out(), m.in(), out, in));
  }
  void vector(const std::string& name, const std::vector<float>& v, bool present, int size) const {
    const size_t expected = present ? static_cast<size_t>(size) : 0;
    if (v.size() != expected)
      fail(name, fmt::format("has {} values, expected {}", v.size(), expected));
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw base::data_error(path_, name, what, "the weights do not belong to this configuration");
  }
  const std::string& path_;
};

void check_layer(const ShapeCheck& check, const ModelConfig& c, const LayerWeights& w, int index) {
  const auto name = [&](const char* part) { return fmt::format("layer {} {}", index, part); };
  const bool first = index == 0;
  const int in = first ? c.input_width() : c.d_model;
  check.vector(name("attention norm"), w.attn_norm, !(first && c.bare_input), c.d_model);
  check.vector(name("embedding norm"), w.embed_norm, first && c.paired_input, c.d_model);
  check.matrix(name("q"), w.q, c.q_dim(), in);
  check.matrix(name("k"), w.k, c.kv_dim(), in);
  check.matrix(name("v"), w.v, c.kv_dim(), in);
  check.vector(name("q bias"), w.q_bias, c.qkv_bias, c.q_dim());
  check.vector(name("k bias"), w.k_bias, c.qkv_bias, c.kv_dim());
  check.vector(name("v bias"), w.v_bias, c.qkv_bias, c.kv_dim());
  check.vector(name("o bias"), w.o_bias, c.o_bias, c.d_model);
  check.vector(name("q norm"), w.q_norm, c.qk_norm, c.head_dim);
  check.vector(name("k norm"), w.k_norm, c.qk_norm, c.head_dim);
  check.matrix(name("o"), w.o, c.d_model, c.q_dim());
  check.vector(name("ffn norm"), w.ffn_norm, true, c.d_model);
  check.matrix(name("gate"), w.gate, c.d_ffn, c.d_model);
  check.matrix(name("up"), w.up, c.d_ffn, c.d_model);
  check.matrix(name("down"), w.down, c.d_model, c.d_ffn);
  check.vector(name("gate bias"), w.gate_bias, c.mlp_bias, c.d_ffn);
  check.vector(name("up bias"), w.up_bias, c.mlp_bias, c.d_ffn);
  check.vector(name("down bias"), w.down_bias, c.mlp_bias, c.d_model);
}

// Calls visit(matrix) and visit(vector) for every weight of a layer.
template <typename Visit>
void for_each_weight(const LayerWeights& w, Visit visit) {
  for (const WeightMatrix* m : w.matrices()) visit(*m);
  for (const std::vector<float>* v :
       {&w.attn_norm, &w.embed_norm, &w.q_bias, &w.k_bias, &w.v_bias, &w.o_bias, &w.q_norm,
        &w.k_norm, &w.ffn_norm, &w.gate_bias, &w.up_bias, &w.down_bias})
    visit(*v);
}

struct CountBytes {
  size_t& total;
  void operator()(const WeightMatrix& m) const { total += m.size(); }
  void operator()(const std::vector<float>& v) const { total += v.size() * sizeof(float); }
};

struct CountParameters {
  int64_t& total;
  void operator()(const WeightMatrix& m) const { total += int64_t{m.out()} * m.in(); }
  void operator()(const std::vector<float>& v) const { total += static_cast<int64_t>(v.size()); }
};

}  // namespace

LayerWeights LayerWeights::without_matrices() const {
  LayerWeights w;
  w.attn_norm = attn_norm, w.embed_norm = embed_norm, w.ffn_norm = ffn_norm;
  w.q_norm = q_norm, w.k_norm = k_norm;
  w.q_bias = q_bias, w.k_bias = k_bias, w.v_bias = v_bias, w.o_bias = o_bias;
  w.gate_bias = gate_bias, w.up_bias = up_bias, w.down_bias = down_bias;
  return w;
}

std::shared_ptr<const Model> Model::create(ModelParts parts) {
  const ModelConfig& c = parts.config;
  c.validate(parts.path);
  const ShapeCheck check(parts.path);
  EVALRUN_CHECK(parts.embedding != nullptr && parts.head != nullptr);
  check.matrix("token embedding", *parts.embedding, c.vocab_size, c.d_model);
  check.matrix("output matrix", *parts.head, c.n_logits(), c.d_model);
  check.vector("final norm", parts.final_norm, !c.bare_output, c.d_model);
  if (parts.layers.size() != static_cast<size_t>(c.n_layers))
    throw base::data_error(parts.path, "layers",
                           fmt::format("{} found, {} expected", parts.layers.size(), c.n_layers));
  for (int i = 0; i < c.n_layers; ++i) {
    EVALRUN_CHECK(parts.layers[static_cast<size_t>(i)] != nullptr);
    check_layer(check, c, *parts.layers[static_cast<size_t>(i)], i);
  }
  return std::shared_ptr<const Model>(new Model(std::move(parts)));
}

std::shared_ptr<const Model> Model::first_layers(int n) const {
  if (n < 1 || n > p_.config.n_layers)
    throw base::usage_error(fmt::format("layers:{} asks for layers the model does not have", n),
                            fmt::format("{} has {} layers; choose 1..{}", p_.config.name,
                                        p_.config.n_layers, p_.config.n_layers));
  ModelParts parts = p_;  // shares matrices
  parts.config.n_layers = n;
  parts.config.name = fmt::format("{}[layers:{}]", p_.config.name, n);
  parts.layers.resize(static_cast<size_t>(n));
  if (!parts.config.windowed.empty()) parts.config.windowed.resize(static_cast<size_t>(n));
  if (!parts.hash.empty()) parts.hash += fmt::format("-layers{}", n);
  return create(std::move(parts));
}

size_t Model::weight_bytes() const {
  size_t total = p_.embedding->size() + p_.final_norm.size() * sizeof(float);
  if (p_.head != p_.embedding) total += p_.head->size();
  for (const auto& layer : p_.layers) for_each_weight(*layer, CountBytes{total});
  return total;
}

size_t Model::streamed_bytes() const {
  size_t total = p_.head->size() + p_.final_norm.size() * sizeof(float);
  for (const auto& layer : p_.layers) for_each_weight(*layer, CountBytes{total});
  return total;
}

int64_t Model::n_parameters() const {
  int64_t total = 0;
  const CountParameters count{total};
  count(*p_.embedding);
  count(p_.final_norm);
  // A tied head in a storage of its own is a second copy of the same parameters.
  if (!config().tied_head) count(*p_.head);
  for (const auto& layer : p_.layers) for_each_weight(*layer, count);
  return total;
}

namespace {

class RandomWeights {
 public:
  explicit RandomWeights(uint64_t seed) : rng_(seed) {}
  // Entries of standard deviation gain / sqrt(in): outputs of a normed input have standard
  // deviation of about `gain`.
  WeightMatrix matrix(int out, int in, double gain) {
    WeightMatrix m(out, in);
    std::vector<float> row(static_cast<size_t>(in));
    const double scale = gain / std::sqrt(static_cast<double>(in));
    for (int o = 0; o < out; ++o) {
      for (float& x : row) x = static_cast<float>(normal() * scale);
      m.set_row(o, row);
    }
    return m;
  }
  std::vector<float> norm(int size) {
    std::vector<float> v(static_cast<size_t>(size));
    for (float& x : v) x = static_cast<float>(0.5 + rng_.uniform());
    return v;
  }
  std::vector<float> bias(bool present, int size) {
    std::vector<float> v(present ? static_cast<size_t>(size) : 0);
    for (float& x : v) x = static_cast<float>(0.5 * normal());
    return v;
  }

 private:
  // Irwin-Hall: close enough to normal, and the same on every platform, unlike log and cos.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += rng_.uniform();
    return sum;
  }
  base::Rng rng_;
};

}  // namespace

std::shared_ptr<const Model> make_random_model(const ModelConfig& config, uint64_t seed,
                                               WeightFormat format) {
  config.validate("random model");
  const ModelConfig& c = config;
  RandomWeights random(seed);
  ModelParts parts;
  parts.config = c;
  parts.path = fmt::format("random:{}", seed);
  // Entries of 4 / sqrt(d_model): a tied head then gives logits of standard deviation 4, and what
  // the sublayers add outweighs the token itself, so that greedy text does not just repeat it.
  parts.embedding =
      std::make_shared<const WeightMatrix>(random.matrix(c.vocab_size, c.d_model, 4.0));
  for (int i = 0; i < c.n_layers; ++i) {
    auto w = std::make_shared<LayerWeights>();
    const int in = i == 0 ? c.input_width() : c.d_model;
    if (i > 0 || !c.bare_input) w->attn_norm = random.norm(c.d_model);
    if (i == 0 && c.paired_input) w->embed_norm = random.norm(c.d_model);
    w->q = random.matrix(c.q_dim(), in, 1.5);
    w->k = random.matrix(c.kv_dim(), in, 1.5);
    w->v = random.matrix(c.kv_dim(), in, 1.5);
    w->q_bias = random.bias(c.qkv_bias, c.q_dim());
    w->k_bias = random.bias(c.qkv_bias, c.kv_dim());
    w->v_bias = random.bias(c.qkv_bias, c.kv_dim());
    w->o = random.matrix(c.d_model, c.q_dim(), 1.5);
    w->o_bias = random.bias(c.o_bias, c.d_model);
    w->q_norm = c.qk_norm ? random.norm(c.head_dim) : std::vector<float>();
    w->k_norm = c.qk_norm ? random.norm(c.head_dim) : std::vector<float>();
    w->ffn_norm = random.norm(c.d_model);
    w->gate = random.matrix(c.d_ffn, c.d_model, 1.5);
    w->up = random.matrix(c.d_ffn, c.d_model, 1.5);
    w->gate_bias = random.bias(c.mlp_bias, c.d_ffn);
    w->up_bias = random.bias(c.mlp_bias, c.d_ffn);
    w->down = random.matrix(c.d_model, c.d_ffn, 1.5);
    w->down_bias = random.bias(c.mlp_bias, c.d_model);
    parts.layers.push_back(std::move(w));
  }
  if (!c.bare_output) parts.final_norm = random.norm(c.d_model);
  parts.head =
      c.tied_head
          ? parts.embedding
          : std::make_shared<const WeightMatrix>(random.matrix(c.n_logits(), c.d_model, 4.0));
  const auto model = Model::create(std::move(parts));
  return format == WeightFormat::kF32 ? model : convert_model(*model, format);
}

std::shared_ptr<const Model> convert_model(const Model& model, WeightFormat format) {
  EVALRUN_CHECK(format != WeightFormat::kStored, "weights as stored are a file's");
  const WeightFormatSpec& spec = spec_of(format);
  ModelParts parts;
  parts.config = model.config();
  parts.format = format;
  parts.stored_bits = model.stored_bits();
  parts.path = model.path(), parts.hash = model.hash();
  for (int l = 0; l < model.config().n_layers; ++l) {
    auto w = std::make_shared<LayerWeights>(model.layer(l));
    for (WeightMatrix* m : w->matrices()) *m = m->converted(spec.layers);
    parts.layers.push_back(std::move(w));
  }
  parts.final_norm = model.final_norm();
  parts.embedding =
      std::make_shared<const WeightMatrix>(model.embedding().converted(spec.embedding));
  parts.head = model.config().tied_head && spec.head == spec.embedding
                   ? parts.embedding
                   : std::make_shared<const WeightMatrix>(model.head().converted(spec.head));
  return Model::create(std::move(parts));
}

}  // namespace evalrun::engine
