// What the code sets share: the forms in which a problem is put to a model, and where a raw
// completion ends.
#pragma once
#include <string>

#include "datasets/dataset.h"

namespace evalrun::datasets {

// Option `prompt` of HumanEval and HumanEval-X.
OptionInfo code_prompt_option();

// Turns, chat and stop rules of `prompt` for the form named `form`; `text` is the problem as
// completed.
//   completion  the text itself, raw, with stop rules
//   chat        the text itself as a chat message (Falcon, Self-Draft)
//   instruct    asks for the whole function in one fenced block
//   space       SPACE's wording (Yi et al. 2024, appendix); its released code asks otherwise
//   bita        BiTA's wording (Lin et al. 2024, released code)
void put_code_problem(const std::string& form, const std::string& text, Prompt& prompt);

}  // namespace evalrun::datasets
