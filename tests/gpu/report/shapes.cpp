#include "tests/gpu/report/shapes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/devices.h"
#include "engine/model/parallel_for.h"

namespace evalrun::engine::gpu_report {
namespace {

constexpr int kMaxContext = 16384;  // more than some have: what a step costs is asked, no text

ModelConfig llama(const std::string& name, int layers, int d_model, int heads, int kv_heads,
                  int d_ffn, int vocabulary) {
  ModelConfig c;
  c.architecture = "llama", c.name = name;
  c.n_layers = layers, c.d_model = d_model, c.n_heads = heads, c.n_kv_heads = kv_heads;
  c.head_dim = d_model / heads, c.d_ffn = d_ffn, c.vocab_size = vocabulary;
  c.max_context = kMaxContext;
  return c;
}

// Entries of about gain / sqrt(in), as in make_random_model(). The first 1024 outputs are drawn,
// the others repeat them.
WeightMatrix random_matrix(WeightStorage storage, int out, int in, double gain, uint64_t seed) {
  EVALRUN_CHECK(out % WeightMatrix::kPanel == 0, "{} outputs are no whole panels", out);
  WeightMatrix m(storage, out, in, allocate_weights(WeightMatrix::bytes_for(storage, out, in)));
  const int threads = allowed_cores();
  const size_t panels = static_cast<size_t>(m.panels());
  const size_t drawn = std::min<size_t>(panels, 64);
  const double scale = gain * std::sqrt(12.0 / static_cast<double>(in));
  parallel_for(threads, drawn, [&](size_t p) {
    m.clear_panel(static_cast<int>(p));
    base::Rng rng(base::combine_seeds({seed, p}));
    std::vector<float> row(static_cast<size_t>(in));
    for (int i = 0; i < WeightMatrix::kPanel; ++i) {
      for (float& x : row) x = static_cast<float>((rng.uniform() - 0.5) * scale);
      m.set_row(static_cast<int>(p) * WeightMatrix::kPanel + i, row);
    }
  });
  std::byte* bytes = m.mutable_bytes().data();
  parallel_for(threads, panels - drawn, [&](size_t i) {
    std::memcpy(bytes + (drawn + i) * m.panel_bytes(), bytes + i % drawn * m.panel_bytes(),
                m.panel_bytes());
  });
  return m;
}

std::shared_ptr<const LayerWeights> random_layer(const ModelConfig& c, WeightStorage storage,
                                                 uint64_t seed) {
  auto w = std::make_shared<LayerWeights>();
  uint64_t part = 0;
  const auto matrix = [&](int out, int in) {
    return random_matrix(storage, out, in, 1.5, base::combine_seeds({seed, part++}));
  };
  w->attn_norm.assign(static_cast<size_t>(c.d_model), 1.0f);
  w->ffn_norm = w->attn_norm;
  w->q = matrix(c.q_dim(), c.d_model);
  w->k = matrix(c.kv_dim(), c.d_model);
  w->v = matrix(c.kv_dim(), c.d_model);
  w->o = matrix(c.d_model, c.q_dim());
  w->gate = matrix(c.d_ffn, c.d_model);
  w->up = matrix(c.d_ffn, c.d_model);
  w->down = matrix(c.d_model, c.d_ffn);
  return w;
}

size_t layer_bytes(const LayerWeights& w) {
  size_t bytes = 0;
  for (const WeightMatrix* m : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down})
    bytes += m->size();
  return bytes;
}

// Touvron et al. 2023 (arXiv 2307.09288), Grattafiori et al. 2024 (arXiv 2407.21783), Ben Allal et
// al. 2025 (arXiv 2502.02737).
ModelConfig llama2_7b() { return llama("Llama-2-7B", 32, 4096, 32, 32, 11008, 32000); }
ModelConfig llama2_70b() { return llama("Llama-2-70B", 80, 8192, 64, 8, 28672, 32000); }
ModelConfig llama3_8b() { return llama("Llama-3-8B", 32, 4096, 32, 8, 14336, 128256); }
ModelConfig smollm2_135m() {
  ModelConfig c = llama("SmolLM2-135M", 30, 576, 9, 3, 1536, 49152);
  c.tied_head = true;
  return c;
}

}  // namespace

