// GSM8K (Cobbe et al. 2021): grade school word problems. The prompt is the bare question, asked as
// a chat message; the reference is the whole official answer, whose last line is "#### <number>".
#include "datasets/json_lines.h"
#include "datasets/sets.h"

namespace evalrun::datasets {

DatasetEntry gsm8k() {
  DatasetInfo info;
  info.name = info.family = "gsm8k";
  info.summary = "maths word problems with a numeric answer (test split)";
  info.source = "https://github.com/openai/grade-school-math (grade_school_math/data)";
  info.licence = "MIT";
  info.official_count = 1319;
  info.default_max_new = 256;
  info.evaluators = {"gsm8k_strict@lm-eval-3", "gsm8k_flexible@lm-eval-3"};
  info.files = {"gsm8k/test.jsonl"};
  const auto row = [](const JsonLine& at, base::ObjectReader& reader) {
    Prompt prompt;
    prompt.id = fmt::format("gsm8k/{}", at.row);
    prompt.turns = {reader.required<std::string>("question")};
    prompt.reference = reader.required<std::string>("answer");
    if (prompt.reference->find("#### ") == std::string::npos)
      reader.fail("answer", "has no final line '#### NUMBER'",
                  "use the official file; evaluators compare with that number");
    return prompt;
  };
  return {info, file_loader(info, [row](const DatasetSpec&) { return row; })};
}

}  // namespace evalrun::datasets
