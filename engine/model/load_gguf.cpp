// GGUF files as models. Keys and tensors as llama.cpp's converters write them.
#include <filesystem>
#include <limits>
#include <utility>

#include "engine/base/error.h"
#include "engine/formats/gguf.h"
#include "engine/model/assemble.h"
#include "engine/model/loaders.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::engine {
namespace {

constexpr const char* kGgufEmbedding = "token_embd.weight";
constexpr const char* kRopeFactors = "rope_freqs.weight";

// Keys below the architecture's name, with integers checked to fit.
class Fields {
 public:
  Fields(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}
  std::string key(const char* name) const { return fmt::format("{}.{}", prefix_, name); }
  bool has(const char* name) const { return file_.has(key(name)); }
  int integer(const char* name) const { return fit(name, file_.integer(key(name))); }
  int integer_or(const char* name, int fallback) const {
    return has(name) ? integer(name) : fallback;
  }
  double number(const char* name) const { return file_.number(key(name)); }
  double number_or(const char* name, double fallback) const {
    return file_.number_or(key(name), fallback);
  }
  std::string text_or(const char* name, const std::string& fallback) const {
    return file_.text_or(key(name), fallback);
  }
  [[noreturn]] void fail(const char* name, const std::string& what,
                         std::string hint = "the file is damaged or of an unsupported kind") const {
    throw base::data_error(file_.path(), key(name), what, std::move(hint));
  }

 private:
  int fit(const char* name, int64_t value) const {
    if (value < 0 || value > std::numeric_limits<int>::max())
      fail(name, fmt::format("is out of range: {}", value));
    return static_cast<int>(value);
  }
  const GgufFile& file_;
  std::string prefix_;
};

void read_rope(const GgufFile& file, const Fields& f, ModelConfig& c) {
  RopeConfig& rope = c.rope;
  rope.theta = f.number_or("rope.freq_base", 10000.0);
  if (const int n = f.integer_or("rope.dimension_count", c.head_dim); n != c.head_dim)
    f.fail("rope.dimension_count",
           fmt::format("is {}, but heads have {} values; partial rotation is "
                       "not supported",
                       n, c.head_dim));
  const std::string type = f.text_or("rope.scaling.type", "none");
  if (type == "none") {
    // Files from before the scaling keys.
    rope.factor = f.number_or("rope.scale_linear", 1.0);
    if (rope.factor != 1.0) rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
    rope.factor = f.number("rope.scaling.factor");
  } else if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
    rope.factor = f.number("rope.scaling.factor");
    rope.original_context = f.number("rope.scaling.original_context_length");
    rope.beta_fast = f.number_or("rope.scaling.yarn_beta_fast", 32);
    rope.beta_slow = f.number_or("rope.scaling.yarn_beta_slow", 1);
    for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_log_multiplier",
                            "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"})
      if (f.has(key))
        f.fail(key, "is set; this variant of YaRN is not supported", "use the Hugging Face folder");
  } else {
    f.fail("rope.scaling.type",
           fmt::format("'{}' is not supported (known: none, linear, yarn)", type));
  }
  if (const auto it = file.tensors().find(kRopeFactors); it != file.tensors().end()) {
    const GgufTensor& t = it->second;
    if (t.dtype != DType::kF32 || t.ne.size() != 1 || t.ne[0] != c.head_dim / 2)
      throw base::data_error(file.path(), fmt::format("tensor '{}'", kRopeFactors),
                             fmt::format("must be {} F32 values", c.head_dim / 2));
    rope.factors.resize(static_cast<size_t>(t.ne[0]));
    dequantize(t.dtype, t.bytes, rope.factors);
  }
}

int vocabulary_size(const GgufFile& file, const Fields& f) {
  const auto it = file.tensors().find(kGgufEmbedding);
  if (it == file.tensors().end())
    throw base::data_error(file.path(), fmt::format("tensor '{}'", kGgufEmbedding), "is missing",
                           "the file is not a language model, or a part of a split one");
  const int64_t rows = it->second.rows();
  if (rows > std::numeric_limits<int>::max() ||
      f.integer_or("vocab_size", static_cast<int>(rows)) != rows)
    f.fail("vocab_size",
           fmt::format("does not agree with '{}', which has {} rows", kGgufEmbedding, rows));
  return static_cast<int>(rows);
}

