#include "runners/cli/load_tokenizer.h"

#include <filesystem>

#include "engine/formats/gguf.h"

namespace evalrun::cli {

std::shared_ptr<const engine::Tokenizer> load_tokenizer(const std::string& path) {
  if (std::filesystem::is_directory(path)) return engine::tokenizer_from_folder(path);
  return engine::tokenizer_from_gguf(engine::GgufFile(path));
}

}  // namespace evalrun::cli