std::vector<Shape> report_shapes(bool tiny) {
  using enum WeightFormat;
  if (tiny) {
    const ModelConfig c = llama("tiny", 2, 64, 4, 2, 96, 128);
    return {{"tiny bf16", c, kBf16, 2}, {"tiny q4", c, kQ4}};
  }
  const ModelConfig llama2 = llama2_7b(), llama3 = llama3_8b(), smol = smollm2_135m();
  // Two layers of the large ones: their products are wide ones, as no small model's are.
  return {{"Llama-2-7B bf16", llama2, kBf16, 2}, {"SmolLM2-135M bf16", smol, kBf16, 30},
          {"Llama-2-7B int8", llama2, kInt8, 2}, {"Llama-2-7B q4", llama2, kQ4, 2},
          {"Llama-3-8B bf16", llama3, kBf16},    {"SmolLM2-135M q4", smol, kQ4, 30}};
}

std::vector<Shape> planned_shapes() {
  std::vector<Shape> shapes;
  for (const ModelConfig& c : {smollm2_135m(), llama2_7b(), llama3_8b(), llama2_70b()})
    for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kQ4})
      shapes.push_back({fmt::format("{} {}", c.name, name_of(format)), c, format});
  return shapes;
}

ShapeModel make_shape_model(const Shape& shape, size_t least_bytes, uint64_t seed, int layers) {
  ModelConfig c = shape.config;
  if (layers > 0) c.n_layers = layers;
  const WeightFormatSpec& spec = spec_of(shape.format);
  ModelParts parts;
  parts.config = c;
  parts.format = shape.format;
  parts.path = "random weights: " + shape.name;
  const auto matrix = [&](WeightStorage storage, uint64_t part) {
    return std::make_shared<const WeightMatrix>(random_matrix(
        storage, c.vocab_size, c.d_model, 4.0, base::combine_seeds({seed, 1000 + part})));
  };
  parts.embedding = matrix(spec.embedding, 0);
  parts.head = c.tied_head && spec.head == spec.embedding ? parts.embedding : matrix(spec.head, 1);
  parts.final_norm.assign(static_cast<size_t>(c.d_model), 1.0f);

  std::vector<std::shared_ptr<const LayerWeights>> distinct;
  size_t bytes = 0;
  do {
    distinct.push_back(random_layer(c, spec.layers, base::combine_seeds({seed, distinct.size()})));
    bytes += layer_bytes(*distinct.back());
  } while (bytes < least_bytes && distinct.size() < static_cast<size_t>(c.n_layers));
  for (int l = 0; l < c.n_layers; ++l)
    parts.layers.push_back(distinct[static_cast<size_t>(l) % distinct.size()]);
  return {Model::create(std::move(parts)), static_cast<int>(distinct.size())};
}

double prefill_flops(const Model& model, int tokens) {
  const auto weights = [](std::initializer_list<const WeightMatrix*> matrices) {
    double n = 0;
    for (const WeightMatrix* m : matrices)
      n += static_cast<double>(m->out()) * static_cast<double>(m->in());
    return n;
  };
  const int layers = model.config().n_layers;
  double sum = 0;
  for (int l = 0; l < layers; ++l) {
    const LayerWeights& w = model.layer(l);
    sum += weights({&w.q, &w.k, &w.v});
    if (l < layers - 1) sum += weights({&w.o, &w.gate, &w.up, &w.down});
  }
  return 2.0 * sum * tokens;
}

std::vector<Row> random_tree(int n, int vocabulary, uint64_t seed, bool chain) {
  base::Rng rng(seed);
  std::vector<Row> rows(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    Row& r = rows[static_cast<size_t>(i)];
    r.token = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocabulary)));
    if (i > 0) r.parent = chain ? i - 1 : static_cast<int32_t>(rng.below(static_cast<uint64_t>(i)));
  }
  return rows;
}

}  // namespace evalrun::engine::gpu_report
