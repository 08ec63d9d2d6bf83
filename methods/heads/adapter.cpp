#include "methods/heads/adapter.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <regex>

#include "engine/base/error.h"
#include "engine/base/home.h"
#include "engine/base/install_paths.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"

namespace evalrun::methods {
namespace {

namespace fs = std::filesystem;
using engine::DType;
using engine::SafeTensor;
using nlohmann::json;

constexpr const char* kOwnFormat = "evalrun-adapter";
constexpr const char* kRetrain =
    "train it again (scripts/train), or fetch the file again if it was cut short";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The weights in a folder as published, and what to do about those that cannot be read.
std::string weights_in(const std::string& folder) {
  for (const char* name :
       {"medusa_lm_head.safetensors", "adapter.safetensors", "model.safetensors"})
    if (is_there(fs::path(folder) / name)) return (fs::path(folder) / name).string();
  for (const char* name : {"medusa_lm_head.pt", "pytorch_model.bin"})
    if (is_there(fs::path(folder) / name))
      throw base::usage_error(
          fmt::format("{}: pickled weights are not read: loading them can run programs", folder),
          fmt::format("convert them: scripts/convert-adapter {} OUT.safetensors",
                      (fs::path(folder) / name).string()));
  throw base::data_error(folder, "", "holds no adapter",
                         "expected medusa_lm_head.safetensors or model.safetensors beside "
                         "config.json");
}

json metadata_json(const engine::SafeTensors& file, const std::string& path,
                   const std::string& key) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end()) return json::object();
  json value = base::parse_json(it->second, path + ": __metadata__." + key);
  if (!value.is_object())
    throw base::data_error(path, "__metadata__." + key, "must be a JSON object", kRetrain);
  return value;
}

// The budget in the metadata of the training; null without one. Tables of papers refuse adapters of
// unequal budgets, so one that is half there is an error and not "unknown".
json read_budget(const json& training, const std::string& path) {
  if (!training.contains("budget")) return json();
  const std::string place = "__metadata__.training.budget";
  base::ObjectReader fields(training["budget"], path, place);
  json budget;
  for (const char* key : {"text", "recipe", "optimiser"}) {
    budget[key] = fields.required<std::string>(key);
    if (budget[key].get<std::string>().empty())
      throw base::data_error(path, fmt::format("{}.{}", place, key), "is empty", kRetrain);
  }
  for (const char* key : {"updates", "tokens", "batch"}) {
    const auto value = fields.required<int64_t>(key);
    if (value < 1)
      throw base::data_error(path, fmt::format("{}.{}", place, key),
                             fmt::format("is {}, expected 1 or more", value), kRetrain);
    budget[key] = value;
  }
  return budget;
}

// The overlap in the metadata of the training: a number of prompts for each evaluation set that the
// text was compared with. It is null where nobody looked.
std::map<std::string, int64_t> read_overlap(const json& training, const std::string& path) {
  std::map<std::string, int64_t> overlap;
  if (!training.contains("overlap") || training["overlap"].is_null()) return overlap;
  const std::string place = "__metadata__.training.overlap";
  base::ObjectReader fields(training["overlap"], path, place);
  for (const auto& item : training["overlap"].items()) {
    const auto prompts = fields.required<int64_t>(item.key());
    if (prompts < 0)
      throw base::data_error(path, fmt::format("{}.{}", place, item.key()),
                             fmt::format("is {}, expected 0 or more", prompts), kRetrain);
    if (prompts > 0) overlap[item.key()] = prompts;
  }
  return overlap;
}

