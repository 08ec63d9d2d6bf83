// A model's tokenizer without its weights.
#pragma once
#include <memory>
#include <string>

#include "engine/tokenizer/tokenizer.h"

namespace evalrun::cli {

// PATH: a GGUF file or a Hugging Face folder. Throws data_error.
std::shared_ptr<const engine::Tokenizer> load_tokenizer(const std::string& path);

}  // namespace evalrun::cli
