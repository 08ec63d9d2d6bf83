// What the published figures mean, in one place: printed by `evalrun list metrics` and at the end
// of the HTML report.
#pragma once
#include <span>

namespace evalrun::reports {

struct MetricInfo {
  const char* name;
  const char* definition;
  const char* source;  // view of the result database it is read from
};
std::span<const MetricInfo> metric_glossary();

}  // namespace evalrun::reports