// Names of the published layouts in ours; nothing for tensors that are copies of the target's.
struct Published {
  const char* method;
  std::regex pattern;
  const char* ours;  // with $1, $2; "" = passed over
};
const std::vector<Published>& published_names() {
  static const std::vector<Published> names = [] {
    std::vector<Published> n;
    const auto add = [&](const char* method, const char* pattern, const char* ours) {
      n.push_back({method, std::regex(pattern), ours});
    };
    // FasterDecoding/Medusa. Head k: blocks k.0 .. k.(l-1), then its output matrix k.l.
    add("medusa", R"((?:medusa_head\.)?(\d+)\.(\d+)\.linear\.(weight|bias))", "heads.$1.$2.$3");
    add("medusa", R"((?:medusa_head\.)?(\d+)\.\d+\.weight)", "heads.$1.lm_head.weight");
    // SafeAILab/EAGLE, versions 1 and 2.
    add("eagle", R"(fc\.(weight|bias))", "fc.$1");
    add("eagle", R"(layers\.(\d+)\.self_attn\.([qkvo])_proj\.(weight|bias))", "layers.$1.$2.$3");
    add("eagle", R"(layers\.(\d+)\.mlp\.(gate|up|down)_proj\.weight)", "layers.$1.$2.weight");
    add("eagle", R"(layers\.(\d+)\.post_attention_layernorm\.weight)", "layers.$1.ffn_norm");
    add("eagle", R"(layers\.(\d+)\.input_layernorm\.weight)", "layers.$1.attn_norm");
    add("eagle", R"(embed_tokens\.weight|.*rotary_emb\.inv_freq)", "");
    // Version 3.
    add("eagle3", R"(fc\.weight)", "fc.weight");
    add("eagle3", R"(midlayer\.self_attn\.([qkvo])_proj\.(weight|bias))", "layers.0.$1.$2");
    add("eagle3", R"(midlayer\.mlp\.(gate|up|down)_proj\.weight)", "layers.0.$1.weight");
    add("eagle3", R"(midlayer\.hidden_norm\.weight)", "layers.0.attn_norm");
    add("eagle3", R"(midlayer\.input_layernorm\.weight)", "layers.0.embed_norm");
    add("eagle3", R"(midlayer\.post_attention_layernorm\.weight)", "layers.0.ffn_norm");
    add("eagle3", R"(norm\.weight)", "norm");
    add("eagle3", R"(lm_head\.weight)", "lm_head.weight");
    add("eagle3", R"(d2t)", "d2t");
    add("eagle3", R"(t2d|embed_tokens\.weight|.*rotary_emb\.inv_freq)", "");
    // Bestpay-inc/Falcon.
    add("falcon", R"(lstm\.weight_ih_l(\d))", "lstm.$1.weight");
    add("falcon", R"(lstm\.weight_hh_l(\d))", "lstm.$1.hidden.weight");
    add("falcon", R"(lstm\.bias_ih_l(\d))", "lstm.$1.bias");
    add("falcon", R"(lstm\.bias_hh_l(\d))", "lstm.$1.bias_hidden");
    add("falcon", R"(layers\.(\d+)\.self_attn\.([qkvo])_proj\.(weight|bias))", "layers.$1.$2.$3");
    add("falcon", R"(layers\.(\d+)\.mlp\.(gate|up|down)_proj\.weight)", "layers.$1.$2.weight");
    add("falcon", R"(layers\.(\d+)\.post_attention_layernorm\.weight)", "layers.$1.ffn_norm");
    add("falcon", R"(layers\.(\d+)\.input_layernorm\.weight)", "layers.$1.attn_norm");
    add("falcon", R"(embed_tokens\.weight|.*rotary_emb\.inv_freq)", "");
    // linfeng93/BiTA: what is trained, beside the target's own weights.
    add("bita", R"((?:model|transformer)\.mask_tokens\.weight)", "mask_embed");
    add("bita", R"((?:model|transformer)\.prefix_encoder\.embedding\.weight)", "prefix");
    return n;
  }();
  return names;
}

std::string published_method(const std::map<std::string, SafeTensor>& tensors) {
  if (tensors.contains("midlayer.self_attn.q_proj.weight")) return "eagle3";
  if (tensors.contains("lstm.weight_ih_l0")) return "falcon";
  if (tensors.contains("fc.weight")) return "eagle";
  for (const char* root : {"model", "transformer"})
    if (tensors.contains(std::string(root) + ".mask_tokens.weight")) return "bita";
  for (const auto& [name, tensor] : tensors)
    if (name.ends_with(".0.linear.weight")) return "medusa";
  return {};
}

// Keys of a published config.json that say what ours say.
void copy_config(const json& from, json& to) {
  const std::pair<const char*, const char*> keys[] = {
      {"num_attention_heads", "n_heads"}, {"num_key_value_heads", "n_kv_heads"},
      {"head_dim", "head_dim"},           {"intermediate_size", "d_ffn"},
      {"rms_norm_eps", "norm_eps"},       {"rope_theta", "rope_theta"},
      {"num_hidden_layers", "layers"},    {"k_mask", "k"}};
  for (const auto& [theirs, ours] : keys)
    if (from.contains(theirs) && from[theirs].is_number()) to[ours] = from[theirs];
  if (from.contains("residual_layers")) to["residual_layers"] = from["residual_layers"];
}

