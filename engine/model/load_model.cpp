#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/model/loaders.h"
#include "engine/model/weight_files.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::engine {
namespace {

std::string known_templates() {
  std::string names;
  for (const std::string& name : chat_template_names()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

// A name has no place in a folder, and none is known that ends like a file.
bool is_template_file(const std::string& option) {
  std::error_code error;
  const auto names = chat_template_names();
  return std::find(names.begin(), names.end(), option) == names.end() &&
         (option.find('/') != std::string::npos || option.ends_with(".jinja") ||
          std::filesystem::is_regular_file(option, error));
}

std::string template_file(const std::string& path) {
  constexpr size_t kMaxBytes = size_t{4} << 20;  // the longest known have 100 KB
  const std::string hint =
      "give the path of a file with a chat template in Jinja, or a name: " + known_templates();
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw base::usage_error(fmt::format("--chat-template {}: there is no such file", path), hint);
  if (std::filesystem::file_size(path, error) > kMaxBytes)
    throw base::usage_error(
        fmt::format("--chat-template {}: the file is larger than any chat template", path), hint);
  return base::read_file(path);
}

int allowed_cores() {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) return std::max(1, CPU_COUNT(&cpus));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

AssembleOptions assemble_options(const LoadOptions& options, std::function<std::string()> hash) {
  AssembleOptions result;
  result.n_threads = options.n_threads > 0 ? options.n_threads : allowed_cores();
  if (options.hash_weights) result.hash = std::move(hash);
  const char* off = std::getenv("EVALRUN_NO_WEIGHT_CACHE");
  result.use_cache = options.cache && (off == nullptr || *off == '\0' || *off == '0');
  result.cache_from_bytes = options.cache_from_bytes;
  result.cache_limit = weight_limit_variable();
  return result;
}

void choose_chat_template(const LoadOptions& options, const OwnTemplate& own, ModelParts& parts) {
  if (!options.chat_template.empty()) {
    parts.chat_template = is_template_file(options.chat_template)
                              ? chat_template_from_jinja(template_file(options.chat_template),
                                                         own.tokens, options.chat_template)
                              : chat_template_by_name(options.chat_template);
    return;
  }
  if (own.source.empty()) {
    parts.chat_template_error =
        fmt::format("{}: the model has no chat template\n  hint: name one of: {}", parts.path,
                    known_templates());
    return;
  }
  try {
    parts.chat_template = chat_template_from_jinja(own.source, own.tokens, own.place);
  } catch (const base::Error& error) {
    // Prompts that need no template must still run; whoever needs it shows this text.
    parts.chat_template_error = error.what();
  }
}

void check_vocabulary(const ModelParts& parts) {
  if (parts.tokenizer != nullptr && parts.tokenizer->vocab_size() > parts.config.vocab_size)
    throw base::data_error(parts.path, "tokenizer",
                           fmt::format("has {} tokens, but the model has {} embeddings",
                                       parts.tokenizer->vocab_size(), parts.config.vocab_size),
                           "tokenizer and weights belong to different models");
}

std::shared_ptr<const Model> load_model(const std::string& path, const LoadOptions& options) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return load_hugging_face(path, options);
  if (path.ends_with(".safetensors"))
    throw base::usage_error(fmt::format("{}: weights alone are not a model", path),
                            "pass the folder that holds config.json and tokenizer.json");
  return load_gguf(path, options);
}

}  // namespace evalrun::engine
