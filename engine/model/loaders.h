// What the two loaders share with load_model(); not for other folders.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/assemble.h"
#include "engine/model/model.h"
#include "engine/tokenizer/chat/chat_template.h"

namespace evalrun::engine {

std::shared_ptr<const Model> load_gguf(const std::string& path, const LoadOptions& options);
std::shared_ptr<const Model> load_hugging_face(const std::string& folder,
                                               const LoadOptions& options);

// What assemble() needs of the options; `hash` makes the model's hash.
AssembleOptions assemble_options(const LoadOptions& options, std::function<std::string()> hash);

// The template a model carries, and the tokens it may refer to.
struct OwnTemplate {
  std::string source;  // Jinja, "" when the model has none
  std::string place;   // the file that holds it
  SpecialTokens tokens;
};

// Sets chat_template, or chat_template_error when the model's own is absent or cannot be read. What
// the options name must exist (usage_error): a named template, or a file with Jinja text.
void choose_chat_template(const LoadOptions& options, const OwnTemplate& own, ModelParts& parts);

// The tokenizer must not produce ids the model has no embedding for.
void check_vocabulary(const ModelParts& parts);

// SHA-256 of a file. Large files are remembered in $EVALRUN_HOME/hashes.json by path, size and
// modification time, so that a start does not read all weights twice.
std::string weights_sha256(const std::string& path);

}  // namespace evalrun::engine
