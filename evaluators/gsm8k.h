// GSM8K answers by the two conventions of lm-evaluation-harness, task gsm8k version 3.0, and by a
// third that compares values.
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

// The last number of the text as it stands there, less currency: "-1,000.00", ".5", or
// kGsm8kInvalid. A minus (also U+2212) is a sign unless it follows a letter, digit or closing
// bracket. Commas between thousands belong to the number, others separate ("1,5" ends in 5). Units,
// percent signs and exponents are not read.
std::string extract_gsm8k_decimal(std::string_view text);
// One spelling per value for what extract_gsm8k_decimal() returns: "1,000.00" is "1000", "-0" is
// "0".
std::string canonical_decimal(std::string_view number);
// The number after the last "#### " of a reference; the whole reference where there is none.
std::string gsm8k_reference(std::string_view reference);

EvaluatorEntry gsm8k_strict();
EvaluatorEntry gsm8k_flexible();
EvaluatorEntry gsm8k_decimal();

}  // namespace evalrun::evaluators
