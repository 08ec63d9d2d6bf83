#include "engine/model/families.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::engine {
namespace {

using Window = Family::Window;

//  name       gguf     permuted qkv_b  attn_b mlp_b  qk_norm default_kv window
constexpr Family kFamilies[] = {
    {"llama", "llama", true, false, true, true, false, true, Window::kNone},
    {"mistral", "llama", true, false, false, false, false, false, Window::kAllLayers},
    {"qwen2", "qwen2", false, true, false, false, false, false, Window::kUpperLayers},
    {"qwen3", "qwen3", false, false, true, false, true, false, Window::kUpperLayers},
};

struct RoleName {
  Role role;
  const char* gguf;
  const char* hugging_face;
};

// {} is the layer.
constexpr RoleName kRoleNames[] = {
    {Role::kEmbedding, "token_embd.weight", "model.embed_tokens.weight"},
    {Role::kFinalNorm, "output_norm.weight", "model.norm.weight"},
    {Role::kHead, "output.weight", "lm_head.weight"},
    {Role::kAttnNorm, "blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight"},
    {Role::kQ, "blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"},
    {Role::kK, "blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"},
    {Role::kV, "blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"},
    {Role::kO, "blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"},
    {Role::kQBias, "blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"},
    {Role::kKBias, "blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"},
    {Role::kVBias, "blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"},
    {Role::kOBias, "blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias"},
    {Role::kQNorm, "blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"},
    {Role::kKNorm, "blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"},
    {Role::kFfnNorm, "blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
    {Role::kGate, "blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"},
    {Role::kUp, "blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"},
    {Role::kDown, "blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"},
    {Role::kGateBias, "blk.{}.ffn_gate.bias", "model.layers.{}.mlp.gate_proj.bias"},
    {Role::kUpBias, "blk.{}.ffn_up.bias", "model.layers.{}.mlp.up_proj.bias"},
    {Role::kDownBias, "blk.{}.ffn_down.bias", "model.layers.{}.mlp.down_proj.bias"},
};

std::string tensor_name(Role role, int layer, Naming naming) {
  for (const RoleName& r : kRoleNames)
    if (r.role == role)
      return fmt::format(fmt::runtime(naming == Naming::kGguf ? r.gguf : r.hugging_face), layer);
  EVALRUN_CHECK(false, "role {} has no name", static_cast<int>(role));
  return {};
}

[[noreturn]] void unknown_family(const std::string& file, const char* field,
                                 const std::string& found, std::string_view Family::*name) {
  std::vector<std::string> known;
  for (const Family& f : kFamilies)
    if (known.empty() || known.back() != f.*name) known.emplace_back(f.*name);
  throw base::data_error(file, field, fmt::format("unknown architecture '{}'", found),
                         base::suggest(found, known));
}

}  // namespace

const Family& family_by_model_type(const std::string& file, const std::string& model_type) {
  for (const Family& f : kFamilies)
    if (f.name == model_type) return f;
  unknown_family(file, "model_type", model_type, &Family::name);
}

const Family& family_by_gguf_architecture(const std::string& file,
                                          const std::string& architecture) {
  for (const Family& f : kFamilies)
    if (f.gguf_architecture == architecture) return f;
  unknown_family(file, "general.architecture", architecture, &Family::gguf_architecture);
}

std::vector<TensorSlot> tensor_slots(const ModelConfig& c, Naming naming) {
  std::vector<TensorSlot> slots;
  int layer = -1;
  const auto add = [&](bool present, Role role, int rows, int cols) {
    if (present) slots.push_back({role, layer, tensor_name(role, layer, naming), rows, cols});
  };
  add(true, Role::kEmbedding, c.vocab_size, c.d_model);
  add(true, Role::kFinalNorm, c.d_model, 0);
  add(!c.tied_head, Role::kHead, c.vocab_size, c.d_model);
  for (layer = 0; layer < c.n_layers; ++layer) {
    add(true, Role::kAttnNorm, c.d_model, 0);
    add(true, Role::kQ, c.q_dim(), c.d_model);
    add(true, Role::kK, c.kv_dim(), c.d_model);
    add(true, Role::kV, c.kv_dim(), c.d_model);
    add(true, Role::kO, c.d_model, c.q_dim());
    add(c.qkv_bias, Role::kQBias, c.q_dim(), 0);
    add(c.qkv_bias, Role::kKBias, c.kv_dim(), 0);
    add(c.qkv_bias, Role::kVBias, c.kv_dim(), 0);
    add(c.o_bias, Role::kOBias, c.d_model, 0);
    add(c.qk_norm, Role::kQNorm, c.head_dim, 0);
    add(c.qk_norm, Role::kKNorm, c.head_dim, 0);
    add(true, Role::kFfnNorm, c.d_model, 0);
    add(true, Role::kGate, c.d_ffn, c.d_model);
    add(true, Role::kUp, c.d_ffn, c.d_model);
    add(true, Role::kDown, c.d_model, c.d_ffn);
    add(c.mlp_bias, Role::kGateBias, c.d_ffn, 0);
    add(c.mlp_bias, Role::kUpBias, c.d_ffn, 0);
    add(c.mlp_bias, Role::kDownBias, c.d_model, 0);
  }
  return slots;
}

bool is_ignorable(std::string_view name, Naming naming) {
  // Old checkpoints store the rotary frequencies. GGUF's rope_freqs.weight is read by its loader.
  return naming == Naming::kHuggingFace &&
         (name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".rotary_emb.cos_cached") ||
          name.ends_with(".rotary_emb.sin_cached"));
}

}  // namespace evalrun::engine
