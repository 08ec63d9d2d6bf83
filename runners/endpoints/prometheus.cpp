#include "runners/endpoints/prometheus.h"

#include <cmath>
#include <limits>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"

namespace evalrun::runners {
namespace {

constexpr std::string_view kSpaces = " \t";

// Cuts "{a=\"b\",...}" from the front of `line`; a quoted value may hold braces. False when it does
// not end.
bool skip_labels(std::string_view& line) {
  bool quoted = false;
  for (size_t i = 1; i < line.size(); ++i) {
    if (quoted && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && line[i] == '}') {
      line.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

// The format has Go's spelling: "+Inf", "-Inf", "NaN", "1e+06".
std::optional<double> sample_value(std::string_view text) {
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "+Inf" || text == "Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  if (text.starts_with('+')) text.remove_prefix(1);
  return base::parse_number<double>(text);
}

// "name{labels} value [timestamp]"
bool add_sample(std::string_view line, PrometheusSamples& samples) {
  const size_t name_end = line.find_first_of("{ \t");
  if (name_end == 0 || name_end == std::string_view::npos) return false;
  const std::string name(line.substr(0, name_end));
  line.remove_prefix(name_end);
  if (line.front() == '{' && !skip_labels(line)) return false;
  line = base::trim(line);
  const size_t value_end = line.find_first_of(kSpaces);
  const std::optional<double> value = sample_value(line.substr(0, value_end));
  if (!value) return false;
  if (value_end != std::string_view::npos &&
      !base::parse_number<double>(base::trim(line.substr(value_end))))
    return false;
  samples.sums[name] += *value;
  return true;
}

}  // namespace

std::optional<double> PrometheusSamples::find(std::string_view name) const {
  const auto it = sums.find(name);
  if (it == sums.end() || !std::isfinite(it->second)) return std::nullopt;
  return it->second;
}

PrometheusSamples parse_prometheus(std::string_view text) {
  PrometheusSamples samples;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = base::trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    if (!add_sample(line, samples)) ++samples.bad_lines;
  }
  return samples;
}

std::optional<double> counter_rise(const PrometheusSamples& before, const PrometheusSamples& after,
                                   std::string_view name) {
  const std::optional<double> first = before.find(name), second = after.find(name);
  if (!first || !second || *second < *first) return std::nullopt;
  return *second - *first;
}

}  // namespace evalrun::runners
