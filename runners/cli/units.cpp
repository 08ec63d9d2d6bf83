#include "runners/cli/units.h"

#include <fmt/format.h>

#include <string>

#include "engine/base/parse_number.h"
#include "engine/base/units.h"

namespace evalrun::cli {
namespace {

// Replaces the text by what `parse` makes of it, so that CLI11 reads a plain number.
CLI::Validator as_number(std::optional<double> (*parse)(std::string_view), const char* complaint,
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

std::optional<double> parse_share(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  const auto value = base::parse_number<double>(text);
  if (!value) return value;
  const double share = percent ? *value / 100 : *value;
  return share >= 0 && share < 1 ? std::optional(share) : std::nullopt;
}

CLI::Validator as_share() {
  return as_number(parse_share, "is no share below 1: write 3% or 0.03", "SHARE");
}

CLI::Validator as_seconds() {
  return as_number(base::parse_duration, "is no time: write 90s, 10m or 2h", "TIME");
}

}  // namespace evalrun::cli
