// Arms whose figures are too good for what their method is, as the run stored it: their setting
// "flatters" says why (methods/registration.h, MethodInfo::files).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "reports/data/run_data.h"

namespace evalrun::reports {

// "target's weights are 4-bit"; "" of most arms.
std::string flattered_by(const ArmInfo& arm);

// After the label of an arm that has a reason.
inline constexpr const char* kFlattersMark = "‡";

// "‡: sps:draft=self: target's weights are 4-bit: flatters this method.", for under a table. Each
// arm once; "" where none has a reason. Pairs: an arm by the name that a table gives it, and its
// reason or "".
std::string flatters_note(const std::vector<std::pair<std::string, std::string>>& arms);
std::string flatters_note(const std::vector<const ArmInfo*>& arms);

}  // namespace evalrun::reports
