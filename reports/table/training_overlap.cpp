#include "reports/table/training_overlap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"

namespace evalrun::reports {

TrainingOverlap training_overlap(const ArmInfo& arm) {
  TrainingOverlap overlap;
  const nlohmann::json stored =
      nlohmann::json::parse(arm_setting(arm, "adapter_overlap"), nullptr, false);
  if (!stored.is_object()) return overlap;
  for (const auto& item : stored.items())
    if (item.value().is_number_integer() && item.value().get<int64_t>() > 0)
      overlap[item.key()] = item.value().get<int64_t>();
  return overlap;
}

std::string overlap_sentence(const std::vector<const ArmInfo*>& arms) {
  std::vector<NamedOverlap> named;
  for (const ArmInfo* arm : arms) named.emplace_back(arm->label, training_overlap(*arm));
  return overlap_sentence(named);
}

std::string overlap_sentence(const std::vector<NamedOverlap>& arms) {
  std::vector<std::string> parts;
  for (const auto& [arm, overlap] : arms) {
    std::vector<std::string> sets;
    for (const auto& [set, prompts] : overlap)
      sets.push_back(fmt::format("{} of {}", base::plural(prompts, "prompt"), set));
    if (sets.empty()) continue;
    const std::string part = fmt::format("{} was trained on {}", arm, fmt::join(sets, " and "));
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  return parts.empty() ? "" : fmt::format("{}.", fmt::join(parts, "; "));
}

std::string overlap_note(const std::string& sentence) {
  return sentence.empty() ? "" : fmt::format("{}: {}", kOverlapMark, sentence);
}

Json overlap_json(const TrainingOverlap& overlap) {
  return overlap.empty() ? Json(nullptr) : Json(overlap);
}

Json overlap_list(const TrainingOverlap& overlap) {
  Json list = Json::array();
  for (const auto& [set, prompts] : overlap) list.push_back(fmt::format("{} {}", set, prompts));
  return list;
}

}  // namespace evalrun::reports
