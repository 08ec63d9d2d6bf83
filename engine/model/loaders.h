// What the two loaders share with load_model(); not for other folders.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/assemble.h"
#include "engine/model/model.h"

namespace evalrun::engine {

std::shared_ptr<const Model> load_gguf(const std::string& path, const LoadOptions& options);
std::shared_ptr<const Model> load_hugging_face(const std::string& folder,
                                               const LoadOptions& options);

// What assemble() needs of the options; `hash` makes the model's hash.
AssembleOptions assemble_options(const LoadOptions& options, std::function<std::string()> hash);

// Sets chat_template, or chat_template_error when the model's own is absent or unknown. A template
// named in the options must exist (usage_error). `source` is the Jinja text, "" when there is none.
void choose_chat_template(const LoadOptions& options, const std::string& source,
                          const std::string& bos, const std::string& eos, ModelParts& parts);

// The tokenizer must not produce ids the model has no embedding for.
void check_vocabulary(const ModelParts& parts);

// SHA-256 of a file. Large files are remembered in $EVALRUN_HOME/hashes.json by path, size and
// modification time, so that a start does not read all weights twice.
std::string weights_sha256(const std::string& path);

}  // namespace evalrun::engine
