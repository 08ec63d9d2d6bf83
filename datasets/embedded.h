// Files of this folder that are compiled into the library: manifest.json and samples/*.jsonl.
#pragma once
#include <span>
#include <string_view>

namespace evalrun::datasets {

struct EmbeddedFile {
  std::string_view name;  // relative to datasets/, "samples/chat.jsonl"
  std::string_view text;
};

std::span<const EmbeddedFile> embedded_files();

// The text of one embedded file; an unknown name is our own mistake.
std::string_view embedded_text(std::string_view name);

}  // namespace evalrun::datasets
