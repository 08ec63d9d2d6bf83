// MBPP (Austin et al. 2021): short Python programs from a sentence and three asserts. Official use:
// tasks 11 to 510 are the test split, 1 to 10 the examples of few-shot prompts. Answers are judged
// by running them.
#include "datasets/json_lines.h"
#include "datasets/sets.h"
#include "engine/base/text.h"

namespace evalrun::datasets {

namespace {

constexpr int kFirstTest = 11, kLastTest = 510;

std::string joined_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

CodeProblem read_problem(int task, base::ObjectReader& reader) {
  CodeProblem problem;
  problem.set = CodeProblem::Set::kMbpp;
  problem.language = "python";
  problem.task = std::to_string(task);
  problem.test_setup = reader.optional<std::string>("test_setup_code", "");
  const auto tests = reader.required<std::vector<std::string>>("test_list");
  if (tests.empty()) reader.fail("test_list", "is empty", "a problem is judged by its asserts");
  problem.test = joined_lines(tests);
  problem.canonical_solution = reader.required<std::string>("code");
  return problem;
}

RowReader row_reader(const DatasetSpec&) {
  return [](const JsonLine&, base::ObjectReader& reader) -> std::optional<Prompt> {
    const int task = reader.required<int>("task_id");
    if (task < kFirstTest || task > kLastTest) return std::nullopt;
    auto problem = std::make_shared<CodeProblem>(read_problem(task, reader));
    Prompt prompt;
    prompt.id = fmt::format("mbpp/{}", task);
    prompt.language = "python";
    prompt.turns = {fmt::format(
        "You are an expert Python programmer, and here is your task: {} Your code should pass "
        "these tests:\n\n{}\n",
        reader.required<std::string>("text"), problem->test)};
    prompt.code = std::move(problem);
    return prompt;
  };
}

}  // namespace

DatasetEntry mbpp() {
  DatasetInfo info;
  info.name = info.family = "mbpp";
  info.summary = "short Python programs from a sentence and three asserts (test split)";
  info.source = "https://github.com/google-research/google-research (mbpp)";
  info.licence = "CC BY 4.0";
  info.official_count = kLastTest - kFirstTest + 1;
  info.default_max_new = 512;
  info.files = {"mbpp/mbpp.jsonl"};
  return {info, file_loader(info, row_reader)};
}

}  // namespace evalrun::datasets
