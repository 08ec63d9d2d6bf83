// A small Qwen3 model in a GGUF file whose matrices have any stored type, filled with random
// blocks.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/rng.h"
#include "engine/formats/dtype.h"
#include "engine/formats/gguf.h"
#include "engine/formats/gguf_types.h"
#include "engine/model/model.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine::testing {

// Where a block of a stored type has its half-precision scale, and the largest code it multiplies.
struct StoredType {
  DType type;
  size_t scale_at;
  float largest_code;
  float offset = 0;  // of the half after the scale; 0 where that is something else
};
inline constexpr StoredType kHalfScaled[] = {
    {DType::kQ8_0, 0, 127},
    {DType::kQ4_0, 0, 15},
    {DType::kQ4_1, 0, 15, -0.5f},
    {DType::kQ5_0, 0, 16},
    {DType::kQ5_1, 0, 31, -0.5f},
    {DType::kQ2_K, 80, 3 * 15, 0.3f / 15},
    {DType::kQ3_K, 108, 4 * 32},
    {DType::kQ4_K, 0, 15 * 63, 0.3f / 63},
    {DType::kQ5_K, 0, 31 * 63, 0.3f / 63},
    {DType::kQ6_K, 208, 32 * 128},
    {DType::kIQ1_S, 0, 1.125f * 15},
    {DType::kIQ2_XXS, 0, 43 * 15.5f / 4},
    {DType::kIQ2_XS, 0, 43 * 15.5f / 4},
    {DType::kIQ2_S, 0, 43 * 15.5f / 4},
    {DType::kIQ3_XXS, 0, 62 * 15.5f / 2},
    {DType::kIQ3_S, 0, 15 * 31},
    {DType::kIQ4_NL, 0, 127},
    {DType::kIQ4_XS, 0, 127 * 32},
    {DType::kTQ1_0, 52, 1},
    {DType::kTQ2_0, 64, 2},
    {DType::kQ1_0, 0, 1},
};

// All types whose tensors hold weights.
inline std::vector<DType> weight_types() {
  std::vector<DType> types;
  for (int t = 0; t < static_cast<int>(DType::kI32); ++t) types.push_back(static_cast<DType>(t));
  return types;
}

// The number of a type in GGUF files.
inline uint32_t id_in_gguf(DType t) {
  for (uint32_t id = 0; id < 64; ++id)
    if (const GgufType* type = gguf_type(id); type != nullptr && type->dtype == t) return id;
  ADD_FAILURE() << dtype_name(t);
  return 0;
}

// Overwrites the scale of a block with half-precision bits, in IQ1_M in four places.
inline void put_half_scale(DType t, char* block, uint16_t bits) {
  if (t == DType::kIQ1_M) {
    for (int i = 0; i < 4; ++i) {
      char& high = block[49 + 2 * i];
      high = static_cast<char>((high & 15) | (bits >> (4 * i) & 15) << 4);
    }
    return;
  }
  for (const StoredType& s : kHalfScaled)
    if (s.type == t) std::memcpy(block + s.scale_at, &bits, 2);
}

inline void put_block_of_codes(DType t, char* block, float size, base::Rng& rng) {
  for (int64_t i = 0; i < block_bytes(t); ++i) block[i] = static_cast<char>(rng.below(256));
  if (t == DType::kMXFP4) block[0] = static_cast<char>(121 + rng.below(4));  // 12 * 2^(e - 128)
  if (t == DType::kNVFP4)
    for (int i = 0; i < 4; ++i) block[i] = static_cast<char>(0x20 + rng.below(8));
  if (t == DType::kIQ1_M) put_half_scale(t, block, float_to_half(size / 17));
  for (const StoredType& s : kHalfScaled) {
    if (s.type != t) continue;
    const uint16_t halves[2] = {float_to_half(size / s.largest_code), float_to_half(s.offset)};
    std::memcpy(block + s.scale_at, halves, s.offset == 0 ? 2 : 4);
  }
}

// n random weights of a stored type, of about the size of real ones.
inline std::string random_weights(DType t, int64_t n, base::Rng& rng) {
  std::string bytes(static_cast<size_t>(bytes_of(t, n)), '\0');
  const auto block = static_cast<size_t>(block_bytes(t));
  for (size_t at = 0; at < bytes.size(); at += block) {
    const auto x = static_cast<float>(rng.uniform() - 0.5);
    if (t == DType::kF32) {
      std::memcpy(bytes.data() + at, &x, 4);
    } else if (t == DType::kF16 || t == DType::kBF16) {
      const uint16_t h = t == DType::kF16 ? float_to_half(x) : float_to_bfloat16(x);
      std::memcpy(bytes.data() + at, &h, 2);
    } else {
      put_block_of_codes(t, bytes.data() + at, std::fabs(x) + 0.1f, rng);
    }
  }
  return bytes;
}

