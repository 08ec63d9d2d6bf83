// What a decoder-only transformer looks like, as data. One forward serves every family: Llama
// 1-3.x, Vicuna, CodeLlama, SmolLM2, Mistral, Qwen2, Qwen3 differ only in these fields.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace evalrun::engine {

// Frequency scaling of rotary embeddings. Angles are position * inv_freq[i], i < head_dim / 2.
struct RopeConfig {
  enum class Scaling { kNone, kLinear, kLlama3, kYarn };
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;                                         // linear, llama3, yarn
  double low_freq_factor = 1.0;                                // llama3
  double high_freq_factor = 4.0;                               // llama3
  double original_context = 0;                                 // llama3, yarn
  double beta_fast = 32, beta_slow = 1, attention_factor = 0;  // yarn; 0 = derived from factor
  bool truncate = true;  // yarn: round the borders of the ramp to whole frequencies
  // Divisors per frequency as GGUF stores them (rope_freqs.weight); empty = none.
  std::vector<float> factors;
};

struct ModelConfig {
  std::string architecture;  // "llama", "mistral", "qwen2", "qwen3"
  std::string name;          // for tables, e.g. "SmolLM2-135M-Instruct"
  int n_layers = 0;
  int d_model = 0;     // hidden size
  int n_heads = 0;     // query heads
  int n_kv_heads = 0;  // key/value heads; n_heads % n_kv_heads == 0
  int head_dim = 0;    // not always d_model / n_heads
  int d_ffn = 0;
  int vocab_size = 0;
  int max_context = 0;  // positions the model was made for
  float norm_eps = 1e-5f;
  bool tied_head = false;  // output matrix is the token embedding
  bool qkv_bias = false;   // Qwen2
  bool o_bias = false;     // attention_bias=true models
  bool mlp_bias = false;
  bool qk_norm = false;  // Qwen3: RMSNorm per head before rope
  // Drafters only. Outputs of the head that are fewer than the ids it embeds (0 = vocab_size); a
  // first layer without attention norm and no final norm (EAGLE-1, Falcon: features in, features
  // out); rows of twice the width, an embedding and a feature, each with a norm, that q, k and v
  // read side by side while only the feature is the residual stream (EAGLE-3).
  int head_size = 0;
  bool bare_input = false, bare_output = false, paired_input = false;
  int sliding_window = 0;      // 0 = none; position i sees i-window+1..i
  std::vector<bool> windowed;  // per layer; empty = all layers when sliding_window > 0
  RopeConfig rope;

  bool layer_is_windowed(int layer) const {
    return sliding_window > 0 && (windowed.empty() || windowed[static_cast<size_t>(layer)]);
  }
  int n_logits() const { return head_size > 0 ? head_size : vocab_size; }
  int input_width() const { return paired_input ? 2 * d_model : d_model; }
  int kv_dim() const { return n_kv_heads * head_dim; }
  int q_dim() const { return n_heads * head_dim; }
  // Throws data_error naming the field when the numbers cannot describe a model.
  void validate(const std::string& file) const;
};

// cos and sin of every position, [positions, head_dim / 2] each, computed as Hugging Face does
// (float32 frequencies and angles), so that long positions agree with the published models.
struct RopeTable {
  int positions = 0;
  int half_dim = 0;
  std::vector<float> cos, sin;
};
RopeTable make_rope_table(const ModelConfig& config, int positions);

}  // namespace evalrun::engine
