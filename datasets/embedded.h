// Files of this folder that are compiled into the library: manifest.json and samples/*.jsonl.
#pragma once
#include <span>
#include <string_view>

#include "engine/base/embedded_file.h"

namespace evalrun::datasets {

std::span<const base::EmbeddedFile> embedded_files();  // names: "samples/chat.jsonl"

// The text of one embedded file; an unknown name is our own mistake.
std::string_view embedded_text(std::string_view name);

}  // namespace evalrun::datasets
