#include "engine/model/shape_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/model/families.h"
#include "engine/model/parallel_for.h"

namespace evalrun::engine {
namespace {

constexpr int kDrawnPanels = 64;
constexpr double kLayerGain = 1.5, kEmbeddingGain = 4,
                 kBiasDeviation = 0.5;  // as make_random_model()

// Of mean 0 and deviation 1: a sum of twelve uniform numbers, which are the 16-bit parts of three
// draws. The same on every platform, unlike log and cos.
float normal_number(base::Rng& rng) {
  uint64_t sum = 0;
  for (int draw = 0; draw < 3; ++draw) {
    uint64_t bits = rng.next();
    for (int part = 0; part < 4; ++part, bits >>= 16) sum += bits & 0xFFFF;
  }
  constexpr float kMean = 12 * 0.5f * 0xFFFF;
  return (static_cast<float>(sum) - kMean) * 0x1p-16f;
}

std::vector<float> random_bias(bool present, int size, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<float> values(present ? static_cast<size_t>(size) : 0);
  for (float& x : values) x = static_cast<float>(kBiasDeviation) * normal_number(rng);
  return values;
}

struct RandomMatrix {
  WeightMatrix* matrix;
  double gain;
  uint64_t seed;
  int whole_panels() const { return matrix->out() / WeightMatrix::kPanel; }
  // Panels whose rows are drawn; a last one that is not full is among them.
  int drawn() const { return std::min(whole_panels(), kDrawnPanels); }
};

void draw_panel(const RandomMatrix& m, int panel) {
  base::Rng rng(base::combine_seeds({m.seed, static_cast<uint64_t>(panel)}));
  const double deviation = m.gain / std::sqrt(static_cast<double>(m.matrix->in()));
  m.matrix->clear_panel(panel);
  std::vector<float> row(static_cast<size_t>(m.matrix->in()));
  const int first = panel * WeightMatrix::kPanel;
  for (int o = first; o < std::min(m.matrix->out(), first + WeightMatrix::kPanel); ++o) {
    for (float& x : row) x = static_cast<float>(deviation) * normal_number(rng);
    m.matrix->set_row(o, row);
  }
}

// One piece of memory in which matrices follow each other, as in a loaded model.
class ShapeWeights {
 public:
  ShapeWeights(size_t bytes, uint64_t seed)
      : bytes_(bytes), memory_(allocate_weights(bytes)), seed_(seed) {}

  // `to` must stay where it is until fill().
  void add(WeightMatrix& to, WeightStorage storage, int out, int in, double gain = kLayerGain) {
    const size_t size = WeightMatrix::bytes_for(storage, out, in);
    EVALRUN_CHECK(at_ + size <= bytes_, "{} bytes of weights are more than {}", at_ + size, bytes_);
    to = WeightMatrix(storage, out, in, std::shared_ptr<std::byte>(memory_, memory_.get() + at_));
    at_ += size;
    matrices_.push_back({&to, gain, next_seed()});
  }
  uint64_t next_seed() { return base::combine_seeds({seed_, ++parts_}); }

  void fill(int n_threads) const {
    struct Panel {
      const RandomMatrix* of;
      int panel;
    };
    std::vector<Panel> draws, copies;
    for (const RandomMatrix& m : matrices_)
      for (int p = 0; p < m.matrix->panels(); ++p)
        (p < m.drawn() || p == m.whole_panels() ? draws : copies).push_back({&m, p});
    parallel_for(n_threads, draws.size(),
                 [&](size_t i) { draw_panel(*draws[i].of, draws[i].panel); });
    parallel_for(n_threads, copies.size(), [&](size_t i) {
      WeightMatrix& m = *copies[i].of->matrix;
      const int from = copies[i].panel % copies[i].of->drawn();
      std::byte* bytes = m.mutable_bytes().data();
      std::memcpy(bytes + static_cast<size_t>(copies[i].panel) * m.panel_bytes(),
                  bytes + static_cast<size_t>(from) * m.panel_bytes(), m.panel_bytes());
    });
  }

