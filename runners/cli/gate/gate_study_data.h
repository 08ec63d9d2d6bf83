// gate_study.json, compiled in.
#pragma once
#include <span>
#include <string_view>

namespace evalrun::cli {

struct EmbeddedFile {
  std::string_view name, text;
};
std::span<const EmbeddedFile> gate_study_files();

}  // namespace evalrun::cli
