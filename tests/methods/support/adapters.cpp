#include "tests/methods/support/adapters.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/base/rng.h"
#include "engine/formats/safetensors_writer.h"
#include "tests/methods/support/corpora.h"

namespace evalrun::tests {
namespace {

std::vector<float> noise(base::Rng& rng, size_t n, double deviation) {
  std::vector<float> values(n);
  for (float& v : values)
    v = static_cast<float>((rng.uniform() + rng.uniform() + rng.uniform() - 1.5) * 2 * deviation);
  return values;
}

class Random {
 public:
  Random(AdapterFile& file, uint64_t seed) : file_(file), rng_(seed) {}
  void matrix(const std::string& name, int out, int in) {
    file_.matrix(name, out, in,
                 noise(rng_, static_cast<size_t>(out) * static_cast<size_t>(in),
                       1 / std::sqrt(static_cast<double>(in))));
  }
  void vector(const std::string& name, int n, double offset) {
    std::vector<float> values = noise(rng_, static_cast<size_t>(n), 0.2);
    for (float& v : values) v += static_cast<float>(offset);
    file_.vector(name, values);
  }
  void masks(int n, int d) { matrix("mask_embed", n, d); }
  void bank(int l, int length, int width) {
    matrix(fmt::format("banks.{}.k", l), length, width);
    matrix(fmt::format("banks.{}.v", l), length, width);
  }
  void low_rank(int l, const engine::ModelConfig& c, int rank) {
    const auto factor = [&](const char* name, int in, int out) {
      matrix(fmt::format("lora.{}.{}.a", l, name), rank, in);
      matrix(fmt::format("lora.{}.{}.b", l, name), rank, out);
    };
    factor("q", c.d_model, c.q_dim()), factor("k", c.d_model, c.kv_dim());
    factor("v", c.d_model, c.kv_dim()), factor("o", c.q_dim(), c.d_model);
    factor("gate", c.d_model, c.d_ffn), factor("up", c.d_model, c.d_ffn);
    factor("down", c.d_ffn, c.d_model);
  }
  void layer(int l, const engine::ModelConfig& c, bool norm, int in) {
    const std::string p = fmt::format("layers.{}.", l);
    if (norm) vector(p + "attn_norm", c.d_model, 1);
    matrix(p + "q.weight", c.q_dim(), in);
    matrix(p + "k.weight", c.kv_dim(), in);
    matrix(p + "v.weight", c.kv_dim(), in);
    matrix(p + "o.weight", c.d_model, c.q_dim());
    vector(p + "ffn_norm", c.d_model, 1);
    matrix(p + "gate.weight", c.d_ffn, c.d_model);
    matrix(p + "up.weight", c.d_ffn, c.d_model);
    matrix(p + "down.weight", c.d_model, c.d_ffn);
  }