ModelConfig read_config(const GgufFile& file, const Family& family) {
  const Fields f(file, std::string(family.gguf_architecture));
  const auto has_tensor = [&](const char* name) { return file.tensors().contains(name); };
  ModelConfig c;
  c.architecture = family.name;
  c.name = std::filesystem::path(file.path()).stem().string();
  c.n_layers = f.integer("block_count");
  c.d_model = f.integer("embedding_length");
  c.d_ffn = f.integer("feed_forward_length");
  c.n_heads = f.integer("attention.head_count");
  c.n_kv_heads = f.integer_or("attention.head_count_kv", c.n_heads);
  c.max_context = f.integer("context_length");
  c.vocab_size = vocabulary_size(file, f);
  c.norm_eps = static_cast<float>(f.number("attention.layer_norm_rms_epsilon"));
  if (f.has("attention.key_length")) {
    c.head_dim = f.integer("attention.key_length");
  } else {
    if (c.n_heads == 0 || c.d_model % c.n_heads != 0)
      f.fail("attention.head_count",
             fmt::format("{} does not divide embedding_length, {}", c.n_heads, c.d_model));
    c.head_dim = c.d_model / c.n_heads;
  }
  if (const int n = f.integer_or("attention.value_length", c.head_dim); n != c.head_dim)
    f.fail("attention.value_length", fmt::format("is {}, but key_length is {}", n, c.head_dim));
  if (f.integer_or("expert_count", 0) != 0)
    f.fail("expert_count", "mixture-of-experts models are not supported");
  c.tied_head = !has_tensor("output.weight");
  c.qkv_bias = family.qkv_bias || (family.attention_bias && has_tensor("blk.0.attn_q.bias"));
  c.o_bias = family.attention_bias && has_tensor("blk.0.attn_output.bias");
  c.mlp_bias = family.mlp_bias && has_tensor("blk.0.ffn_gate.bias");
  c.qk_norm = family.qk_norm;
  c.sliding_window = f.integer_or("attention.sliding_window", 0);
  if (c.sliding_window > 0 && family.window == Family::Window::kUpperLayers)
    f.fail("attention.sliding_window", "is set, but the file does not say for which layers",
           "use the Hugging Face folder of the model");
  c.validate(file.path());  // head_dim is used below
  read_rope(file, f, c);
  c.validate(file.path());
  return c;
}

// Text of a token the metadata names by id, "" when there is none.
std::string token_text(const GgufFile& file, const char* id_key) {
  if (!file.has(id_key) || !file.has("tokenizer.ggml.tokens")) return {};
  const auto& tokens = file.texts("tokenizer.ggml.tokens");
  const int64_t id = file.integer(id_key);
  return id >= 0 && id < static_cast<int64_t>(tokens.size()) ? tokens[static_cast<size_t>(id)] : "";
}

SpecialTokens special_tokens(const GgufFile& file) {
  SpecialTokens tokens;
  for (const auto& [name, key] : {std::pair("bos_token", "tokenizer.ggml.bos_token_id"),
                                  std::pair("eos_token", "tokenizer.ggml.eos_token_id"),
                                  std::pair("unk_token", "tokenizer.ggml.unknown_token_id"),
                                  std::pair("pad_token", "tokenizer.ggml.padding_token_id")})
    if (std::string text = token_text(file, key); !text.empty())
      tokens.emplace_back(name, std::move(text));
  return tokens;
}

}  // namespace

std::shared_ptr<const Model> load_gguf(const std::string& path, const LoadOptions& options) {
  const GgufFile file(path);
  const Family& family = family_by_gguf_architecture(path, file.text("general.architecture"));
  ModelParts parts;
  parts.path = path;
  parts.config = read_config(file, family);

  SourceModel source{path, Naming::kGguf, family.permuted_qk, {}};
  for (const auto& [name, t] : file.tensors()) {
    if (name == kRopeFactors) continue;  // already in the configuration
    source.tensors.emplace(
        name, SourceTensor{path, t.dtype, {t.ne.rbegin(), t.ne.rend()}, t.bytes, file.file()});
  }
  // Tokenizer and template before the weights: their errors should not cost a minute.
  if (options.need_tokenizer) {
    parts.tokenizer = tokenizer_from_gguf(file);
    check_vocabulary(parts);
    choose_chat_template(
        options, {file.text_or("tokenizer.chat_template", ""), path, special_tokens(file)}, parts);
  }
  parts.format = options.format;
  assemble(source, assemble_options(options, [&] { return weights_sha256(path); }), parts);
  return Model::create(std::move(parts));
}

}  // namespace evalrun::engine