float widened(DType type, std::span<const uint8_t> bytes, size_t i) {
  if (type == DType::kI8) return static_cast<float>(static_cast<int8_t>(bytes[i]));
  float value = 0;
  const auto width = static_cast<size_t>(engine::block_bytes(type));
  engine::dequantize(type, bytes.subspan(i * width, width), {&value, 1});
  return value;
}

bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

template <typename Int>
std::vector<int64_t> integers(const SafeTensor& tensor) {
  std::vector<Int> raw(tensor.bytes.size() / sizeof(Int));
  std::memcpy(raw.data(), tensor.bytes.data(), raw.size() * sizeof(Int));
  return {raw.begin(), raw.end()};
}

}  // namespace

void Adapter::add(const std::string& own_name, const SafeTensor& tensor) {
  if (!entries_.emplace(own_name, Entry{&tensor, tensor.name}).second)
    throw base::data_error(path_, "tensor " + tensor.name, "occurs twice, under two names",
                           kRetrain);
}

void Adapter::read_own() {
  const auto text = [&](const char* key) {
    const auto it = file_->metadata().find(key);
    if (it == file_->metadata().end())
      throw base::data_error(path_, fmt::format("__metadata__.{}", key), "is missing", kRetrain);
    return it->second;
  };
  if (text("version") != "1")
    throw base::data_error(path_, "__metadata__.version",
                           fmt::format("is {}; this program reads version 1", text("version")),
                           "take the adapter of this release");
  method_ = text("method");
  target_name_ = text("target_name");
  target_hash_ = text("target_hash");
  config_ = metadata_json(*file_, path_, "config");
  const json training = metadata_json(*file_, path_, "training");
  budget_ = read_budget(training, path_);
  overlap_ = read_overlap(training, path_);
  const json tree = metadata_json(*file_, path_, "tree");
  try {
    tree_paths_ = tree.value("paths", std::vector<std::string>());
    tree_gains_ = tree.value("gain", std::vector<double>());
  } catch (const json::exception&) {
    throw base::data_error(path_, "__metadata__.tree", "needs lists 'paths' and 'gain'", kRetrain);
  }
  if (tree_paths_.size() != tree_gains_.size())
    throw base::data_error(
        path_, "__metadata__.tree",
        fmt::format("has {} paths and {} gains", tree_paths_.size(), tree_gains_.size()), kRetrain);
  for (const auto& [name, tensor] : file_->tensors()) add(name, tensor);
}

void Adapter::read_published(const std::string& folder) {
  published_ = true;
  method_ = published_method(file_->tensors());
  if (method_.empty())
    throw base::data_error(
        path_, "tensors", "are of no layout known here",
        "known: evalrun's own, and those of Medusa, EAGLE-1/2/3, Falcon and BiTA");
  target_name_ = "not stated";
  config_ = json::object();
  const fs::path config = fs::path(folder) / "config.json";
  if (is_there(config)) {
    const json theirs = base::parse_json(base::read_file(config.string()), config.string());
    if (!theirs.is_object()) throw base::data_error(config.string(), "", "must be an object");
    copy_config(theirs, config_);
  }
  for (const auto& [name, tensor] : file_->tensors()) {
    bool known = false;
    for (const Published& p : published_names()) {
      if (p.method != method_ || !std::regex_match(name, p.pattern)) continue;
      known = true;
      const std::string ours = std::regex_replace(name, p.pattern, p.ours);
      if (!ours.empty()) add(ours, tensor);
      break;
    }
    if (!known)
      throw base::data_error(path_, "tensor " + name,
                             fmt::format("is not part of the published layout of {}", method_),
                             "is the file complete, and of the version it claims?");
  }
  if (method_ == "medusa" && is_there(config)) {
    // The number of heads in published configurations is wrong at times: the tensors count.
    config_.erase("layers");
  }
}

