#include "methods/heads/trained_draft.h"

#include <algorithm>

#include "methods/heads/draft_network.h"

namespace evalrun::methods {

namespace {

// head @ map, rounded once: a map between the last norm and the output costs nothing per token.
std::shared_ptr<const engine::WeightMatrix> mapped_head(const engine::WeightMatrix& head,
                                                        const engine::WeightMatrix& map,
                                                        engine::WeightStorage storage) {
  const auto d = static_cast<size_t>(head.in());
  std::vector<float> by_input(d * d), row(d), product(d);
  for (size_t i = 0; i < d; ++i)
    map.copy_row(static_cast<int>(i), std::span(by_input).subspan(i * d, d));
  auto result = std::make_shared<engine::WeightMatrix>(storage, head.out(), head.in());
  for (int o = 0; o < head.out(); ++o) {
    head.copy_row(o, row);
    std::fill(product.begin(), product.end(), 0.0f);
    for (size_t i = 0; i < d; ++i)
      for (size_t j = 0; j < d; ++j) product[j] += row[i] * by_input[i * d + j];
    result->set_row(o, product);
  }
  return result;
}

}  // namespace

TrainedDraft open_trained_draft(AdapterReader& reader, const engine::Model& target,
                                engine::WeightStorage storage) {
  TrainedDraft draft;
  engine::ModelParts parts;
  parts.config = draft_config(reader, target, reader.integer("layers", 1, 64));
  parts.path = reader.path();
  parts.format = storage == engine::WeightStorage::kF32 ? engine::WeightFormat::kF32
                                                        : engine::WeightFormat::kInt8;
  draft.ids = reader.draft_vocabulary();
  if (reader.has("out.weight")) {
    constexpr auto kExact = engine::WeightStorage::kF32;
    const int d = parts.config.d_model;
    parts.head = mapped_head(*reader.head("lm_head.weight", draft.ids, kExact),
                             reader.matrix("out.weight", d, d, kExact), storage);
  } else {
    parts.head = reader.head("lm_head.weight", draft.ids, storage);
  }
  parts.config.head_size = parts.head->out();
  for (int l = 0; l < parts.config.n_layers; ++l)
    parts.layers.push_back(read_draft_layer(reader, l, parts.config, storage));
  parts.final_norm = reader.vector("norm", parts.config.d_model);
  reader.finish();
  parts.embedding = target.shared_embedding();
  const bool own_head = parts.head != target.shared_head();
  draft.model = engine::Model::create(std::move(parts));
  draft.extra_bytes = draft.model->streamed_bytes() - (own_head ? 0 : draft.model->head().size());
  return draft;
}

}  // namespace evalrun::methods
