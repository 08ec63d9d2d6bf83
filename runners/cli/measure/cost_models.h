// The models of `evalrun cost --shape`: what may be made of a shape on this machine, and how.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/shapes.h"
#include "engine/session.h"

namespace evalrun::cli {

struct CostModel {
  std::shared_ptr<const engine::Model> model;
  int distinct_layers = 0;  // layers with weights of their own; the others use them in turn
};

// A format by its name. `auto` asks a file, and a shape has none: it is int8, as for most files
// (docs/cpu.md). Throws usage_error for `stored`, which is what a file has.
engine::WeightFormat shape_format(const std::string& name);

// Bytes that a model of this shape takes as a whole, with the caches of such a session.
double shape_needs(const engine::ModelConfig& config, engine::WeightFormat format,
                   engine::SessionOptions session);

// Throws data_error, before anything is allocated, where a model of the shape would not fit the
// memory of the session's device, though less than the model is made: what it needs, what there is,
// which formats and shapes fit. `session` has its tokens.
std::vector<CostModel> make_shape_models(const engine::Shape& shape,
                                         const std::vector<engine::WeightFormat>& formats,
                                         const engine::SessionOptions& session);

// Bytes of all caches of the device: distinct layers are a multiple of them.
int64_t device_cache_bytes(const std::string& device);

}  // namespace evalrun::cli
