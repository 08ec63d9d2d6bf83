#include "datasets/code_prompts.h"

namespace evalrun::datasets {

StopRules completion_stop_rules(const std::string& language) {
  StopRules rules;
  if (language == "python")
    rules.strings = {"\nclass", "\ndef", "\n#", "\n@", "\nprint", "\nif", "\nassert", "\n```"};
  else
    rules.closing_brace = true;
  return rules;
}

}  // namespace evalrun::datasets
