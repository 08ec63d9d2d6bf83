// From a model's answer to the code that goes into the program.
#pragma once
#include <string>
#include <string_view>

#include "datasets/dataset.h"

namespace evalrun::evaluators {

// Whose rules cut completions, set limits and read verdicts.
enum class CodeConvention { kEvalrun, kCodegeex, kBigcode };

struct Answer {
  std::string code;
  // A function (or more) of its own; otherwise what follows the prompt inside the function.
  bool whole = false;
};

// Raw completions (`chat` false) are cut where the convention says that the function has ended.
// Answers of a chat: the first fenced block that defines the function, else the first fenced block
// of the language, else the first one, else the whole text; a block that defines the function
// stands for itself, any other is a body. Any bytes are allowed.
Answer read_answer(const datasets::CodeProblem& problem, bool chat, std::string_view text,
                   CodeConvention convention);

// Official stop and clean-up rules; `text` is a raw completion.
std::string cut_completion(const datasets::CodeProblem& problem, std::string_view text,
                           CodeConvention convention);

// Name of the function to write: the data set's, or read from the signature; "" when not found.
std::string entry_point(const datasets::CodeProblem& problem);

// Does `code` define the function `name`?
bool defines_function(std::string_view language, std::string_view code, const std::string& name);

// Offset after the brace that closes the one at `open`, npos when it stays open. Strings, character
// literals and comments of the C family are skipped.
size_t matching_brace(std::string_view code, size_t open);

}  // namespace evalrun::evaluators
