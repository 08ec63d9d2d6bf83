#include "methods/masks/mask_weights.h"

#include <algorithm>

#include "engine/devices.h"

namespace evalrun::methods {
namespace {

using engine::WeightMatrix;
using engine::WeightStorage;

// Files hold B as [rank, out], with one scale per component.
WeightMatrix transposed(const WeightMatrix& w) {
  WeightMatrix result(WeightStorage::kF32, w.in(), w.out());
  std::vector<float> row(static_cast<size_t>(w.out()));
  for (int o = 0; o < w.in(); ++o) {
    for (int r = 0; r < w.out(); ++r) row[static_cast<size_t>(r)] = w.at(r, o);
    result.set_row(o, row);
  }
  return result;
}

engine::LowRankFactor read_factor(AdapterReader& reader, const std::string& name, int in, int out,
                                  float scale, WeightStorage storage) {
  const std::string a = name + ".a", b = name + ".b";
  const int rank = reader.rows(a);
  return {scale, reader.matrix(a, rank, in, storage),
          transposed(reader.matrix(b, rank, out, WeightStorage::kF32))};
}

int prefix_heads(const AdapterReader& reader, const std::string& name, int width,
                 const engine::ModelConfig& c) {
  if (width == c.n_kv_heads * c.head_dim) return c.n_kv_heads;
  if (width == c.n_heads * c.head_dim) return c.n_heads;
  reader.fail(
      "tensor " + name,
      fmt::format("has {} values per token and layer: the target has {} key/value heads and "
                  "{} query heads of {}",
                  width, c.n_kv_heads, c.n_heads, c.head_dim),
      "the prefix was trained for another model");
}

std::vector<float> values_of(const WeightMatrix& m) {
  std::vector<float> all(static_cast<size_t>(m.out()) * static_cast<size_t>(m.in()));
  for (int o = 0; o < m.out(); ++o)
    m.copy_row(o, std::span(all).subspan(static_cast<size_t>(o) * static_cast<size_t>(m.in()),
                                         static_cast<size_t>(m.in())));
  return all;
}

// Ours: banks.L.k and banks.L.v, [P, heads * head_dim].
void read_banks(AdapterReader& reader, const engine::ModelConfig& c, engine::PrefixBank& bank) {
  for (int l = 0; l < c.n_layers; ++l)
    for (const char* part : {"k", "v"}) {
      const std::string name = fmt::format("banks.{}.{}", l, part);
      const int length = l == 0 && *part == 'k' ? reader.rows(name) : bank.length;
      const WeightMatrix m = reader.matrix(name, length, -1, WeightStorage::kF32);
      const int heads = prefix_heads(reader, name, m.in(), c);
      if (bank.heads != 0 && bank.heads != heads)
        reader.fail("tensor " + name,
                    fmt::format("has {} heads, earlier ones {}", heads, bank.heads));
      bank.length = length, bank.heads = heads;
      (*part == 'k' ? bank.k : bank.v).push_back(values_of(m));
    }
}

// Published: one matrix [P, layer, key or value, head, head_dim].
void read_published_prefix(AdapterReader& reader, const engine::ModelConfig& c,
                           engine::PrefixBank& bank) {
  bank.length = reader.rows("prefix");
  const WeightMatrix m = reader.matrix("prefix", bank.length, -1, WeightStorage::kF32);
  if (m.in() % (2 * c.n_layers) != 0)
    reader.fail(
        "tensor prefix",
        fmt::format("has {} values per token, the target has {} layers", m.in(), c.n_layers),
        "the prefix was trained for another model");
  const int width = m.in() / (2 * c.n_layers);
  bank.heads = prefix_heads(reader, "prefix", width, c);
  for (int l = 0; l < c.n_layers; ++l)
    for (int part = 0; part < 2; ++part) {
      std::vector<float> values;
      for (int p = 0; p < bank.length; ++p)
        for (int i = 0; i < width; ++i) values.push_back(m.at(p, (2 * l + part) * width + i));
      (part == 0 ? bank.k : bank.v).push_back(std::move(values));
    }
}

}  // namespace

engine::LowRankDelta read_low_rank(AdapterReader& reader, const engine::ModelConfig& c,
                                   WeightStorage storage) {
  engine::LowRankDelta delta;
  if (!reader.has("lora.0.q.a")) return delta;
  const auto scale = static_cast<float>(reader.number("scale", 1.0));
  for (int l = 0; l < c.n_layers; ++l) {
    const auto factor = [&](const char* name, int in, int out) {
      return read_factor(reader, fmt::format("lora.{}.{}", l, name), in, out, scale, storage);
    };
    delta.layers.push_back({factor("q", c.d_model, c.q_dim()), factor("k", c.d_model, c.kv_dim()),
                            factor("v", c.d_model, c.kv_dim()), factor("o", c.q_dim(), c.d_model),
                            factor("gate", c.d_model, c.d_ffn), factor("up", c.d_model, c.d_ffn),
                            factor("down", c.d_ffn, c.d_model)});
  }
  delta.gather();
  return delta;
}

MaskWeights read_mask_weights(AdapterReader& reader, const engine::Model& target,
                              WeightStorage head_storage) {
  const engine::ModelConfig& c = target.config();
  MaskWeights weights;
  const int rows = reader.rows("mask_embed");
  weights.embedding = values_of(reader.matrix("mask_embed", rows, c.d_model, WeightStorage::kF32));
  // Published files say nothing of a shared embedding: then any number of masks is possible.
  weights.masks = reader.integer("masks", 1, kMostMasks, rows > 1 ? rows : kMostMasks);
  weights.distinct = rows > 1 || weights.masks == 1;
  if (weights.distinct && rows != weights.masks)
    reader.fail("tensor mask_embed",
                fmt::format("has {} embeddings, config.masks is {}", rows, weights.masks));
  if (reader.has("banks.0.k"))
    read_banks(reader, c, weights.prefix);
  else if (reader.has("prefix"))
    read_published_prefix(reader, c, weights.prefix);
  if (weights.prefix.length > 0) weights.prefix.id = engine::PrefixBank::next_id();
  // bfloat16 inputs are half the bytes, and rows of a step are few.
  const bool exact = head_storage == WeightStorage::kF32;
  weights.low_rank = read_low_rank(reader, c, exact ? WeightStorage::kF32 : WeightStorage::kBf16);
  weights.ids = reader.draft_vocabulary();
  weights.own_head = reader.has("lm_head.weight");
  weights.head = reader.head("lm_head.weight", weights.ids, head_storage);
  reader.finish();
  weights.bytes = weights.embedding.size() * sizeof(float) + weights.low_rank.bytes();
  for (size_t l = 0; l < weights.prefix.k.size(); ++l)
    weights.bytes += (weights.prefix.k[l].size() + weights.prefix.v[l].size()) * sizeof(float);
  if (weights.head != target.shared_head()) weights.bytes += weights.head->size();
  return weights;
}

double MaskWeights::head_cost(const engine::Model& target, const std::string& device, bool draws) {
  if (!own_head && !draws && engine::is_gpu(device)) {
    if (head != target.shared_head()) bytes -= head->size();
    return 0;
  }
  return static_cast<double>(head->size()) / static_cast<double>(target.streamed_bytes());
}

}  // namespace evalrun::methods
