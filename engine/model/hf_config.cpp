#include "engine/model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"

namespace evalrun::engine {
namespace {

using base::ObjectReader;
using nlohmann::json;

// A key that exists and is not null.
bool given(ObjectReader& r, const std::string& key) {
  const json* value = r.raw(key);
  return value != nullptr && !value->is_null();
}

// transformers: 0.1 * m * ln(scale) + 1.
double yarn_mscale(double scale, double m) {
  return scale <= 1 ? 1.0 : 0.1 * m * std::log(scale) + 1.0;
}

void read_yarn(ObjectReader& r, int max_positions, RopeConfig& rope) {
  rope.original_context =
      r.optional<double>("original_max_position_embeddings", static_cast<double>(max_positions));
  rope.factor = given(r, "factor") ? r.required<double>("factor")
                                   : static_cast<double>(max_positions) / rope.original_context;
  rope.beta_fast = r.optional<double>("beta_fast", 32);
  rope.beta_slow = r.optional<double>("beta_slow", 1);
  rope.truncate = r.optional<bool>("truncate", true);
  rope.attention_factor = r.optional<double>("attention_factor", 0);
  const double mscale = r.optional<double>("mscale", 0),
               all = r.optional<double>("mscale_all_dim", 0);
  if (!given(r, "attention_factor") && mscale != 0 && all != 0)
    rope.attention_factor = yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, all);
}

// `object` is "rope_scaling" (transformers 4) or "rope_parameters" (5, which also holds the theta).
void read_rope_object(const json& object, const std::string& file, const std::string& key,
                      int max_positions, RopeConfig& rope) {
  if (!object.is_object())
    throw base::data_error(file, key, fmt::format("must be an object, not {}", object.type_name()));
  ObjectReader r(object, file, key);
  rope.theta = r.optional<double>("rope_theta", rope.theta);
  if (r.optional<double>("partial_rotary_factor", 1.0) != 1.0)
    r.fail("partial_rotary_factor", "other than 1 is not supported");
  const std::string type = given(r, "rope_type") ? r.required<std::string>("rope_type")
                                                 : r.required<std::string>("type");
  if (given(r, "type") && r.required<std::string>("type") != type)
    r.fail("type", "disagrees with rope_type");
  if (type == "default") {
    rope.scaling = RopeConfig::Scaling::kNone;
    r.raw("factor");
  } else if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
    rope.factor = r.required<double>("factor");
    r.raw("original_max_position_embeddings");
  } else if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
    rope.factor = r.required<double>("factor");
    rope.low_freq_factor = r.required<double>("low_freq_factor");
    rope.high_freq_factor = r.required<double>("high_freq_factor");
    rope.original_context = r.required<double>("original_max_position_embeddings");
  } else if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
    read_yarn(r, max_positions, rope);
    r.raw("finetuned");
  } else {
    r.fail("rope_type", fmt::format("'{}' is not supported", type),
           "supported: default, linear, llama3, yarn");
  }
  r.finish();  // an unknown key here would change every angle
}

