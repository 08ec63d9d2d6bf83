// A small Qwen3 model in a GGUF file whose matrices have any stored type, filled with random
// blocks.
#pragma once
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/rng.h"
#include "engine/formats/dtype.h"
#include "engine/formats/gguf.h"
#include "engine/model/model.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine::testing {

inline uint32_t gguf_type(DType t) {
  switch (t) {
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 8;
    case DType::kQ4_K:
      return 12;
    case DType::kBF16:
      return 30;
    default:
      return 0;
  }
}

// n random weights of a stored type, of about the size of real ones.
inline std::string random_weights(DType t, int64_t n, base::Rng& rng) {
  std::string bytes(static_cast<size_t>(bytes_of(t, n)), '\0');
  const auto put_half = [&](size_t at, float x) {
    const uint16_t h = float_to_half(x);
    std::memcpy(bytes.data() + at, &h, 2);
  };
  const auto block = static_cast<size_t>(block_bytes(t));
  for (size_t at = 0; at < bytes.size(); at += block) {
    const auto x = static_cast<float>(rng.uniform() - 0.5);
    if (t == DType::kF32) {
      std::memcpy(bytes.data() + at, &x, 4);
    } else if (t == DType::kF16) {
      put_half(at, x);
    } else if (t == DType::kBF16) {
      const uint16_t b = float_to_bfloat16(x);
      std::memcpy(bytes.data() + at, &b, 2);
    } else {
      for (size_t i = 0; i < block; ++i) bytes[at + i] = static_cast<char>(rng.below(256));
      const float range = t == DType::kQ8_0 ? 127 : t == DType::kQ4_K ? 15 * 63 : 15;
      put_half(at, (std::fabs(x) + 0.1f) / range);
      if (t == DType::kQ4_1) put_half(at + 2, -0.5f);
      if (t == DType::kQ4_K) put_half(at + 2, 0.3f / 63);
    }
  }
  return bytes;
}

struct GgufModel {
  DType type = DType::kF32;
  bool tied = true;
  int vocabulary = 40, width = 256;
  uint64_t seed = 1;
  // Changes the bytes of a tensor before they are written.
  std::string damaged = {};
  std::string damage = {};  // written over the first bytes of `damaged`
};

inline std::string write_gguf(const TempFolder& folder, const std::string& name,
                              const GgufModel& model) {
  GgufBuilder b;
  b.text("general.architecture", "qwen3");
  const auto width = static_cast<uint32_t>(model.width);
  for (const auto& [key, value] : {std::pair<std::string, uint32_t>{"block_count", 2},
                                   {"context_length", 64},
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
    const DType t = ne.size() == 1 ? DType::kF32 : model.type;
    std::string bytes =
        random_weights(t, static_cast<int64_t>(ne[0] * (ne.size() == 1 ? 1 : ne[1])), rng);
    if (n == model.damaged) bytes.replace(0, model.damage.size(), model.damage);
    bytes.resize((bytes.size() + 31) / 32 * 32);
    b.tensor(n, ne, gguf_type(t), offset).data(bytes);
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
