// The forms of papers' tables (reports/papers/*.json), compiled into the library.
#pragma once
#include <span>

#include "reports/embedded_file.h"

namespace evalrun::reports {

std::span<const EmbeddedFile> embedded_papers();

}  // namespace evalrun::reports
