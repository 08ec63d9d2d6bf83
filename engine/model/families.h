// The model families as data: what a file calls its architecture, which options it may set, and the
// names of its tensors. Adding a family that this forward can express is one row here.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/config.h"

namespace evalrun::engine {

struct Family {
  std::string_view name;               // model_type of Hugging Face; ModelConfig::architecture
  std::string_view gguf_architecture;  // general.architecture
  bool permuted_qk;       // GGUF stores q and k rows pairwise (converted from Llama and Mistral)
  bool qkv_bias;          // always has q, k, v biases
  bool attention_bias;    // honours "attention_bias" (q, k, v and o)
  bool mlp_bias;          // honours "mlp_bias"
  bool qk_norm;           // RMSNorm per head on q and k
  bool default_kv_heads;  // a missing num_key_value_heads means as many as query heads
  enum class Window { kNone, kAllLayers, kUpperLayers } window;  // what "sliding_window" means
};

// Throw data_error with the list of known families. GGUF files of Mistral say "llama".
const Family& family_by_model_type(const std::string& file, const std::string& model_type);
const Family& family_by_gguf_architecture(const std::string& file, const std::string& architecture);

// What a tensor is for. Roles from kAttnNorm on exist once per layer.
enum class Role {
  kEmbedding,
  kFinalNorm,
  kHead,
  kAttnNorm,
  kQ,
  kK,
  kV,
  kO,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kQNorm,
  kKNorm,
  kFfnNorm,
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias
};

enum class Naming { kGguf, kHuggingFace };

// One tensor a model of this configuration must have. cols == 0: a vector of `rows` values.
struct TensorSlot {
  Role role;
  int layer;  // -1 for tensors of the whole model
  std::string name;
  int rows, cols;
};

// All tensors of a model, the head included unless it is tied.
std::vector<TensorSlot> tensor_slots(const ModelConfig& config, Naming naming);

// Tensors that files may hold although a loader does not need them (tables it computes itself).
bool is_ignorable(std::string_view name, Naming naming);

}  // namespace evalrun::engine
