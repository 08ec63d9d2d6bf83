// What the code sets share: the forms in which a problem is put to a model, and where a raw
// completion ends.
#pragma once
#include <string>

#include "datasets/dataset.h"

namespace evalrun::datasets {

// How a problem is put to a model:
//   completion  the text itself, raw, with stop rules
//   chat        the text itself as a chat message (Falcon, Self-Draft)
//   instruct    asks for the whole function in one fenced block
//   space       SPACE's wording (Yi et al. 2024, appendix); its released code asks otherwise
//   bita        BiTA's wording (Lin et al. 2024, released code)
enum class CodePrompt { kCompletion, kChat, kInstruct, kSpace, kBita };

// Of HumanEval and HumanEval-X.
struct CodeOptions {
  CodePrompt prompt = CodePrompt::kCompletion;
};
base::Options<CodeOptions> code_options();

// Turns, chat and stop rules of `prompt` in this form; `text` is the problem as completed.
void put_code_problem(CodePrompt form, const std::string& text, Prompt& prompt);

}  // namespace evalrun::datasets
