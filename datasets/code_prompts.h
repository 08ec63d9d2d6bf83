// What the code sets share: where a raw completion ends.
#pragma once
#include <string>

#include "datasets/dataset.h"

namespace evalrun::datasets {

// Python: the stop list of the bigcode harness, in place of the official rule (the first non-empty
// line in column 0), which its entries approximate and which no list of strings can say. Other
// languages: one '}' more than '{', the official rule of HumanEval-X.
StopRules completion_stop_rules(const std::string& language);

}  // namespace evalrun::datasets
