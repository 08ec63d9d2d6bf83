// Hugging Face folders as models: config.json, safetensors, tokenizer.json.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"
#include "engine/formats/safetensors.h"
#include "engine/model/assemble.h"
#include "engine/model/hf_config.h"
#include "engine/model/loaders.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kHfEmbedding = "model.embed_tokens.weight";

std::string model_name(const std::string& folder) {
  fs::path path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "models/x/"
  std::error_code error;
  if (path == "." || path.empty())
    path = fs::absolute(path, error).lexically_normal().parent_path();
  return path.filename().string();
}

json read_json_if_there(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return json::object();
  json j = base::parse_json(base::read_file(path.string()), path.string());
  if (!j.is_object()) throw base::data_error(path.string(), "", "must be a JSON object");
  return j;
}

// Token texts are plain, or objects with the text as "content".
std::string token_text(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return {};
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && it->at("content").is_string())
    return it->at("content").get<std::string>();
  return {};
}

// The template, its text "" when the folder has none. Newer folders keep it in a file of its own,
// older ones in tokenizer_config.json: one text, or a list of named ones.
OwnTemplate own_template(const fs::path& folder, const json& config) {
  OwnTemplate own;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (std::string text = token_text(config, name); !text.empty())
      own.tokens.emplace_back(name, std::move(text));
  std::error_code error;
  if (const fs::path file = folder / "chat_template.jinja"; fs::exists(file, error)) {
    own.place = file.string();
    own.source = base::read_file(own.place);
    return own;
  }
  own.place = (folder / "tokenizer_config.json").string();
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return own;
  if (it->is_string()) {
    own.source = it->get<std::string>();
    return own;
  }
  if (it->is_array())
    for (const json& entry : *it)
      if (entry.is_object() && entry.value("name", json()) == "default" &&
          entry.value("template", json()).is_string()) {
        own.source = entry.at("template").get<std::string>();
        return own;
      }
  throw base::data_error(own.place, "chat_template",
                         "must be a text or a list with an entry named 'default'");
}

// One hash for the configuration and all shards, whatever order the system lists them in.
std::string folder_hash(const std::string& config_path, const SafeTensors& weights) {
  std::string lines = fmt::format("config.json {}\n", base::sha256_file(config_path));
  std::vector<std::string> paths;
  for (const auto& file : weights.files()) paths.push_back(file->path());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths)
    lines += fmt::format("{} {}\n", fs::path(path).filename().string(), weights_sha256(path));
  return base::sha256_hex(lines);
}

SourceModel make_source(const std::string& folder, const SafeTensors& weights,
                        const ModelConfig& config) {
  SourceModel source{folder, Naming::kHuggingFace, false, {}};
  std::map<std::string, std::shared_ptr<const MappedFile>> mappings;
  for (const auto& file : weights.files()) mappings.emplace(file->path(), file);
  for (const auto& [name, t] : weights.tensors())
    source.tensors.emplace(name,
                           SourceTensor{t.file, t.dtype, t.shape, t.bytes, mappings.at(t.file)});
  // Some tied checkpoints store the matrix twice. Two different ones would leave open which counts.
  const auto head = source.tensors.find(kHead), embedding = source.tensors.find(kHfEmbedding);
  if (config.tied_head && head != source.tensors.end() && embedding != source.tensors.end()) {
    if (!std::ranges::equal(head->second.bytes, embedding->second.bytes))
      throw base::data_error(
          head->second.file, fmt::format("tensor '{}'", kHead),
          fmt::format("differs from '{}' although config.json ties them", kHfEmbedding),
          "set tie_word_embeddings to false if the output matrix is its own");
    source.tensors.erase(head);
  }
  return source;
}

}  // namespace

std::shared_ptr<const Model> load_hugging_face(const std::string& folder,
                                               const LoadOptions& options) {
  const std::string config_path = (fs::path(folder) / "config.json").string();
  std::error_code error;
  if (!fs::exists(config_path, error))
    throw base::data_error(folder, "", "holds no config.json",
                           "pass a Hugging Face model folder or a .gguf file");
  ModelParts parts;
  parts.path = folder;
  parts.config =
      read_hf_config(base::parse_json(base::read_file(config_path), config_path), config_path);
  parts.config.name = model_name(folder);

  const SafeTensors weights(folder);
  // Tokenizer and template before the weights: their errors should not cost a minute.
  if (options.need_tokenizer) {
    parts.tokenizer = tokenizer_from_folder(folder);
    check_vocabulary(parts);
    const json tokenizer_config = read_json_if_there(fs::path(folder) / "tokenizer_config.json");
    choose_chat_template(options, own_template(folder, tokenizer_config), parts);
  }
  parts.format = options.format;
  assemble(make_source(folder, weights, parts.config),
           assemble_options(options, [&] { return folder_hash(config_path, weights); }), parts);
  return Model::create(std::move(parts));
}

}  // namespace evalrun::engine