std::shared_ptr<const Adapter> Adapter::open(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw base::usage_error(fmt::format("there is no adapter '{}'", path),
                            "give the path of a .safetensors file or of a published folder");
  const bool folder = fs::is_directory(path, ignored);
  if (!folder && (path.ends_with(".pt") || path.ends_with(".bin") || path.ends_with(".pth")))
    throw base::usage_error(
        fmt::format("{}: pickled weights are not read: loading them can run programs", path),
        fmt::format("convert them: scripts/convert-adapter {} OUT.safetensors", path));
  auto adapter = std::make_shared<Adapter>();
  adapter->path_ = folder ? weights_in(path) : path;
  adapter->file_ = std::make_shared<engine::SafeTensors>(adapter->path_);
  const auto& metadata = adapter->file_->metadata();
  const auto format = metadata.find("format");
  if (format != metadata.end() && format->second == kOwnFormat)
    adapter->read_own();
  else
    adapter->read_published(folder ? path : fs::path(path).parent_path().string());
  return adapter;
}

std::string Adapter::content_hash() const { return base::sha256_file(path_); }

AdapterReader::AdapterReader(const Adapter& adapter, const std::string& method,
                             const engine::Model& target, bool any_target)
    : adapter_(adapter), target_(target) {
  if (adapter.method() != method)
    throw base::usage_error(
        fmt::format("{}: {} holds weights for {}", method, adapter.path(), adapter.method()),
        fmt::format("give it to the method of that name, or one for {} here", method));
  const std::string& hash = target.hash();
  if (!any_target && !adapter.target_hash().empty() && adapter.target_hash() != hash)
    throw base::usage_error(
        fmt::format("{}: the adapter was trained for another model\n  target:  {} ({:.12})\n"
                    "  adapter: {} ({:.12}), {}",
                    method, target.config().name, hash.empty() ? "no hash" : hash,
                    adapter.target_name(), adapter.target_hash(), adapter.path()),
        "train one for this model (scripts/train), or, when it is the same model in another file, "
        "any_target=true");
}

void AdapterReader::fail(const std::string& where, const std::string& what,
                         const std::string& hint) const {
  throw base::data_error(adapter_.path(), where, what, hint.empty() ? kRetrain : hint);
}

const Adapter::Entry& AdapterReader::entry(const std::string& name) {
  const auto it = adapter_.entries_.find(name);
  if (it == adapter_.entries_.end())
    fail("tensor " + name, fmt::format("is missing, and {} needs it", adapter_.method()));
  used_.insert(name);
  return it->second;
}

int AdapterReader::rows(const std::string& name) const {
  const auto it = adapter_.entries_.find(name);
  if (it == adapter_.entries_.end() || it->second.tensor->shape.empty()) return 0;
  return static_cast<int>(std::min<int64_t>(it->second.tensor->shape[0], 1 << 30));
}

std::vector<float> AdapterReader::row_values(const Adapter::Entry& e, const SafeTensor* scale,
                                             int row, int in) const {
  const SafeTensor& t = *e.tensor;
  std::vector<float> values(static_cast<size_t>(in));
  const auto first = static_cast<size_t>(row) * values.size();
  if (is_float(t.dtype)) {
    const auto width = static_cast<size_t>(engine::block_bytes(t.dtype));
    engine::dequantize(t.dtype, t.bytes.subspan(first * width, values.size() * width), values);
  } else {
    const float s = widened(scale->dtype, scale->bytes, static_cast<size_t>(row));
    for (size_t i = 0; i < values.size(); ++i) values[i] = s * widened(t.dtype, t.bytes, first + i);
  }
  for (const float v : values)
    if (!std::isfinite(v)) fail("tensor " + e.name, fmt::format("row {} is not finite", row));
  return values;
}

engine::WeightMatrix AdapterReader::matrix(const std::string& name, int out, int in,
                                           engine::WeightStorage storage) {
  return read_matrix(name, out, in, storage, nullptr);
}

engine::WeightMatrix AdapterReader::balanced_matrix(const std::string& name, int out, int in,
                                                    engine::WeightStorage storage, int parts,
                                                    std::vector<float>& scale) {
  scale.assign(static_cast<size_t>(parts), 1.0f);
  // Floating-point formats have a scale for every number.
  const bool integers =
      storage != engine::WeightStorage::kF32 && storage != engine::WeightStorage::kBf16;
  return read_matrix(name, out, in, storage, integers ? &scale : nullptr);
}

