// GSM8K answers by the two conventions of lm-evaluation-harness, task gsm8k version 3.0.
#pragma once
#include <string>
#include <string_view>

#include "evaluators/evaluator.h"

namespace evalrun::evaluators {

// What both extractors return when the text has no number.
inline constexpr std::string_view kGsm8kInvalid = "[invalid]";

// "strict-match": the first "#### NUMBER". Models that were not shown examples rarely write it.
std::string extract_gsm8k_strict(std::string_view text);
// "flexible-extract": the last thing that looks like a number, "18." and "$1,000" included.
std::string extract_gsm8k_flexible(std::string_view text);

// "exact_match": both sides without commas, dollar signs, everything up to the last "#### " and one
// full stop at the end; case does not matter. Numbers are not parsed: "5.0" does not equal "5".
bool gsm8k_equal(std::string_view extracted, std::string_view reference);

EvaluatorEntry gsm8k_strict();
EvaluatorEntry gsm8k_flexible();

}  // namespace evalrun::evaluators
