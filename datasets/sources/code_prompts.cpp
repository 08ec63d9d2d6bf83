#include "datasets/sources/code_prompts.h"

#include "engine/base/error.h"

namespace evalrun::datasets {

namespace {

// Python: the stop list of the bigcode harness, which approximates the official rule (the first
// non-empty line in column 0) in strings. Other languages: one '}' more than '{', the official rule
// of HumanEval-X; Rust, which has none, is given the same.
StopRules completion_stop_rules(const std::string& language) {
  StopRules rules;
  if (language == "python")
    rules.strings = {"\nclass", "\ndef", "\n#", "\n@", "\nprint", "\nif", "\nassert", "\n```"};
  else
    rules.closing_brace = true;
  return rules;
}

// As prose writes it; the papers' wordings are theirs for Python.
std::string spoken(const std::string& language) {
  if (language == "cpp") return "C++";
  if (language == "js") return "JavaScript";
  std::string name = language;
  if (name != "python") name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

}  // namespace

OptionInfo code_prompt_option() {
  return {"prompt",
          "form of the problem",
          "completion",
          {"completion", "chat", "instruct", "space", "bita"}};
}

void put_code_problem(const std::string& form, const std::string& text, Prompt& prompt) {
  prompt.chat = form != "completion";
  const std::string language = spoken(prompt.language);
  if (form == "completion") {
    prompt.turns = {text};
    prompt.stop = completion_stop_rules(prompt.language);
  } else if (form == "chat") {
    prompt.turns = {text};
  } else if (form == "instruct") {
    prompt.turns = {
        fmt::format("Complete the following {} function. Answer with the complete function in one "
                    "fenced code block, without tests and without explanation.\n\n```{}\n{}\n```",
                    language, prompt.language, text)};
  } else if (form == "space") {
    prompt.turns = {
        fmt::format("Complete the following {} code. Do not give any explanation or testing "
                    "examples, just complete the code.\n {}",
                    language, text)};
  } else {
    EVALRUN_CHECK(form == "bita", "no form '{}' of code prompts", form);
    prompt.turns = {fmt::format("Complete the following {} code\n{}", language, text)};
  }
}

}  // namespace evalrun::datasets
