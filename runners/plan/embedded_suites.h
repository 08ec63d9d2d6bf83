// The built-in suites (runners/suites/*.json, then runners/suites/papers/*.json), compiled into the
// library.
#pragma once
#include <span>

#include "engine/base/embedded_file.h"

namespace evalrun::runners {

std::span<const base::EmbeddedFile> embedded_suites();

}  // namespace evalrun::runners
