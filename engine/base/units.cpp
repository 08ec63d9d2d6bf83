#include "engine/base/units.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/base/parse_number.h"

namespace evalrun::base {
namespace {

constexpr double kRoundsTo1000 = 999.5;  // in three digits

}  // namespace

std::string format_bytes(double bytes) {
  if (bytes < kRoundsTo1000) return fmt::format("{:.0f} B", bytes);
  for (const char* unit : {"kB", "MB", "GB"}) {
    bytes /= 1000;
    if (bytes < kRoundsTo1000) return fmt::format("{:.3g} {}", bytes, unit);
  }
  return fmt::format("{:.3g} TB", bytes / 1000);
}

std::string format_duration(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds < 59.95) {
    double in_unit = seconds * 1e9;
    for (const char* unit : {"ns", "us", "ms"}) {
      if (in_unit < kRoundsTo1000) return fmt::format("{:.3g} {}", in_unit, unit);
      in_unit /= 1000;
    }
    return fmt::format("{:.3g} s", seconds);
  }
  const auto s = std::llround(seconds);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
}

std::optional<double> parse_duration(std::string_view text) {
  const char unit = text.empty() ? '\0' : text.back();
  const double factor = unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : 0;
  if (factor > 0) text.remove_suffix(1);
  const auto value = parse_number<double>(text);
  if (!value || *value < 0) return std::nullopt;
  return factor > 0 ? *value * factor : *value;
}

}  // namespace evalrun::base