engine::WeightMatrix AdapterReader::read_matrix(const std::string& name, int out, int in,
                                                engine::WeightStorage storage,
                                                std::vector<float>* scales) {
  const Adapter::Entry& e = entry(name);
  const SafeTensor& t = *e.tensor;
  if (t.shape.size() != 2 || (out >= 0 && t.shape[0] != out) || (in >= 0 && t.shape[1] != in))
    fail("tensor " + e.name,
         fmt::format("is [{}], expected [{}, {}]", fmt::join(t.shape, ", "),
                     out < 0 ? "any" : std::to_string(out), in < 0 ? "any" : std::to_string(in)),
         fmt::format("the adapter does not fit {}, or not its own configuration",
                     target_.config().name));
  out = static_cast<int>(t.shape[0]), in = static_cast<int>(t.shape[1]);
  const SafeTensor* scale = nullptr;
  if (t.dtype == DType::kI8) {
    const Adapter::Entry& s = entry(name + ".scale");
    if (!is_float(s.tensor->dtype) || s.tensor->shape != std::vector<int64_t>{out})
      fail("tensor " + s.name, fmt::format("must be {} floating-point scales", out));
    scale = s.tensor;
  } else if (!is_float(t.dtype)) {
    fail("tensor " + e.name, fmt::format("has type {}", engine::dtype_name(t.dtype)),
         "expected F32, F16, BF16 or I8 with scales");
  }
  const size_t width = scales == nullptr ? 0 : static_cast<size_t>(in) / scales->size();
  if (scales != nullptr) {
    std::vector<double> squares(scales->size());
    for (int row = 0; row < out; ++row) {
      const std::vector<float> values = row_values(e, scale, row, in);
      for (size_t i = 0; i < values.size(); ++i)
        squares[i / width] += static_cast<double>(values[i]) * values[i];
    }
    for (size_t b = 0; b < squares.size(); ++b)
      if (squares[b] > 0 && squares.back() > 0)
        (*scales)[b] = static_cast<float>(std::sqrt(squares[b] / squares.back()));
  }
  engine::WeightMatrix m(storage, out, in);
  for (int row = 0; row < out; ++row) {
    std::vector<float> values = row_values(e, scale, row, in);
    if (scales != nullptr)
      for (size_t i = 0; i < values.size(); ++i) values[i] /= (*scales)[i / width];
    for (const float v : values)
      if (std::fabs(v) > engine::WeightMatrix::largest(storage))
        fail("tensor " + e.name, fmt::format("row {} has {}, too large for this format", row, v));
    m.set_row(row, values);
  }
  return m;
}

std::vector<float> AdapterReader::vector(const std::string& name, int size) {
  const Adapter::Entry& e = entry(name);
  if (!is_float(e.tensor->dtype) || e.tensor->shape != std::vector<int64_t>{size})
    fail("tensor " + e.name,
         fmt::format("is [{}] of {}, expected [{}] of a floating-point type",
                     fmt::join(e.tensor->shape, ", "), engine::dtype_name(e.tensor->dtype), size));
  return row_values(e, nullptr, 0, size);
}

std::vector<int32_t> AdapterReader::draft_vocabulary() {
  const bool offsets = has("d2t");  // EAGLE-3 publishes target id - draft id
  if (!offsets && !has("draft_vocab")) return {};
  const Adapter::Entry& e = entry(offsets ? "d2t" : "draft_vocab");
  const std::string where = "tensor " + e.name;
  std::vector<int64_t> values;
  if (e.tensor->dtype == DType::kI64)
    values = integers<int64_t>(*e.tensor);
  else if (e.tensor->dtype == DType::kI32)
    values = integers<int32_t>(*e.tensor);
  else
    fail(where, "must hold integers");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t id = values[i] + (offsets ? static_cast<int64_t>(i) : 0);
    if (id < 0 || id >= target_.config().vocab_size)
      fail(where,
           fmt::format("entry {} is id {}, {} has {} ids", i, id, target_.config().name,
                       target_.config().vocab_size),
           "the adapter belongs to a model with another vocabulary");
    if (!ids.empty() && id <= ids.back())
      fail(where, fmt::format("entry {} is id {} after {}: ids must ascend", i, id, ids.back()));
    ids.push_back(static_cast<int32_t>(id));
  }
  if (ids.empty()) fail(where, "is empty");
  return ids;
}

