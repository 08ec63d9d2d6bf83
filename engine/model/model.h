// Immutable weights and configuration of one model, loaded once and shared by sessions. Several
// models live in one process; nothing is global.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine {

// Rows of q and k are in half-split order (Hugging Face): rope turns (x[i], x[i + head_dim/2]).
// Loaders undo the pairwise permutation of GGUF files.
struct LayerWeights {
  std::vector<float> attn_norm;   // [d_model]
  std::vector<float> embed_norm;  // [d_model], of the embedding in a layer with paired input
  WeightMatrix q, k, v;           // [q_dim | kv_dim | kv_dim, d_model]
  std::vector<float> q_bias, k_bias, v_bias, o_bias;  // empty when the model has none
  std::vector<float> q_norm, k_norm;                  // [head_dim], Qwen3
  WeightMatrix o;                                     // [d_model, q_dim]
  std::vector<float> ffn_norm;                        // [d_model]
  WeightMatrix gate, up;                              // [d_ffn, d_model]
  WeightMatrix down;                                  // [d_model, d_ffn]
  std::vector<float> gate_bias, up_bias, down_bias;

  std::array<const WeightMatrix*, 7> matrices() const {
    return {&q, &k, &v, &o, &gate, &up, &down};
  }
  std::array<WeightMatrix*, 7> matrices() { return {&q, &k, &v, &o, &gate, &up, &down}; }
  // The same layer with empty matrices.
  LayerWeights without_matrices() const;
};

class Tokenizer;
class ChatTemplate;

// Everything a loader fills in; turned into a Model by Model::create.
struct ModelParts {
  ModelConfig config;
  WeightFormat format = WeightFormat::kF32;
  // Bits that most of the layers' weights have in the file (code_bits()), whatever `format` makes
  // of them; 0 for made-up models.
  int stored_bits = 0;
  std::string path;  // as given
  std::string
      hash;  // SHA-256 over the weight file(s) and configuration, hex; "" for made-up models
  std::shared_ptr<const WeightMatrix> embedding;  // [vocab, d_model]
  std::vector<std::shared_ptr<const LayerWeights>> layers;
  std::vector<float> final_norm;                      // [d_model]
  std::shared_ptr<const WeightMatrix> head;           // [n_logits, d_model]; same object when tied
  std::shared_ptr<const Tokenizer> tokenizer;         // null when the file has none
  std::shared_ptr<const ChatTemplate> chat_template;  // null when unknown; see chat_template_error
  std::string chat_template_error;                    // why it is null, for the message
};

class Model {
 public:
  // Checks every shape against the config; throws data_error naming the tensor.
  static std::shared_ptr<const Model> create(ModelParts parts);
  // The first n layers with the same embedding, final norm and head; shares the weights (SpS with
  // draft=layers:n). 1 <= n <= n_layers.
  std::shared_ptr<const Model> first_layers(int n) const;

  const ModelConfig& config() const { return p_.config; }
  WeightFormat format() const { return p_.format; }
  int stored_bits() const { return p_.stored_bits; }
  const std::string& path() const { return p_.path; }
  const std::string& hash() const { return p_.hash; }
  const WeightMatrix& embedding() const { return *p_.embedding; }
  const LayerWeights& layer(int i) const { return *p_.layers[static_cast<size_t>(i)]; }
  const std::vector<float>& final_norm() const { return p_.final_norm; }
  const WeightMatrix& head() const { return *p_.head; }
  // For models that share the matrices of this one.
  const ModelParts& parts() const { return p_; }
  std::shared_ptr<const WeightMatrix> shared_embedding() const { return p_.embedding; }
  std::shared_ptr<const WeightMatrix> shared_head() const { return p_.head; }
  std::shared_ptr<const LayerWeights> shared_layer(int i) const {
    return p_.layers[static_cast<size_t>(i)];
  }
  const Tokenizer* tokenizer() const { return p_.tokenizer.get(); }
  const ChatTemplate* chat_template() const { return p_.chat_template.get(); }
  const std::string& chat_template_error() const { return p_.chat_template_error; }
  // Bytes of weights held by this model (a tied head counts once; shared layers count fully).
  size_t weight_bytes() const;
  // Bytes of weights one forward reads: layers and head, not the embedding table.
  size_t streamed_bytes() const;
  int64_t n_parameters() const;
  // This model again, by NUMA node: with its weights in that node's memory, for as long as it
  // lives. Made and guarded by engine/cpu/node_weights.cpp.
  std::map<int, std::shared_ptr<const Model>>& on_nodes() const { return on_nodes_; }
  // This model again, by format: made when first asked for, for as long as this one lives. Made and
  // guarded by engine/model/format_copy.cpp.
  std::map<WeightFormat, std::shared_ptr<const Model>>& copies() const { return copies_; }
  // Embedding of one token, [d_model].
  void embed(int32_t token, std::span<float> out) const { embedding().copy_row(token, out); }

 private:
  explicit Model(ModelParts parts) : p_(std::move(parts)) {}
  ModelParts p_;
  mutable std::map<int, std::shared_ptr<const Model>> on_nodes_;
  mutable std::map<WeightFormat, std::shared_ptr<const Model>> copies_;
};

// Options of `load_model`.
struct LoadOptions {
  WeightFormat format = WeightFormat::kF32;
  int n_threads = 0;  // 0 = all cores allowed
  bool need_tokenizer = true;
  std::string chat_template;  // a known name or a file with Jinja text; "" = the model's own
  bool hash_weights = true;   // false skips reading every byte for the SHA-256
  // Keep weights that had to be rounded in $EVALRUN_HOME/weights (engine/model/weight_cache.h), of
  // models this large at least. EVALRUN_NO_WEIGHT_CACHE=1 and EVALRUN_CACHE_MAX=0 switch it off.
  bool cache = true;
  size_t cache_from_bytes = size_t{16} << 20;
};

// PATH is a GGUF file or a Hugging Face folder (config.json + safetensors + tokenizer.json).
// Throws data_error (file, tensor or field, remedy) for anything missing, truncated or lying, and
// says before loading when the machine has too little memory.
std::shared_ptr<const Model> load_model(const std::string& path, const LoadOptions& options = {});

// A small random model for tests and fault drills: weights from the seed, no tokenizer. In one of
// the rounded_formats().
std::shared_ptr<const Model> make_random_model(const ModelConfig& config, uint64_t seed,
                                               WeightFormat format = WeightFormat::kF32);
// The same model in another of the rounded_formats(): every matrix dequantised and rounded again.
// For tests; users convert from the file (load_model).
std::shared_ptr<const Model> convert_model(const Model& model, WeightFormat format);

}  // namespace evalrun::engine
