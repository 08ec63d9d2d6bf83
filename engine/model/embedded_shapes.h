// Facts about published models (engine/model/shapes.json), compiled into the library.
#pragma once
#include <span>
#include <string_view>

namespace evalrun::engine {

struct EmbeddedFile {
  std::string_view name, text;
};
std::span<const EmbeddedFile> embedded_shapes();

}  // namespace evalrun::engine
