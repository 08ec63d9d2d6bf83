// HumanEval (Chen et al. 2021): complete a Python function from its signature and docstring. The
// prompt is the official text as raw completion, without a chat template. The reference is the
// program text that judges an answer: prompt + answer + reference must run without an exception.
#include "datasets/json_lines.h"
#include "datasets/sets.h"

namespace evalrun::datasets {

DatasetEntry humaneval() {
  DatasetInfo info;
  info.name = info.family = "humaneval";
  info.summary = "Python functions to complete from signature and docstring";
  info.source = "https://github.com/openai/human-eval (data)";
  info.licence = "MIT";
  info.official_count = 164;
  info.default_max_new = 1024;
  info.file = "humaneval/HumanEval.jsonl.gz";
  const auto row = [](const JsonLine&, base::ObjectReader& reader) {
    constexpr std::string_view kPrefix = "HumanEval/";
    const auto task = reader.required<std::string>("task_id");
    if (!task.starts_with(kPrefix)) reader.fail("task_id", "must be HumanEval/<number>");
    Prompt prompt;
    prompt.id = "humaneval/" + task.substr(kPrefix.size());
    prompt.language = "python";
    prompt.turns = {reader.required<std::string>("prompt")};
    prompt.reference = fmt::format("\n{}\ncheck({})\n", reader.required<std::string>("test"),
                                   reader.required<std::string>("entry_point"));
    prompt.chat = false;
    return prompt;
  };
  return {info, file_loader(info, row)};
}

}  // namespace evalrun::datasets
