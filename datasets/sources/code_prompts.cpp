#include "datasets/sources/code_prompts.h"

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

base::Options<CodeOptions> code_options() {
  return base::Options<CodeOptions>{}.choice("prompt", &CodeOptions::prompt,
                                             {{"completion", CodePrompt::kCompletion},
                                              {"chat", CodePrompt::kChat},
                                              {"instruct", CodePrompt::kInstruct},
                                              {"space", CodePrompt::kSpace},
                                              {"bita", CodePrompt::kBita}},
                                             "form of the problem");
}

void put_code_problem(CodePrompt form, const std::string& text, Prompt& prompt) {
  prompt.chat = form != CodePrompt::kCompletion;
  prompt.turns = {text};
  const std::string language = spoken(prompt.language);
  switch (form) {
    case CodePrompt::kCompletion:
      prompt.stop = completion_stop_rules(prompt.language);
      break;
    case CodePrompt::kChat:
      break;
    case CodePrompt::kInstruct:
      prompt.turns = {fmt::format(
          "Complete the following {} function. Answer with the complete function in one "
          "fenced code block, without tests and without explanation.\n\n```{}\n{}\n```",
          language, prompt.language, text)};
      break;
    case CodePrompt::kSpace:
      prompt.turns = {
          fmt::format("Complete the following {} code. Do not give any explanation or testing "
                      "examples, just complete the code.\n {}",
                      language, text)};
      break;
    case CodePrompt::kBita:
      prompt.turns = {fmt::format("Complete the following {} code\n{}", language, text)};
      break;
  }
}

}  // namespace evalrun::datasets
