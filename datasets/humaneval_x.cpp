// HumanEval-X (Zheng et al. 2023, CodeGeeX): HumanEval in several languages; here its Python part.
// The prompt is raw completion; the reference is the test text that follows prompt, answer and a
// newline in the program under test.
#include "datasets/json_lines.h"
#include "datasets/sets.h"

namespace evalrun::datasets {

DatasetEntry humaneval_x() {
  DatasetInfo info;
  info.name = info.family = "humaneval_x";
  info.summary = "HumanEval-X, Python part: functions to complete";
  info.source = "https://github.com/THUDM/CodeGeeX (codegeex/benchmark/humaneval-x)";
  info.licence = "Apache-2.0";
  info.official_count = 164;
  info.default_max_new = 1024;
  info.file = "humaneval_x/humaneval_python.jsonl.gz";
  const auto row = [](const JsonLine&, base::ObjectReader& reader) {
    constexpr std::string_view kPrefix = "Python/";
    const auto task = reader.required<std::string>("task_id");
    if (!task.starts_with(kPrefix)) reader.fail("task_id", "must be Python/<number>");
    Prompt prompt;
    prompt.id = "humaneval_x/python/" + task.substr(kPrefix.size());
    prompt.language = "python";
    prompt.turns = {reader.required<std::string>("prompt")};
    prompt.reference = reader.required<std::string>("test");
    prompt.chat = false;
    return prompt;
  };
  return {info, file_loader(info, row)};
}

}  // namespace evalrun::datasets
