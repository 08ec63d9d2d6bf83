// MBPP (Austin et al. 2021): short Python programs from a sentence and three asserts. Official use:
// tasks 11 to 510 are the test split, 1 to 10 the examples of few-shot prompts. Answers are judged
// by running them.
//
// MBPP-100: the 100 problems of the sanitized test split that Self-Draft (Gao et al. 2025) measures
// on: the split in file order, Python's random.sample(range(257), 100) after seed(10), as its
// released code draws them. Its prompt is the sentence alone.
#include <algorithm>

#include "datasets/json_lines.h"
#include "datasets/sets.h"

namespace evalrun::datasets {

namespace {

constexpr int kFirstTest = 11, kLastTest = 510;
constexpr int kFirstShot = 2, kLastShot = 4;  // as the paper and the harnesses after it

// clang-format off
constexpr int kMbpp100[] = {
    1, 3, 8, 9, 11, 16, 18, 19, 20, 24, 28, 34, 35, 36, 38, 40, 41, 42, 44, 48, 49, 52, 57, 60, 61,
    62, 63, 67, 70, 71, 72, 77, 80, 83, 89, 90, 92, 93, 95, 96, 97, 98, 105, 106, 107, 110, 111,
    112, 113, 114, 115, 116, 118, 120, 123, 125, 127, 128, 133, 136, 137, 140, 145, 147, 149, 153,
    154, 155, 157, 167, 168, 169, 170, 172, 174, 175, 190, 196, 197, 199, 203, 207, 208, 210, 211,
    213, 216, 219, 220, 222, 233, 234, 235, 239, 242, 245, 248, 249, 255, 256};
// clang-format on

bool is_test(int task) { return task >= kFirstTest && task <= kLastTest; }

std::string joined_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

// The paper's wording.
std::string request(const std::string& sentence, const std::string& tests) {
  return fmt::format(
      "You are an expert Python programmer, and here is your task: {} Your code should pass these "
      "tests:\n\n{}\n",
      sentence, tests);
}

std::string without_carriage_returns(std::string text) {
  std::erase(text, '\r');
  return text;
}

CodeProblem read_problem(int task, base::ObjectReader& reader) {
  CodeProblem problem;
  problem.set = CodeProblem::Set::kMbpp;
  problem.language = "python";
  problem.task = std::to_string(task);
  const auto tests = reader.required<std::vector<std::string>>("test_list");
  if (tests.empty()) reader.fail("test_list", "is empty", "a problem is judged by its asserts");
  problem.test = joined_lines(tests);
  problem.canonical_solution = reader.required<std::string>("code");
  return problem;
}

struct MbppOptions {
  bool few_shot = false;
};

base::Options<MbppOptions> mbpp_options() {
  return base::Options<MbppOptions>{}.choice("prompt", &MbppOptions::few_shot,
                                             {{"instruct", false}, {"few-shot", true}},
                                             "chat message, or the paper's raw three-shot prompt");
}

struct Mbpp100Options {
  bool with_tests = true;
};

base::Options<Mbpp100Options> mbpp_100_options() {
  return base::Options<Mbpp100Options>{}.choice(
      "prompt", &Mbpp100Options::with_tests, {{"instruct", true}, {"self-draft", false}},
      "with the asserts, or the sentence alone as in Self-Draft");
}

// The examples come before the first test in the file, so one pass sees them first.
RowReader mbpp_rows(const DatasetSpec& spec) {
  const bool few_shot = mbpp_options().of(spec.options).few_shot;
  const auto shots = std::make_shared<std::string>();
  const auto n_shots = std::make_shared<int>(0);
  return [few_shot, shots, n_shots](const JsonLine&,
                                    base::ObjectReader& reader) -> std::optional<Prompt> {
    const int task = reader.required<int>("task_id");
    const bool shot = few_shot && task >= kFirstShot && task <= kLastShot;
    if (!is_test(task) && !shot) return std::nullopt;
    auto problem = std::make_shared<CodeProblem>(read_problem(task, reader));
    problem->test_setup = reader.optional<std::string>("test_setup_code", "");
    const std::string asked = request(reader.required<std::string>("text"), problem->test);
    if (shot) {
      *shots += fmt::format("{}[BEGIN]\n{}\n[DONE]\n\n", asked,
                            without_carriage_returns(problem->canonical_solution));
      ++*n_shots;
      return std::nullopt;
    }
    Prompt prompt;
    prompt.id = fmt::format("mbpp/{}", task);
    prompt.group = "/" + prompt.id;  // of all its forms
    prompt.language = "python";
    if (few_shot) {
      if (*n_shots != kLastShot - kFirstShot + 1)
        reader.fail("task_id", fmt::format("{} comes before the examples", task),
                    fmt::format("prompt=few-shot needs tasks {} to {} at the front of the file",
                                kFirstShot, kLastShot));
      prompt.turns = {*shots + asked + "[BEGIN]\n"};
      prompt.chat = false;
      prompt.stop.strings = {"[DONE]"};
    } else {
      prompt.turns = {asked};
    }
    prompt.code = std::move(problem);
    return prompt;
  };
}

RowReader mbpp_100_rows(const DatasetSpec& spec) {
  const bool with_tests = mbpp_100_options().of(spec.options).with_tests;
  const auto n_tests = std::make_shared<int>(0);
  return
      [with_tests, n_tests](const JsonLine&, base::ObjectReader& reader) -> std::optional<Prompt> {
        const int task = reader.required<int>("task_id");
        if (!is_test(task)) return std::nullopt;
        const int index = (*n_tests)++;
        if (!std::binary_search(std::begin(kMbpp100), std::end(kMbpp100), index))
          return std::nullopt;
        auto problem = std::make_shared<CodeProblem>(read_problem(task, reader));
        problem->test_setup =
            joined_lines(reader.optional<std::vector<std::string>>("test_imports", {}));
        Prompt prompt;
        prompt.id = fmt::format("mbpp_100/{}", task);
        prompt.group = fmt::format("/mbpp/{}", task);
        prompt.language = "python";
        const auto sentence = reader.required<std::string>("prompt");
        prompt.turns = {with_tests ? request(sentence, problem->test) : sentence};
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
  info.evaluators = {"pass@evalrun"};
  info.options = mbpp_options().infos();
  info.files = {"mbpp/mbpp.jsonl"};
  return {info, file_loader(info, mbpp_rows)};
}

DatasetEntry mbpp_100() {
  DatasetInfo info;
  info.name = "mbpp_100";
  info.family = "mbpp";
  info.summary = "Self-Draft's 100 problems of the sanitized MBPP test split";
  info.source = "https://github.com/google-research/google-research (mbpp/sanitized-mbpp.json)";
  info.licence = "CC BY 4.0";
  info.official_count = static_cast<int>(std::size(kMbpp100));
  info.default_max_new = 1024;
  info.evaluators = {"pass@evalrun"};
  info.options = mbpp_100_options().infos();
  info.files = {"mbpp/sanitized-mbpp.json"};
  return {info, file_loader(info, mbpp_100_rows)};
}

}  // namespace evalrun::datasets
