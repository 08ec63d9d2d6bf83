#include "reports/table/training_overlap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"

namespace evalrun::reports {

std::map<std::string, int64_t> training_overlap(const ArmInfo& arm) {
  std::map<std::string, int64_t> overlap;
  const nlohmann::json stored =
      nlohmann::json::parse(arm_setting(arm, "adapter_overlap"), nullptr, false);
  if (!stored.is_object()) return overlap;
  for (const auto& item : stored.items())
    if (item.value().is_number_integer() && item.value().get<int64_t>() > 0)
      overlap[item.key()] = item.value().get<int64_t>();
  return overlap;
}

std::string overlap_sentence(const std::vector<const ArmInfo*>& arms) {
  std::vector<std::string> parts;
  for (const ArmInfo* arm : arms) {
    std::vector<std::string> sets;
    for (const auto& [set, prompts] : training_overlap(*arm))
      sets.push_back(fmt::format("{} of {}", base::plural(prompts, "prompt"), set));
    if (sets.empty()) continue;
    const std::string part =
        fmt::format("{} was trained on {}", arm->label, fmt::join(sets, " and "));
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  return parts.empty() ? "" : fmt::format("{}.", fmt::join(parts, "; "));
}

}  // namespace evalrun::reports
