#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "engine/base/error.h"
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

void choose_chat_template(const LoadOptions& options, const std::string& source,
                          const std::string& bos, const std::string& eos, ModelParts& parts) {
  if (!options.chat_template.empty()) {
    parts.chat_template = chat_template_by_name(options.chat_template);
    return;
  }
  if (source.empty()) {
    parts.chat_template_error =
        fmt::format("{}: the model has no chat template\n  hint: name one of: {}", parts.path,
                    known_templates());
    return;
  }
  try {
    parts.chat_template = chat_template_from_jinja(source, bos, eos);
  } catch (const base::Error& error) {
    // Prompts that need no template must still run; whoever needs it shows this text.
    parts.chat_template_error = fmt::format("{}: {}", parts.path, error.what());
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