 private:
  const size_t bytes_;
  const std::shared_ptr<std::byte> memory_;
  const uint64_t seed_;
  size_t at_ = 0;
  uint64_t parts_ = 0;
  std::vector<RandomMatrix> matrices_;
};

std::shared_ptr<LayerWeights> shape_layer(const ModelConfig& c, WeightStorage storage,
                                          ShapeWeights& weights) {
  const auto w = std::make_shared<LayerWeights>();
  w->attn_norm.assign(static_cast<size_t>(c.d_model), 1.0f);
  w->ffn_norm = w->attn_norm;
  weights.add(w->q, storage, c.q_dim(), c.d_model);
  weights.add(w->k, storage, c.kv_dim(), c.d_model);
  weights.add(w->v, storage, c.kv_dim(), c.d_model);
  weights.add(w->o, storage, c.d_model, c.q_dim());
  weights.add(w->gate, storage, c.d_ffn, c.d_model);
  weights.add(w->up, storage, c.d_ffn, c.d_model);
  weights.add(w->down, storage, c.d_model, c.d_ffn);
  const auto bias = [&](bool present, int size) {
    return random_bias(present, size, weights.next_seed());
  };
  w->q_bias = bias(c.qkv_bias, c.q_dim());
  w->k_bias = bias(c.qkv_bias, c.kv_dim());
  w->v_bias = bias(c.qkv_bias, c.kv_dim());
  w->o_bias = bias(c.o_bias, c.d_model);
  w->gate_bias = bias(c.mlp_bias, c.d_ffn);
  w->up_bias = bias(c.mlp_bias, c.d_ffn);
  w->down_bias = bias(c.mlp_bias, c.d_model);
  if (c.qk_norm) w->q_norm.assign(static_cast<size_t>(c.head_dim), 1.0f);
  w->k_norm = w->q_norm;
  return w;
}

}  // namespace

WeightBytes weight_bytes(const ModelConfig& config, WeightFormat format) {
  EVALRUN_CHECK(format != WeightFormat::kStored, "a shape has no file");
  const WeightFormatSpec& spec = spec_of(format);
  ModelConfig one = config;  // whose layers are all alike
  one.n_layers = 1;
  WeightBytes bytes;
  const auto add = [&](const TensorSlot& slot, WeightStorage storage) {
    (slot.layer < 0 ? bytes.rest : bytes.layer) +=
        slot.cols == 0
            ? slot.rows * int64_t{sizeof(float)}
            : static_cast<int64_t>(WeightMatrix::bytes_for(storage, slot.rows, slot.cols));
  };
  for (const TensorSlot& slot : tensor_slots(one, Naming::kHuggingFace)) {
    add(slot, slot.role == Role::kEmbedding ? spec.embedding
              : slot.role == Role::kHead    ? spec.head
                                            : spec.layers);
    // A tied head in another storage is a matrix of its own.
    if (slot.role == Role::kEmbedding && config.tied_head && spec.head != spec.embedding)
      add(slot, spec.head);
  }
  return bytes;
}

int64_t n_parameters(const ModelConfig& config) {
  int64_t n = 0;
  for (const TensorSlot& slot : tensor_slots(config, Naming::kHuggingFace))
    n += int64_t{slot.rows} * std::max(slot.cols, 1);
  return n;
}

int distinct_layers(const ModelConfig& config, WeightFormat format, int64_t least_bytes) {
  const int64_t layer = weight_bytes(config, format).layer;
  const int64_t wanted = (std::max<int64_t>(least_bytes, 1) + layer - 1) / layer;
  return static_cast<int>(std::min<int64_t>(wanted, config.n_layers));
}

std::shared_ptr<const Model> make_shape_model(const ModelConfig& config,
                                              const ShapeModelOptions& o) {
  const ModelConfig& c = config;
  EVALRUN_CHECK(o.distinct_layers >= 1 && o.distinct_layers <= c.n_layers && o.n_threads >= 1,
                "{} distinct layers of {}, {} threads", o.distinct_layers, c.n_layers, o.n_threads);
  EVALRUN_CHECK(c.head_size == 0 && !c.bare_input && !c.bare_output && !c.paired_input,
                "{} is a drafter's network", c.name);
  const WeightFormatSpec& spec = spec_of(o.format);
  // The vectors are in these bytes, too: more than enough, and pages nobody touches are not taken.
  ShapeWeights weights(
      static_cast<size_t>(weight_bytes(c, o.format).with_layers(o.distinct_layers)), o.seed);
  const auto embedding = std::make_shared<WeightMatrix>(), head = std::make_shared<WeightMatrix>();
  const bool one_matrix = c.tied_head && spec.head == spec.embedding;
  weights.add(*embedding, spec.embedding, c.vocab_size, c.d_model, kEmbeddingGain);
  if (!one_matrix) weights.add(*head, spec.head, c.vocab_size, c.d_model, kEmbeddingGain);
  std::vector<std::shared_ptr<const LayerWeights>> distinct;
  for (int i = 0; i < o.distinct_layers; ++i)
    distinct.push_back(shape_layer(c, spec.layers, weights));
  weights.fill(o.n_threads);

  ModelParts parts;
  parts.config = c;
  parts.format = o.format;
  parts.path = c.name;
  parts.embedding = embedding;
  parts.head = one_matrix ? embedding : head;
  parts.final_norm.assign(static_cast<size_t>(c.d_model), 1.0f);
  for (int i = 0; i < c.n_layers; ++i)
    parts.layers.push_back(distinct[static_cast<size_t>(i % o.distinct_layers)]);
  return Model::create(std::move(parts));
}

}  // namespace evalrun::engine
