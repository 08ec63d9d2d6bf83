#include "reports/table/flattered.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace evalrun::reports {

std::string flattered_by(const ArmInfo& arm) { return arm_setting(arm, "flatters"); }

std::string flatters_note(const std::vector<std::pair<std::string, std::string>>& arms) {
  std::vector<std::string> parts;
  for (const auto& [arm, reason] : arms) {
    if (reason.empty()) continue;
    const std::string part = fmt::format("{}: {}: flatters this method", arm, reason);
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  return parts.empty() ? "" : fmt::format("{}: {}.", kFlattersMark, fmt::join(parts, "; "));
}

std::string flatters_note(const std::vector<const ArmInfo*>& arms) {
  std::vector<std::pair<std::string, std::string>> named;
  for (const ArmInfo* arm : arms) named.emplace_back(arm->label, flattered_by(*arm));
  return flatters_note(named);
}

}  // namespace evalrun::reports
