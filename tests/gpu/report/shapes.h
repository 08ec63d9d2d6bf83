// Models of published shapes with random weights, for timing (engine/model/shape_model.h).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/session.h"

namespace evalrun::engine::gpu_report {

struct Shape {
  std::string name;  // "Llama-2-7B bf16"
  ModelConfig config;
  WeightFormat format = WeightFormat::kBf16;
  int bit_layers = 0;  // with so many layers rows are compared on it, bit by bit; 0: not at all
};
// In the order of what is wanted first. `tiny`: three of a few kilobytes, for the emulator.
std::vector<Shape> report_shapes(bool tiny);

// And those whose memory is worth a plan: the same models, a larger one, in every format they are
// likely to be used in.
std::vector<Shape> planned_shapes();

// Layers in turns are no layers at all when a cache holds them: distinct ones have at least
// `least_bytes`, or all layers are distinct.
struct ShapeModel {
  std::shared_ptr<const Model> model;
  int distinct_layers = 0;
};
// `layers`: instead of the shape's; 0 = those.
ShapeModel make_shape_model(const Shape& shape, size_t least_bytes, uint64_t seed, int layers = 0);

// Multiplications and additions of the layers' products for a prompt of which only keys and values
// are wanted; attention is not counted.
double prefill_flops(const Model& model, int tokens);

// One root, the parent of every other node drawn among the earlier ones: the first n nodes of a
// tree are a tree. `chain`: each below the one before.
std::vector<Row> random_tree(int n, int vocabulary, uint64_t seed, bool chain = false);

}  // namespace evalrun::engine::gpu_report
