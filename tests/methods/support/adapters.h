// Adapters for tests: random weights for a small model, files in our layout and in the published
// ones.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace evalrun::tests {

// Tensors and metadata of a safetensors file, to be changed and written.
struct AdapterFile {
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::vector<int32_t>> ids;  // I32
  std::map<std::string, std::string> metadata;

  void matrix(const std::string& name, int out, int in, std::vector<float> values = {});  // zeros
  void vector(const std::string& name, std::vector<float> values);
  void write(const std::string& path) const;
};

// Our layout's metadata for a target; `config` is JSON.
std::map<std::string, std::string> adapter_metadata(const std::string& method,
                                                    const engine::Model& target,
                                                    const std::string& config);

// Random weights: kinds medusa, eagle, eagle3, falcon (k = 2, fc), falcon3 (k = 3, two layers, per
// token), falcon_recurrent, draft, bita (three masks, five prefix tokens), bita_heads (a prefix for
// every query head), pass (four embeddings), eagle_stored (with a stored tree), gated_lora, space
// (one embedding for five masks, nothing tuned), space_tuned. Over all ids of the target but 1,
// over both where there are two.
AdapterFile random_adapter(const std::string& kind, const engine::Model& target, uint64_t seed);
// The same as a file that lives as long as the process; made when it is first asked for.
const std::string& random_adapter_path(const std::string& kind, const engine::Model& target);

}  // namespace evalrun::tests
