// Arms whose adapter was trained on prompts of evaluation sets, as the adapter itself states it
// (docs/adapters.md, "Overlap"): their figures on these sets flatter them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reports/data/run_data.h"
#include "reports/json_values.h"

namespace evalrun::reports {

// Prompts that stood in the text of the training, by evaluation set. Empty for an arm without an
// adapter, and where the adapter states none.
using TrainingOverlap = std::map<std::string, int64_t>;
TrainingOverlap training_overlap(const ArmInfo& arm);

// After the label of an arm that has some.
inline constexpr const char* kOverlapMark = "†";

// "eagle was trained on 3 prompts of gsm8k and 1 prompt of mbpp; medusa was trained on 2 prompts of
// xsum." Each arm once; "" where none has any.
std::string overlap_sentence(const std::vector<const ArmInfo*>& arms);
// The same for arms by the names that a table gives them.
using NamedOverlap = std::pair<std::string, TrainingOverlap>;
std::string overlap_sentence(const std::vector<NamedOverlap>& arms);
// "†: eagle was trained on ...", for under a table; "" where no arm has the mark.
std::string overlap_note(const std::string& sentence);

// For programs: {"gsm8k": 3, "mbpp": 1}, or null where there is none; and for CSV the list of
// "gsm8k 3" and "mbpp 1".
Json overlap_json(const TrainingOverlap& overlap);
Json overlap_list(const TrainingOverlap& overlap);

}  // namespace evalrun::reports
