// Shapes: what the cost of a forward depends on, known without any weights. Published models' are
// facts in shapes.json; any other is its config.json, as Hugging Face has it. Models of them with
// random weights: engine/model/shape_model.h.
#pragma once
#include <string>
#include <vector>

#include "engine/model/config.h"

namespace evalrun::engine {

struct Shape {
  std::string name;  // "llama-3.2-1b"; of a file: the folder of config.json, or the file's own name
  std::string source;  // URL of the published config.json, or the file
  // Its name is "shape:" and the name above: no table of it passes for a model's.
  ModelConfig config;
};

// The built-in ones, from small to large.
const std::vector<Shape>& known_shapes();

// A built-in one by its name, or the shape of a config.json: `text` is its path or that of its
// folder. Throws usage_error for a name nobody knows (with the names) and for the path of weights,
// data_error for a file that cannot be read as the configuration of a family the engine knows:
// file, field, remedy (read_hf_shape, engine/model/hf_config.h).
Shape find_shape(const std::string& text);

}  // namespace evalrun::engine
