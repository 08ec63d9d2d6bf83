// The forms of papers' tables (reports/papers/*.json), compiled into the library.
#pragma once
#include <span>

#include "engine/base/embedded_file.h"

namespace evalrun::reports {

std::span<const base::EmbeddedFile> embedded_papers();

}  // namespace evalrun::reports
