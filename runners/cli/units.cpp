#include "runners/cli/units.h"

#include <fmt/format.h>

#include <cmath>

namespace evalrun::cli {
namespace {

std::optional<double> number(const std::string& text) {
  double value = 0;
  if (!CLI::detail::lexical_cast(text, value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

// Replaces the text by what `parse` makes of it, so that CLI11 reads a plain number.
CLI::Validator as_number(std::optional<double> (*parse)(const std::string&), const char* complaint,
                         const char* type) {
  const auto convert = [=](std::string& text) {
    const std::optional<double> value = parse(text);
    if (!value) return fmt::format("'{}' {}", text, complaint);
    text = fmt::format("{}", *value);  // as many digits as the number has
    return std::string();
  };
  return CLI::Validator(convert, type, type);
}

}  // namespace

std::optional<double> parse_share(const std::string& text) {
  const bool percent = text.ends_with('%');
  const std::optional<double> value = number(percent ? text.substr(0, text.size() - 1) : text);
  if (!value) return value;
  const double share = percent ? *value / 100 : *value;
  return share >= 0 && share < 1 ? std::optional(share) : std::nullopt;
}

std::optional<double> parse_seconds(const std::string& text) {
  const char unit = text.empty() ? '\0' : text.back();
  const double factor = unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : 0;
  const std::optional<double> value = number(factor == 0 ? text : text.substr(0, text.size() - 1));
  if (!value || *value < 0) return std::nullopt;
  return factor == 0 ? *value : *value * factor;
}

CLI::Validator as_share() {
  return as_number(parse_share, "is no share below 1: write 3% or 0.03", "SHARE");
}

CLI::Validator as_seconds() {
  return as_number(parse_seconds, "is no time: write 90s, 10m or 2h", "TIME");
}

}  // namespace evalrun::cli
