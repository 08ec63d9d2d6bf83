// Facts about published models (engine/model/shapes.json), compiled into the library.
#pragma once
#include <span>

#include "engine/base/embedded_file.h"

namespace evalrun::engine {

std::span<const base::EmbeddedFile> embedded_shapes();

}  // namespace evalrun::engine
