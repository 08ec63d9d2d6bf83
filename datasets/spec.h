// How a data set is named, with the part and the prompt form that are wanted:
//
//   gsm8k    xsum:prompt=space    humaneval_x[python,go]:prompt=instruct    jsonl:FILE
//
// Parsed in this one place. Names of parts and options are the set's own; what it does not know is
// a usage error with its neighbours.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::datasets {

// An option of a data set: one of `choices`, or a whole number in min..max when there are none.
struct OptionInfo {
  std::string name, summary, default_value;
  std::vector<std::string> choices;
  int min = 0, max = 0;
};

struct DatasetEntry;

struct DatasetSpec {
  std::string name;
  std::vector<std::string> parts;              // chosen, in the set's order; empty = all
  std::map<std::string, std::string> options;  // every option of the set has its value here
  // The one spelling, under which results are stored: parts in the set's order, options in the
  // order of their names, those at their defaults left out.
  std::string text;

  bool wants(std::string_view part) const;
  const std::string& option(const std::string& key) const;
  int number(const std::string& key) const;
};

// Takes `text` apart and checks it against the entry its name is registered under, which goes to
// *entry. Throws usage_error. Not for "jsonl:FILE", which is no registered set.
DatasetSpec parse_dataset_spec(std::string_view text, const DatasetEntry** entry = nullptr);

inline constexpr std::string_view kJsonlPrefix = "jsonl:";

// Checks a spec without reading any file: registered, with parts and options that exist, or
// "jsonl:..." with a file name. Returns its one spelling. Throws usage_error.
std::string checked_dataset_spec(std::string_view text);

// Splits "gsm8k:shots=5,humaneval_x[cpp,go],xsum" at the commas between data sets. A file name
// behind "jsonl:" keeps a comma when a file of that name exists.
std::vector<std::string> split_dataset_list(std::string_view text);

}  // namespace evalrun::datasets
