#include "methods/trained_draft.h"

#include "methods/draft_network.h"

namespace evalrun::methods {

TrainedDraft open_trained_draft(AdapterReader& reader, const engine::Model& target,
                                engine::WeightStorage storage) {
  TrainedDraft draft;
  engine::ModelParts parts;
  parts.config = draft_config(reader, target, reader.integer("layers", 1, 64));
  parts.path = reader.path();
  parts.format = storage == engine::WeightStorage::kF32 ? engine::WeightFormat::kF32
                                                        : engine::WeightFormat::kInt8;
  draft.ids = reader.draft_vocabulary();
  parts.head = reader.head("lm_head.weight", draft.ids, storage);
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
