// Our own prompts, written for this project and compiled in, so that a first run needs no download.
// One file per kind in datasets/samples/; the lines follow the schema of jsonl.cpp less "chat".
// programs.jsonl has the fields of HumanEval-X instead: four problems, each in six languages. It is
// no part of "samples", whose answers are short texts: scoring it runs programs.
//
// Short on purpose (about 250 tokens at most): they are for a small model on a small machine.
#include "datasets/embedded.h"
#include "datasets/json_lines.h"
#include "datasets/sets.h"
#include "datasets/sources/code_prompts.h"

namespace evalrun::datasets {

namespace {

struct Kind {
  const char* name;
  const char* summary;
  std::vector<std::string> evaluators;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds = {
      {"chat", "two-turn conversations", {}},
      {"math",
       "word problems with a numeric answer",
       {"gsm8k@evalrun", "gsm8k_strict@lm-eval-3", "gsm8k_flexible@lm-eval-3"}},
      {"summarize",
       "short articles to summarise or take facts from",
       {"rougeL@rouge_score-0.1.2", "rougeL@pltrdy-1.0.1"}},
      {"code", "Python, C and SQL to complete or continue", {}},
      {"edit", "small changes to a file, which is to be given back whole", {}},
      {"instruct", "short instructions, many with a text to rewrite", {}},
  };
  return kKinds;
}

std::vector<Prompt> read_kind(const Kind& kind) {
  const std::string file = fmt::format("samples/{}.jsonl", kind.name);
  PromptList prompts;
  for_each_json_record(
      embedded_text(file), file, [&](const JsonLine& at, base::ObjectReader& reader) {
        Prompt prompt;
        prompt.id = fmt::format("samples/{}/{}", kind.name, reader.required<std::string>("id"));
        prompt.category = kind.name;
        prompt.evaluators = kind.evaluators;
        prompt.language = reader.optional<std::string>("language", "");
        prompt.turns = reader.required<std::vector<std::string>>("turns");
        if (const auto reference = reader.optional<std::string>("reference", "");
            !reference.empty())
          prompt.reference = reference;
        reader.finish();
        prompts.add(file, at, std::move(prompt));
      });
  return prompts.take();
}

constexpr const char* kProgramsFile = "samples/programs.jsonl";
const std::vector<std::string> kProgramLanguages = {"python", "cpp", "java", "js", "go", "rust"};

std::vector<Prompt> read_programs(const DatasetSpec& spec) {
  const CodePrompt form = code_options().of(spec.options).prompt;
  PromptList prompts;
  for_each_json_record(embedded_text(kProgramsFile), kProgramsFile,
                       [&](const JsonLine& at, base::ObjectReader& reader) {
                         auto problem = std::make_shared<CodeProblem>();
                         problem->set = CodeProblem::Set::kHumanEvalX;
                         problem->language = reader.required<std::string>("language");
                         problem->task = reader.required<std::string>("id");
                         problem->declaration = reader.optional<std::string>("declaration", "");
                         problem->prompt = reader.required<std::string>("prompt");
                         problem->test = reader.required<std::string>("test");
                         problem->test_setup = reader.optional<std::string>("test_setup", "");
                         problem->imports = reader.optional<std::string>("import", "");
                         problem->canonical_solution =
                             reader.required<std::string>("canonical_solution");
                         reader.finish();
                         if (!spec.wants(problem->language)) return;
                         Prompt prompt;
                         prompt.id = "samples/programs/" + problem->task;
                         prompt.group = problem->task.substr(problem->task.find('/') + 1);
                         prompt.language = problem->language;
                         put_code_problem(form, problem->declaration + problem->prompt, prompt);
                         prompt.code = std::move(problem);
                         prompts.add(kProgramsFile, at, std::move(prompt));
                       });
  return prompts.take();
}

DatasetInfo common_info() {
  DatasetInfo info;
  info.family = "samples";
  info.source = "written for this project";
  info.licence = "Apache-2.0";
  info.default_max_new = 128;
  return info;
}

}  // namespace

std::vector<DatasetEntry> samples() {
  std::vector<DatasetEntry> entries;
  DatasetInfo programs = common_info();
  programs.name = "samples/programs";
  programs.summary = "functions to complete in six languages, with tests";
  programs.default_max_new = 256;
  programs.evaluators = {"pass@evalrun"};
  programs.parts = kProgramLanguages;
  programs.options = code_options().infos();
  DatasetInfo all = common_info();
  all.name = "samples";
  all.summary = "all kinds of samples but programs";
  for (const Kind& kind : kinds()) {
    DatasetInfo info = common_info();
    info.name = fmt::format("samples/{}", kind.name);
    info.summary = kind.summary;
    info.evaluators = kind.evaluators;
    all.evaluators.insert(all.evaluators.end(), kind.evaluators.begin(), kind.evaluators.end());
    entries.push_back(
        {info, [info, &kind](const std::string&, const DatasetSpec& spec) {
           return LoadedDataset{info, spec.text, read_kind(kind), "built in", "built in"};
         }});
  }
  entries.push_back(
      {programs, [programs](const std::string&, const DatasetSpec& spec) {
         return LoadedDataset{programs, spec.text, read_programs(spec), "built in", "built in"};
       }});
  entries.push_back({all, [all](const std::string&, const DatasetSpec& spec) {
                       LoadedDataset loaded{all, spec.text, {}, "built in", "built in"};
                       for (const Kind& kind : kinds())
                         for (Prompt& prompt : read_kind(kind))
                           loaded.prompts.push_back(std::move(prompt));
                       return loaded;
                     }});
  return entries;
}

}  // namespace evalrun::datasets
