// Figures as JSON: null where there is none.
#pragma once
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/stats.h"

namespace evalrun::reports {

using Json = nlohmann::ordered_json;

inline Json json_value(const std::optional<double>& v) {
  return v && std::isfinite(*v) ? Json(*v) : Json(nullptr);
}
inline Json json_lo(const std::optional<base::Interval>& i) {
  return i ? Json(i->lo) : Json(nullptr);
}
inline Json json_hi(const std::optional<base::Interval>& i) {
  return i ? Json(i->hi) : Json(nullptr);
}

}  // namespace evalrun::reports
