// Counters of a server's GET /metrics, in the text format of Prometheus
// (https://prometheus.io/docs/instrumenting/exposition_formats/, text-based format 0.0.4).
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace evalrun::runners {

// Samples by metric name ("vllm:generation_tokens_total"), added over all their labels: processes
// of one server count side by side. Lines that are not of the format are counted in bad_lines.
struct PrometheusSamples {
  std::map<std::string, double, std::less<>> sums;
  int bad_lines = 0;
  std::optional<double> find(std::string_view name) const;
};
PrometheusSamples parse_prometheus(std::string_view text);

// By how much a counter rose. Absent where one of the two lacks it or it fell: the server was
// started anew.
std::optional<double> counter_rise(const PrometheusSamples& before, const PrometheusSamples& after,
                                   std::string_view name);

}  // namespace evalrun::runners
