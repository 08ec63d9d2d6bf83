// How a data set is named, with the part and the prompt form that are wanted:
//
//   gsm8k    xsum:prompt=space    humaneval_x[python,go]:prompt=instruct    jsonl:FILE
//
// Parsed in this one place. Names of parts and options are the set's own; what it does not know is
// a usage error with its neighbours.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "datasets/dataset.h"

namespace evalrun::datasets {

// Takes `text` apart and checks it against the entry its name is registered under, which goes to
// *entry. Throws usage_error. Not for "jsonl:FILE", which is no registered set.
DatasetSpec parse_dataset_spec(std::string_view text, const DatasetEntry** entry = nullptr);

inline constexpr std::string_view kJsonlPrefix = "jsonl:";

// Checks a spec without reading any file: registered, with parts and options that exist, or
// "jsonl:..." with a file name. Returns its one spelling. Throws usage_error.
std::string checked_dataset_spec(std::string_view text);

// Splits "gsm8k:shots=5,humaneval_x[cpp,go],xsum" at the commas between data sets. A file name
// after "jsonl:" keeps a comma when a file of that name exists.
std::vector<std::string> split_dataset_list(std::string_view text);

}  // namespace evalrun::datasets
