// Arms whose adapter was trained on prompts of evaluation sets, as the adapter itself states it
// (docs/adapters.md, "Overlap"): their figures on these sets flatter them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reports/data/run_data.h"

namespace evalrun::reports {

// Prompts that stood in the text of the training, by evaluation set. Empty for an arm without an
// adapter, and where the adapter states none.
std::map<std::string, int64_t> training_overlap(const ArmInfo& arm);

// After the label of an arm that has some.
inline constexpr const char* kOverlapMark = "†";

// "eagle was trained on 3 prompts of gsm8k and 1 prompt of mbpp; medusa was trained on 2 prompts of
// xsum." Each arm once; "" where none has any.
std::string overlap_sentence(const std::vector<const ArmInfo*>& arms);

}  // namespace evalrun::reports