RopeConfig read_rope(ObjectReader& r, const json& config, const std::string& file,
                     int max_positions) {
  RopeConfig rope;
  rope.theta = r.optional<double>("rope_theta", 10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (given(r, key)) read_rope_object(config.at(key), file, key, max_positions, rope);
  if (r.optional<double>("partial_rotary_factor", 1.0) != 1.0)
    r.fail("partial_rotary_factor", "other than 1 is not supported");
  return rope;
}

// One boolean per layer from "layer_types", or nothing.
std::optional<std::vector<bool>> read_layer_types(ObjectReader& r, int n_layers) {
  if (!given(r, "layer_types")) return std::nullopt;
  const auto types = r.required<std::vector<std::string>>("layer_types");
  if (types.size() != static_cast<size_t>(n_layers))
    r.fail("layer_types", fmt::format("has {} entries for {} layers", types.size(), n_layers));
  std::vector<bool> windowed;
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      r.fail("layer_types", fmt::format("'{}' is not supported", type),
             "supported: full_attention, sliding_attention");
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

void read_window(ObjectReader& r, const Family& family, ModelConfig& c) {
  if (family.window == Family::Window::kNone || !given(r, "sliding_window")) return;
  const auto layer_types = read_layer_types(r, c.n_layers);
  if (family.window == Family::Window::kUpperLayers &&
      !r.optional<bool>("use_sliding_window", false))
    return;
  const int window = r.required<int>("sliding_window");
  if (window < 1) r.fail("sliding_window", fmt::format("must be positive, not {}", window));
  if (layer_types) {
    c.windowed = *layer_types;
  } else if (family.window == Family::Window::kUpperLayers) {
    const int first = r.required<int>("max_window_layers");
    for (int i = 0; i < c.n_layers; ++i) c.windowed.push_back(i >= first);
  }
  const bool any = c.windowed.empty() ||
                   std::find(c.windowed.begin(), c.windowed.end(), true) != c.windowed.end();
  if (any)
    c.sliding_window = window;
  else
    c.windowed.clear();
}

void read_sizes(ObjectReader& r, const Family& family, ModelConfig& c) {
  c.n_layers = r.required<int>("num_hidden_layers");
  c.d_model = r.required<int>("hidden_size");
  c.d_ffn = r.required<int>("intermediate_size");
  c.n_heads = r.required<int>("num_attention_heads");
  c.n_kv_heads = family.default_kv_heads && !given(r, "num_key_value_heads")
                     ? c.n_heads
                     : r.required<int>("num_key_value_heads");
  c.vocab_size = r.required<int>("vocab_size");
  c.max_context = r.required<int>("max_position_embeddings");
  c.norm_eps = static_cast<float>(r.required<double>("rms_norm_eps"));
  if (given(r, "head_dim")) {
    c.head_dim = r.required<int>("head_dim");
  } else {
    if (c.n_heads < 1 || c.d_model % c.n_heads != 0)
      r.fail("num_attention_heads",
             fmt::format("{} does not divide hidden_size, {}", c.n_heads, c.d_model));
    c.head_dim = c.d_model / c.n_heads;
  }
}

ModelConfig read_every_field(ObjectReader& r, const json& config, const std::string& file) {
  const Family& family = family_by_model_type(file, r.required<std::string>("model_type"));
  if (given(r, "quantization_config"))
    r.fail("quantization_config", "quantised checkpoints are not supported",
           "use the original weights (F32, F16 or BF16), or a GGUF file");
  const std::string activation = r.optional<std::string>("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    r.fail("hidden_act", fmt::format("'{}' is not supported", activation), "supported: silu");

  ModelConfig c;
  c.architecture = family.name;
  read_sizes(r, family, c);
  c.tied_head = r.optional<bool>("tie_word_embeddings", false);
  const bool attention_bias = family.attention_bias && r.optional<bool>("attention_bias", false);
  c.qkv_bias = family.qkv_bias || attention_bias;
  c.o_bias = attention_bias;
  c.mlp_bias = family.mlp_bias && r.optional<bool>("mlp_bias", false);
  c.qk_norm = family.qk_norm;
  c.rope = read_rope(r, config, file, c.max_context);
  c.validate(file);  // before anything is allocated per layer
  read_window(r, family, c);
  c.validate(file);
  return c;
}

void check_is_object(const json& config, const std::string& file) {
  if (!config.is_object()) throw base::data_error(file, "", "must be a JSON object");
}

// Keys that published files hold and that change no forward pass of these families: of training and
// of generation, what `PretrainedConfig` of transformers writes for every model, and what a family
// may leave unread. Token ids, dropouts and names that begin with an underscore are known by that.
constexpr std::string_view kWithoutEffect[] = {
    "add_cross_attention",
    "architectures",
    "attention_bias",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "label2id",
    "layer_types",
    "length_penalty",
    "max_length",
    "max_sequence_length",
    "max_window_layers",
    "min_length",
    "mlp_bias",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "rope_interleaved",
    "sliding_window",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_mrope",
    "use_sliding_window",
};

bool is_without_effect(std::string_view key) {
  return key.starts_with('_') || key.ends_with("_token_id") || key.ends_with("_dropout") ||
         std::ranges::find(kWithoutEffect, key) != std::end(kWithoutEffect);
}

std::string advice(const std::string& key, const std::vector<std::string>& known) {
  const auto distance = [&](const std::string& name) { return base::edit_distance(key, name); };
  const std::string nearest = std::ranges::min(known, {}, distance);
  return (distance(nearest) <= 3 ? fmt::format("did you mean '{}'? ", nearest) : "") +
         "Remove it from the file if it does not change a forward pass. If it does, this engine "
         "cannot compute such a model";
}

}  // namespace

ModelConfig read_hf_config(const json& config, const std::string& file) {
  check_is_object(config, file);
  ObjectReader r(config, file, "");
  return read_every_field(r, config, file);
}

ModelConfig read_hf_shape(const json& config, const std::string& file) {
  check_is_object(config, file);
  ObjectReader r(config, file, "");
  const ModelConfig c = read_every_field(r, config, file);
  for (const std::string& key : r.unknown())
    if (!is_without_effect(key))
      throw base::data_error(file, "", fmt::format("unknown field '{}'", key),
                             advice(key, r.asked()));
  return c;
}

}  // namespace evalrun::engine
