// The HTML report's template, style and scripts, and Chart.js, compiled into the library.
#pragma once
#include <span>

#include "engine/base/embedded_file.h"

namespace evalrun::reports {

std::span<const base::EmbeddedFile> html_assets();    // template.html, style.css, *.js
std::span<const base::EmbeddedFile> chart_library();  // Debian's chart.min.js

}  // namespace evalrun::reports
