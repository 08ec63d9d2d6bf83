// What the published figures mean, in one place: printed by `evalrun list metrics` and at the end
// of the HTML report.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "reports/document/document.h"

namespace evalrun::reports {

struct MetricInfo {
  const char* name;
  const char* definition;
  const char* source;  // view of the result database it is read from
  const char* anchor;  // of docs/measurement.md
};
std::span<const MetricInfo> metric_glossary();

// "docs/measurement.md#ratios" for "tau"; the page itself for a name without an entry. Evaluators
// ("rougeL", "pass@1") are defined as "quality".
std::string definition_of(std::string_view metric);

// A column of figures whose header leads to the definition.
Column metric_column(std::string name, const char* metric, Room room = Room::kAlways);

}  // namespace evalrun::reports
