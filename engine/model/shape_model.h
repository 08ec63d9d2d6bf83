// Models of a shape with random weights, to learn what a model of that size costs before it is
// there. Times depend on sizes, not on values: so a few layers are made and used in turn, layer i
// being layer i mod n of them. What must not be shared is not: every layer has keys and values of
// its own, and embedding and output matrix have their true sizes. Only where the distinct layers
// are much larger than all caches are their weights read from memory, as a real model's are.
#pragma once
#include <cstdint>
#include <memory>

#include "engine/model/model.h"

namespace evalrun::engine {

// Bytes of a model's weights as its loader would hold them: of one layer, and of what it has once.
// `format`: here and below one of the rounded_formats(). What kStored takes, only a file can say:
// its tensors may have different types.
struct WeightBytes {
  int64_t layer = 0, rest = 0;
  int64_t with_layers(int n) const { return rest + n * layer; }
};
WeightBytes weight_bytes(const ModelConfig& config, WeightFormat format);
int64_t n_parameters(const ModelConfig& config);

// How many layers together have at least `least_bytes`: 1 to all of them.
int distinct_layers(const ModelConfig& config, WeightFormat format, int64_t least_bytes);

struct ShapeModelOptions {
  WeightFormat format = WeightFormat::kInt8;
  int distinct_layers = 1;  // 1 to all
  int n_threads = 1;
  uint64_t seed = 1;
};
// Weights are normal, with standard deviations that keep all values finite and of a model's size:
// entries of 1.5 / sqrt(inputs), norms of 1. The first 1,024 outputs of a matrix are drawn, the
// others repeat them: a forward reads as many bytes, and a model of gigabytes is made in seconds.
// The configuration is that of a model, not of a drafter. No hash, no tokenizer.
std::shared_ptr<const Model> make_shape_model(const ModelConfig& config,
                                              const ShapeModelOptions& options);

}  // namespace evalrun::engine
