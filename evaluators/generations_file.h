// Generations made elsewhere, one JSON object per line (gzip allowed):
//
//   id      required: the set's own name of the prompt ("Python/0", "HumanEval/3", "gsm8k/17"), or
//   ours;
//           a number is read as its digits
//   sample  optional, default 0; several per prompt are told apart by it
//   text    required: the answer, or a list of answers, one per turn
//
// Other fields are ignored: files of other tools have many.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "datasets/dataset.h"

namespace evalrun::evaluators {

struct OutsideGeneration {
  std::string id;     // as the file has it
  size_t prompt = 0;  // index in the set
  int64_t sample = 0;
  std::vector<std::string> texts;  // one per turn of the prompt
};

struct GenerationsFile {
  std::vector<OutsideGeneration> generations;  // in the file's order
  std::vector<std::string> problems;           // "FILE: line 3: ...", one per line left out
};

// Prompts of a set by any name a file may have for them: our id, the official id of a programming
// problem, and our id without the set's name ("17" for "gsm8k/17").
class PromptNames {
 public:
  explicit PromptNames(const datasets::LoadedDataset& set);
  // npos when the name is unknown.
  size_t find(const std::string& name) const;
  static constexpr size_t npos = static_cast<size_t>(-1);

 private:
  std::unordered_map<std::string, size_t> index_;
};

// The official name of a prompt where it has one, else ours.
std::string official_id(const datasets::Prompt& prompt);

// `text`: the file's bytes, gzip removed. A line that cannot be used (no JSON, not UTF-8, unknown
// id, the same id and sample again, ...) is a problem and does not stop the others. Throws
// data_error for a file without any line.
GenerationsFile read_generations(std::string_view text, const std::string& file,
                                 const datasets::LoadedDataset& set);

}  // namespace evalrun::evaluators
