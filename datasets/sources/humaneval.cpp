// HumanEval (Chen et al. 2021): complete a Python function from its signature and docstring.
// Answers are judged by running them.
#include "datasets/json_lines.h"
#include "datasets/sets.h"
#include "datasets/sources/code_prompts.h"

namespace evalrun::datasets {

namespace {

RowReader humaneval_rows(const DatasetSpec& spec) {
  return
      [form = code_options().of(spec.options).prompt](const JsonLine&, base::ObjectReader& reader) {
        constexpr std::string_view kPrefix = "HumanEval/";
        auto problem = std::make_shared<CodeProblem>();
        problem->set = CodeProblem::Set::kHumanEval;
        problem->language = "python";
        problem->task = reader.required<std::string>("task_id");
        if (!problem->task.starts_with(kPrefix))
          reader.fail("task_id", "must be HumanEval/<number>");
        problem->prompt = reader.required<std::string>("prompt");
        problem->test = reader.required<std::string>("test");
        problem->entry_point = reader.required<std::string>("entry_point");
        problem->canonical_solution = reader.required<std::string>("canonical_solution");
        Prompt prompt;
        prompt.id = "humaneval/" + problem->task.substr(kPrefix.size());
        prompt.group = "/" + prompt.id;  // HumanEval-X has it, too
        prompt.language = "python";
        put_code_problem(form, problem->prompt, prompt);
        prompt.code = std::move(problem);
        return prompt;
      };
}

}  // namespace

DatasetEntry humaneval() {
  DatasetInfo info;
  info.name = info.family = "humaneval";
  info.summary = "Python functions to complete from signature and docstring";
  info.source = "https://github.com/openai/human-eval (data)";
  info.licence = "MIT";
  info.version = "2";
  info.official_count = 164;
  info.default_max_new = 1024;
  info.evaluators = {"pass@evalrun"};
  info.options = code_options().infos();
  info.files = {"humaneval/HumanEval.jsonl.gz"};
  return {info, file_loader(info, humaneval_rows)};
}

}  // namespace evalrun::datasets