struct GgufModel {
  DType type = DType::kF32;
  bool tied = true;
  int vocabulary = 40, width = 256, context = 64;
  uint64_t seed = 1;
  // Changes the bytes of a tensor before they are written.
  std::string damaged = {};
  std::string damage = {};  // written over the first bytes of `damaged`
  // Instead of `type`, of matrices with this in their names; of several the first.
  std::map<std::string, DType> types = {};
};

// As llama.cpp's Q4_K_M: values, down projections and head in Q6_K.
inline GgufModel medium_k_model(uint64_t seed = 1) {
  return {.type = DType::kQ4_K,
          .vocabulary = 101,
          .seed = seed,
          .types = {
              {"attn_v", DType::kQ6_K}, {"ffn_down", DType::kQ6_K}, {"token_embd", DType::kQ6_K}}};
}
// Matrices of one layer that share a rounded input differ in every way that files can have.
inline GgufModel mixed_k_model() {
  return {.type = DType::kQ5_K,
          .tied = false,
          .vocabulary = 90,
          .seed = 2,
          .types = {{"attn_k", DType::kQ8_0},
                    {"attn_v", DType::kQ4_K},
                    {"attn_output", DType::kQ4_0},
                    {"ffn_up", DType::kF16},
                    {"blk.1.ffn_down", DType::kQ6_K},
                    {"output.weight", DType::kQ6_K}}};
}

inline std::string write_gguf(const TempFolder& folder, const std::string& name,
                              const GgufModel& model) {
  GgufBuilder b;
  b.text("general.architecture", "qwen3");
  const auto width = static_cast<uint32_t>(model.width);
  for (const auto& [key, value] : {std::pair<std::string, uint32_t>{"block_count", 2},
                                   {"context_length", static_cast<uint32_t>(model.context)},
                                   {"embedding_length", width},
                                   {"feed_forward_length", 2 * width},
                                   {"attention.head_count", 4},
                                   {"attention.head_count_kv", 2},
                                   {"attention.key_length", width / 4},
                                   {"attention.value_length", width / 4}})
    b.scalar("qwen3." + key, GgufBuilder::kU32, value);
  b.scalar("qwen3.attention.layer_norm_rms_epsilon", GgufBuilder::kF32, 1e-5f);
  base::Rng rng(model.seed);
  uint64_t offset = 0;
  const auto tensor = [&](const std::string& n, const std::vector<uint64_t>& ne) {
    DType t = ne.size() == 1 ? DType::kF32 : model.type;
    const auto own = std::find_if(model.types.begin(), model.types.end(), [&](const auto& entry) {
      return n.find(entry.first) != std::string::npos;
    });
    if (ne.size() == 2 && own != model.types.end()) t = own->second;
    std::string bytes =
        random_weights(t, static_cast<int64_t>(ne[0] * (ne.size() == 1 ? 1 : ne[1])), rng);
    if (n == model.damaged) bytes.replace(0, model.damage.size(), model.damage);
    bytes.resize((bytes.size() + 31) / 32 * 32);
    b.tensor(n, ne, id_in_gguf(t), offset).data(bytes);
    offset += bytes.size();
  };
  const uint64_t w = width, vocabulary = static_cast<uint64_t>(model.vocabulary);
  tensor("token_embd.weight", {w, vocabulary});
  tensor("output_norm.weight", {w});
  if (!model.tied) tensor("output.weight", {w, vocabulary});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    for (const char* n : {"attn_norm", "ffn_norm"}) tensor(prefix + n + ".weight", {w});
    for (const char* n : {"attn_q_norm", "attn_k_norm"}) tensor(prefix + n + ".weight", {w / 4});
    for (const char* n : {"attn_q", "attn_output"}) tensor(prefix + n + ".weight", {w, w});
    for (const char* n : {"attn_k", "attn_v"}) tensor(prefix + n + ".weight", {w, w / 2});
    for (const char* n : {"ffn_gate", "ffn_up"}) tensor(prefix + n + ".weight", {w, 2 * w});
    tensor(prefix + "ffn_down.weight", {2 * w, w});
  }
  return folder.write(name, b.bytes());
}

// All matrices of a model with the names of their GGUF tensors; a tied head that has its own
// storage comes last.
inline std::vector<std::pair<std::string, const WeightMatrix*>> matrices_of(const Model& model) {
  std::vector<std::pair<std::string, const WeightMatrix*>> all = {
      {"token_embd.weight", &model.embedding()}};
  for (int i = 0; i < model.config().n_layers; ++i) {
    const LayerWeights& l = model.layer(i);
    const std::string prefix = "blk." + std::to_string(i) + ".";
    for (const auto& [name, m] : {std::pair{"attn_q", &l.q},
                                  {"attn_k", &l.k},
                                  {"attn_v", &l.v},
                                  {"attn_output", &l.o},
                                  {"ffn_gate", &l.gate},
                                  {"ffn_up", &l.up},
                                  {"ffn_down", &l.down}})
      all.emplace_back(prefix + name + ".weight", m);
  }
  if (&model.head() != &model.embedding())
    all.emplace_back(model.config().tied_head ? "token_embd.weight" : "output.weight",
                     &model.head());
  return all;
}

}  // namespace evalrun::engine::testing
