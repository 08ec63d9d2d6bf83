#include "tests/gpu/report/shapes.h"

#include <fmt/format.h>

#include <initializer_list>

#include "engine/base/rng.h"
#include "engine/devices.h"
#include "engine/model/shape_model.h"
#include "engine/model/shapes.h"

namespace evalrun::engine::gpu_report {
namespace {

constexpr int kMaxContext = 16384;  // more than some have: what a step costs is asked, no text

// As engine/model/shapes.json has it, under the name that the report's tables have.
ModelConfig published(const std::string& shape, const std::string& name) {
  ModelConfig c = find_shape(shape).config;
  c.name = name, c.max_context = kMaxContext;
  return c;
}

ModelConfig tiny_config() {
  ModelConfig c;
  c.architecture = "llama", c.name = "tiny";
  c.n_layers = 2, c.d_model = 64, c.n_heads = 4, c.n_kv_heads = 2, c.head_dim = 16;
  c.d_ffn = 96, c.vocab_size = 128, c.max_context = kMaxContext;
  return c;
}

ModelConfig llama2_7b() { return published("llama-2-7b", "Llama-2-7B"); }
ModelConfig llama2_70b() { return published("llama-2-70b", "Llama-2-70B"); }
ModelConfig llama3_8b() { return published("llama-3-8b", "Llama-3-8B"); }
ModelConfig smollm2_135m() { return published("smollm2-135m", "SmolLM2-135M"); }

}  // namespace

std::vector<Shape> report_shapes(bool tiny) {
  using enum WeightFormat;
  if (tiny) {
    const ModelConfig c = tiny_config();
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
  const int distinct = distinct_layers(c, shape.format, static_cast<int64_t>(least_bytes));
  return {engine::make_shape_model(c, {.format = shape.format,
                                       .distinct_layers = distinct,
                                       .n_threads = allowed_cores(),
                                       .seed = seed}),
          distinct};
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