 private:
  AdapterFile& file_;
  base::Rng rng_;
};

std::string network_config(const engine::ModelConfig& c, const std::string& more) {
  return fmt::format(
      R"({{"n_heads": {}, "n_kv_heads": {}, "head_dim": {}, "d_ffn": {}, "norm_eps": 1e-5{}}})",
      c.n_heads, c.n_kv_heads, c.head_dim, c.d_ffn, more);
}

}  // namespace

void AdapterFile::matrix(const std::string& name, int out, int in, std::vector<float> values) {
  if (values.empty()) values.resize(static_cast<size_t>(out) * static_cast<size_t>(in));
  tensors[name] = {{out, in}, std::move(values)};
}

void AdapterFile::vector(const std::string& name, std::vector<float> values) {
  const auto n = static_cast<int64_t>(values.size());
  tensors[name] = {{n}, std::move(values)};
}

void AdapterFile::write(const std::string& path) const {
  std::vector<engine::TensorToWrite> list;
  for (const auto& [name, t] : tensors)
    list.push_back({name, engine::DType::kF32, t.shape, engine::bytes_of_values(t.values)});
  for (const auto& [name, values] : ids)
    list.push_back({name,
                    engine::DType::kI32,
                    {static_cast<int64_t>(values.size())},
                    engine::bytes_of_values(values)});
  engine::write_safetensors(path, list, metadata);
}

std::map<std::string, std::string> adapter_metadata(const std::string& method,
                                                    const engine::Model& target,
                                                    const std::string& config) {
  return {{"format", "evalrun-adapter"},
          {"version", "1"},
          {"method", method},
          {"target_name", target.config().name},
          {"target_hash", target.hash()},
          {"d_model", std::to_string(target.config().d_model)},
          {"vocab_size", std::to_string(target.config().vocab_size)},
          {"config", config}};
}

AdapterFile random_adapter(const std::string& kind, const engine::Model& target, uint64_t seed) {
  if (kind == "eagle_stored") {
    AdapterFile stored = random_adapter("eagle", target, seed);
    stored.metadata["tree"] = R"({"paths": ["0", "1", "00", "01", "10", "000", "2"],)"
                              R"( "gain": [0.4, 0.2, 0.15, 0.1, 0.09, 0.08, 0.05]})";
    return stored;
  }
  AdapterFile file;
  Random random(file, seed);
  const engine::ModelConfig& c = target.config();
  const int d = c.d_model;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < c.vocab_size; ++id)
    if (id != 1 || c.vocab_size == 2) ids.push_back(id);
  file.ids["draft_vocab"] = ids;
  if (kind == "medusa") {
    for (int k = 0; k < 4; ++k)
      for (int j = 0; j < 2; ++j) {
        random.matrix(fmt::format("heads.{}.{}.weight", k, j), d, d);
        random.vector(fmt::format("heads.{}.{}.bias", k, j), d, 0);
      }
    file.metadata = adapter_metadata("medusa", target, R"({"heads": 4, "blocks": 2})");
  } else if (kind == "eagle") {
    random.matrix("fc.weight", d, 2 * d);
    random.vector("fc.bias", d, 0);
    random.layer(0, c, false, d);
    file.metadata = adapter_metadata("eagle", target, network_config(c, ""));
  } else if (kind == "eagle3") {
    random.matrix("fc.weight", d, 3 * d);
    random.vector("layers.0.embed_norm", d, 1);
    random.layer(0, c, true, 2 * d);
    random.vector("norm", d, 1);
    file.metadata =
        adapter_metadata("eagle3", target, network_config(c, R"(, "residual_layers": [0, 1, 2])"));
  } else if (kind == "draft") {
    random.layer(0, c, true, d);
    random.vector("norm", d, 1);
    file.metadata = adapter_metadata("draft", target, network_config(c, R"(, "layers": 1)"));
  } else if (kind == "bita" || kind == "bita_heads") {
    random.masks(3, d);
    for (int l = 0; l < c.n_layers; ++l)
      random.bank(l, 5, kind == "bita" ? c.kv_dim() : c.n_heads * c.head_dim);
    file.metadata = adapter_metadata("bita", target, R"({"masks": 3})");
  } else if (kind == "pass") {
    random.masks(4, d);
    file.metadata = adapter_metadata("pass", target, R"({"masks": 4})");
  } else if (kind == "gated_lora" || kind == "space_tuned") {
    random.masks(3, d);
    for (int l = 0; l < c.n_layers; ++l) random.low_rank(l, c, 3);
    file.metadata = adapter_metadata(kind == "gated_lora" ? kind : "space", target,
                                     R"({"masks": 3, "rank": 3, "scale": 0.5})");
  } else if (kind == "space") {
    random.masks(1, d);
    file.metadata = adapter_metadata("space", target, R"({"masks": 5})");
  } else {
    const bool three = kind == "falcon3", recurrent = kind == "falcon_recurrent";
    if (kind == "falcon") {
      random.matrix("fc.weight", d, 2 * d);
      random.vector("fc.bias", d, 0);
    } else {
      for (int l = 0; l < 2; ++l) {
        const std::string p = fmt::format("lstm.{}.", l);
        const int gates = recurrent ? 4 : 3;
        random.matrix(p + "weight", gates * d, l == 0 ? 2 * d : d);
        random.vector(p + "bias", gates * d, 0);
        if (recurrent) random.matrix(p + "hidden.weight", 4 * d, d);
      }
    }
    for (int l = 0; l < (three ? 2 : 1); ++l) random.layer(l, c, l > 0, d);
    file.metadata = adapter_metadata(
        "falcon", target,
        network_config(c, fmt::format(R"(, "k": {}, "layers": {}, "input": "{}", "scale": 2.0)",
                                      three ? 3 : 2, three ? 2 : 1,
                                      kind == "falcon" ? "fc"
                                      : recurrent      ? "recurrent"
                                                       : "per_token")));
  }
  return file;
}

const std::string& random_adapter_path(const std::string& kind, const engine::Model& target) {
  static const TempFolder folder;
  static std::map<std::string, std::string> made;
  const std::string name = fmt::format("{}-{}-{}.safetensors", kind, target.config().vocab_size,
                                       target.config().d_model);
  std::string& path = made[name];
  if (path.empty()) {
    path = folder.file(name);
    random_adapter(kind, target, 7).write(path);
  }
  return path;
}

}  // namespace evalrun::tests