std::shared_ptr<const engine::WeightMatrix> AdapterReader::head(const std::string& name,
                                                                const std::vector<int32_t>& ids,
                                                                engine::WeightStorage storage) {
  const int d = target_.config().d_model;
  if (has(name)) {
    const int expected = ids.empty() ? target_.config().vocab_size : static_cast<int>(ids.size());
    return std::make_shared<const engine::WeightMatrix>(matrix(name, expected, d, storage));
  }
  const engine::WeightMatrix& whole = target_.head();
  if (ids.empty() && with_offsets(whole.storage()) == storage) return target_.shared_head();
  const int out = ids.empty() ? whole.out() : static_cast<int>(ids.size());
  auto part = std::make_shared<engine::WeightMatrix>(storage, out, d);
  std::vector<float> row(static_cast<size_t>(d));
  for (int o = 0; o < out; ++o) {
    whole.copy_row(ids.empty() ? o : ids[static_cast<size_t>(o)], row);
    part->set_row(o, row);
  }
  return part;
}

int AdapterReader::integer(const std::string& key, int lowest, int highest) const {
  const std::string where = "config." + key;
  const json& config = adapter_.config();
  if (!config.contains(key)) fail(where, "is missing");
  const json& value = config[key];
  if (!value.is_number_integer() || value.get<int64_t>() < lowest || value.get<int64_t>() > highest)
    fail(where, fmt::format("is {}, expected {}..{}", value.dump(), lowest, highest));
  return value.get<int>();
}

int AdapterReader::integer(const std::string& key, int lowest, int highest, int fallback) const {
  return adapter_.config().contains(key) ? integer(key, lowest, highest) : fallback;
}

double AdapterReader::number(const std::string& key, double fallback) const {
  const json& config = adapter_.config();
  if (!config.contains(key)) return fallback;
  if (!config[key].is_number() || !std::isfinite(config[key].get<double>()))
    fail("config." + key, "must be a number");
  return config[key].get<double>();
}

std::vector<int> AdapterReader::layers(const std::string& key, std::vector<int> fallback,
                                       int n_layers) const {
  const json& config = adapter_.config();
  const json& given = config.contains(key) ? config[key] : json(fallback);
  std::vector<int> list;
  for (const json& value : given) {
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > n_layers)
      fail("config." + key,
           fmt::format("has {}, the target has layers 0..{}", value.dump(), n_layers));
    list.push_back(value.get<int>());
  }
  if (list.size() != 3) fail("config." + key, "must be three layers");
  return list;
}

std::string AdapterReader::text(const std::string& key, const std::string& fallback) const {
  const json& config = adapter_.config();
  if (!config.contains(key)) return fallback;
  if (!config[key].is_string()) fail("config." + key, "must be a text");
  return config[key].get<std::string>();
}

void AdapterReader::finish() const {
  for (const auto& [name, e] : adapter_.entries_)
    if (!used_.contains(name))
      fail("tensor " + e.name, fmt::format("is not part of {}", adapter_.method()),
           "the file was made for another version or other parameters");
}

std::shared_ptr<const Adapter> find_adapter(const std::string& method, const std::string& value,
                                            const engine::Model& target) {
  if (value.find('/') != std::string::npos || fs::path(value).has_extension())
    return Adapter::open(value);
  const std::string name = value == "auto" ? method : value;
  std::vector<fs::path> folders;
  if (const char* given = std::getenv("EVALRUN_ADAPTERS"); given != nullptr && *given != 0)
    folders.emplace_back(given);
  if (const fs::path home = base::home_folder(); !home.empty())
    folders.push_back(home / "adapters");
  if (const fs::path shipped = base::shipped_path("share/evalrun/adapters"); !shipped.empty())
    folders.push_back(shipped);
  std::vector<std::string> others;
  for (const fs::path& folder : folders) {
    std::vector<std::string> files;
    std::error_code error;
    for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error))
      if (it->path().filename() == name + ".safetensors") files.push_back(it->path().string());
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) {
      const auto adapter = Adapter::open(file);
      if (adapter->method() != method) continue;
      if (adapter->target_hash() == target.hash() && !target.hash().empty()) return adapter;
      others.push_back(fmt::format("{} ({})", adapter->target_name(), file));
    }
  }
  throw base::usage_error(
      fmt::format("{}: there are no weights '{}' for {}{}", method, name, target.config().name,
                  others.empty() ? "" : fmt::format("; there are for {}", fmt::join(others, ", "))),
      fmt::format("train them: scripts/train {} --target {} --out DIR --name {}; or give "
                  "adapter=PATH",
                  method, target.path().empty() ? "MODEL" : target.path(), name));
}

}  // namespace evalrun::methods
