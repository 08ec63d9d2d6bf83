// HumanEval-X (Zheng et al. 2023, CodeGeeX; the Rust part was contributed later): the problems of
// HumanEval in six languages, one file each. Answers are judged by running them; see CodeProblem.
// Rust prompts hold no signature: the declaration is shown before them, as the program has it.
#include <array>

#include "datasets/json_lines.h"
#include "datasets/sets.h"
#include "datasets/sources/code_prompts.h"

namespace evalrun::datasets {

namespace {

struct Language {
  const char* name;  // as in CodeProblem and in name[part]
  const char* task_prefix;
};
constexpr std::array<Language, 6> kLanguages = {{{"python", "Python/"},
                                                 {"cpp", "CPP/"},
                                                 {"java", "Java/"},
                                                 {"js", "JavaScript/"},
                                                 {"go", "Go/"},
                                                 {"rust", "Rust/"}}};
constexpr int kProblems = 164;  // per language

CodeProblem read_problem(const Language& language, base::ObjectReader& reader) {
  CodeProblem problem;
  problem.set = CodeProblem::Set::kHumanEvalX;
  problem.language = language.name;
  problem.task = reader.required<std::string>("task_id");
  if (!problem.task.starts_with(language.task_prefix))
    reader.fail("task_id", fmt::format("must be {}<number>", language.task_prefix),
                "each language has a file of its own");
  problem.declaration = reader.required<std::string>("declaration");
  problem.prompt = reader.required<std::string>("prompt");
  problem.test = reader.required<std::string>("test");
  problem.canonical_solution = reader.required<std::string>("canonical_solution");
  if (problem.language == "go") {
    problem.test_setup = reader.required<std::string>("test_setup");
    problem.imports = reader.required<std::string>("import");
  }
  return problem;
}

RowReader humaneval_x_rows(const Language& language, CodePrompt form) {
  return [language, form](const JsonLine&, base::ObjectReader& reader) {
    auto problem = std::make_shared<CodeProblem>(read_problem(language, reader));
    Prompt prompt;
    const std::string number = problem->task.substr(std::string_view(language.task_prefix).size());
    prompt.id = fmt::format("humaneval_x/{}/{}", language.name, number);
    prompt.group = "/humaneval/" + number;
    prompt.language = language.name;
    const bool rust = problem->language == "rust";
    put_code_problem(form, (rust ? problem->declaration : "") + problem->prompt, prompt);
    prompt.code = std::move(problem);
    return prompt;
  };
}

FileState combined(FileState a, FileState b) {
  if (a == FileState::kUnknown || b == FileState::kUnknown) return FileState::kUnknown;
  return a == b ? a : FileState::kSubset;
}

LoadedDataset load(const DatasetInfo& info, const std::string& root, const DatasetSpec& spec) {
  LoadedDataset loaded{info, spec.text, {}, "", ""};
  loaded.info.official_count = 0;
  const CodePrompt form = code_options().of(spec.options).prompt;
  PromptList prompts;
  std::optional<FileState> state;
  for (size_t i = 0; i < kLanguages.size(); ++i) {
    if (!spec.wants(kLanguages[i].name)) continue;
    const FoundFile file = find_data_file(info, root, {info.files[i]});
    const FileState one =
        read_rows(file.path, file.relative, humaneval_x_rows(kLanguages[i], form), prompts);
    state = state ? combined(*state, one) : one;
    loaded.info.official_count += kProblems;
    loaded.origin += (loaded.origin.empty() ? "" : ", ") + file.path;
  }
  loaded.prompts = prompts.take();
  loaded.verification =
      verification_text(state.value(), loaded.prompts.size(), loaded.info.official_count);
  return loaded;
}

}  // namespace

DatasetEntry humaneval_x() {
  DatasetInfo info;
  info.name = info.family = "humaneval_x";
  info.summary = "functions to complete in six languages";
  info.source = "https://github.com/THUDM/CodeGeeX (codegeex/benchmark/humaneval-x)";
  info.licence = "Apache-2.0";
  info.version = "2";
  info.official_count = kProblems * static_cast<int>(kLanguages.size());
  info.default_max_new = 1024;
  info.evaluators = {"pass@evalrun"};
  info.options = code_options().infos();
  for (const Language& language : kLanguages) {
    info.parts.emplace_back(language.name);
    info.files.push_back(fmt::format("humaneval_x/humaneval_{}.jsonl.gz", language.name));
  }
  return {info, [info](const std::string& root, const DatasetSpec& spec) {
            return load(info, root, spec);
          }};
}

}  // namespace evalrun::datasets
