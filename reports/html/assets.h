// The HTML report's template, style and scripts, and Chart.js, compiled into the library.
#pragma once
#include <span>
#include <string_view>

namespace evalrun::reports {

struct EmbeddedFile {
  std::string_view name, text;
};

std::span<const EmbeddedFile> html_assets();    // template.html, style.css, *.js
std::span<const EmbeddedFile> chart_library();  // Debian's chart.min.js

}  // namespace evalrun::reports
