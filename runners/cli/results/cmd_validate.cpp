// evalrun validate FILE...: reads a file as strictly as a run would and says what it is.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "datasets/dataset.h"
#include "datasets/manifest.h"
#include "engine/base/text.h"
#include "engine/formats/safetensors.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "results/queries.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/cli/run_reference.h"
#include "runners/plan/suite.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ValidateArguments {
  std::vector<std::string> files;
  int threads = 0;
};

// What a file is, and one line about it.
struct Validated {
  std::string kind, summary;
};

std::string first_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes(16, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}

Validated validate_model(const std::string& path, int threads) {
  engine::LoadOptions options;
  options.n_threads = threads;
  const auto model = engine::load_model(path, options);
  const engine::ModelConfig& c = model->config();
  std::string chat = "no chat template known";
  if (model->chat_template() != nullptr) chat = "chat template " + model->chat_template()->name();
  return {"model",
          fmt::format("{} ({}), {:.1f} M parameters, {} layers, vocabulary {}, context {}, {}, "
                      "SHA-256 {:.16}",
                      c.name, c.architecture, static_cast<double>(model->n_parameters()) / 1e6,
                      c.n_layers, c.vocab_size, c.max_context, chat, model->hash())};
}

Validated validate_tensors(const std::string& path) {
  const engine::SafeTensors tensors(path);
  return {"weights", fmt::format("safetensors, {} tensors in {} files", tensors.tensors().size(),
                                 tensors.files().size())};
}

Validated validate_database(const std::string& path) {
  const auto store = open_results(path);
  const std::string integrity = results::check_file(*store);
  if (integrity != "ok")
    throw base::data_error(path, "", "the database is damaged: " + integrity,
                           "sqlite3 FILE .recover saves what can be read");
  const std::vector<results::ListedRun> runs = results::list_runs(*store);
  int64_t generations = 0;
  for (const results::ListedRun& run : runs) generations += run.counts.stored;
  const auto problems = results::accounting_problems(*store);
  if (!problems.empty())
    throw base::Error(
        base::ExitCode::kCorrectness,
        fmt::format("{}: {} turns break the accounting rules; generation {}: {}", path,
                    problems.size(), problems.front().generation_id, problems.front().problem),
        "evalrun show on that generation gives its steps");
  if (const std::vector<int64_t> wrong = results::wrong_tallies(*store); !wrong.empty())
    throw base::Error(
        base::ExitCode::kCorrectness,
        fmt::format("{}: the tallies of {} generations are not what their turns, steps and nodes "
                    "add up to; the first is generation {}",
                    path, wrong.size(), wrong.front()),
        fmt::format("reports read the rows again after: sqlite3 {} 'UPDATE generation SET tally = "
                    "NULL'",
                    path));
  return {"database", fmt::format("schema {}, {} runs, {} generations, accounting right",
                                  results::kSchemaVersion, runs.size(), generations)};
}

Validated validate_suite(const std::string& path) {
  runners::Suite suite = runners::parse_suite(base::read_file(path), path);
  runners::complete_suite(suite, path);
  for (const std::string& model : suite.models) model_path(model);  // or throws
  return {"suite",
          fmt::format("{}: {}{} methods, {} tasks, {} repeats", suite.name,
                      suite.models.empty() ? "" : fmt::format("{} models, ", suite.models.size()),
                      suite.methods.size(), suite.tasks.size(), suite.repeats)};
}

Validated validate_prompts(const std::string& path) {
  const std::string sha256 = base::sha256_file(path);
  // The official files have schemas of their own; they are known by their bytes.
  for (const datasets::ManifestFile& file : datasets::manifest()) {
    if (file.sha256 == sha256)
      return {"data set", fmt::format("{}, the official {}", file.dataset, file.path)};
    for (const datasets::KnownSubset& subset : file.subsets)
      if (subset.sha256 == sha256)
        return {"data set", fmt::format("{}, {} of the {} records of {}", file.dataset,
                                        subset.count, file.count, file.path)};
  }
  const datasets::LoadedDataset set = datasets::load_dataset("jsonl:" + path, "");
  size_t turns = 0, references = 0;
  for (const datasets::Prompt& prompt : set.prompts) {
    turns += prompt.turns.size();
    references += prompt.reference.has_value() ? 1 : 0;
  }
  return {"data set", fmt::format("{} prompts, {} turns, {} with a reference", set.prompts.size(),
                                  turns, references)};
}

// By content where bytes tell, by name where they do not.
Validated validate(const std::string& path, int threads) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw base::data_error(path, "", "there is no such file or folder");
  if (std::filesystem::is_directory(path, ignored)) return validate_model(path, threads);
  const std::string head = first_bytes(path);
  const std::string name = std::filesystem::path(path).filename().string();
  if (head.starts_with("GGUF") || name.ends_with(".gguf")) return validate_model(path, threads);
  if (head.starts_with("SQLite format 3")) return validate_database(path);
  if (name.ends_with(".safetensors")) return validate_tensors(path);
  if (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")) return validate_prompts(path);
  if (name.ends_with(".json")) return validate_suite(path);
  if (name.ends_with(".db") || name.ends_with(".sqlite")) return validate_database(path);
  throw base::usage_error(
      fmt::format("{}: cannot tell what this is", path),
      "known: suites (.json), prompts (.jsonl, .jsonl.gz), models (.gguf or a folder with "
      "config.json), weights (.safetensors), result databases (.db)");
}

void run_validate(const ValidateArguments& options, Context& context) {
  Json array = Json::array();
  for (const std::string& path : options.files) {
    try {
      const Validated finding = validate(path, options.threads);
      array.push_back(
          {{"file", path}, {"ok", true}, {"kind", finding.kind}, {"summary", finding.summary}});
      if (!context.global.json)
        print_line(fmt::format("{}: ok: {}: {}", path, finding.kind, finding.summary));
    } catch (const base::Error& error) {
      // One bad file of several must not hide the others; a single one is an error as anywhere
      // else.
      if (options.files.size() == 1 && !context.global.json) throw;
      context.exit_code = std::max(context.exit_code, static_cast<int>(error.code()));
      array.push_back({{"file", path},
                       {"ok", false},
                       {"exit_code", static_cast<int>(error.code())},
                       {"error", error.message()},
                       {"hint", error.hint()}});
      if (!context.global.json) fmt::print(stderr, "error: {}\n", error.what());
    }
  }
  if (context.global.json) print_json_document(array);
}

}  // namespace

void add_validate_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("validate", "Check a suite, data set, model or database");
  auto options = std::make_shared<ValidateArguments>();
  command->add_option("file", options->files, "Files or model folders")->required();
  command->add_option("-t,--threads", options->threads, "Threads for reading weights")
      ->check(CLI::Range(0, 1024));
  command->footer(
      "Exit code 0 when all are sound, 2 for a bad suite, 7 for bad data, 5 for a database whose\n"
      "counts do not add up.\n\nExamples:\n"
      "  evalrun validate my-suite.json\n"
      "  evalrun validate model.gguf prompts.jsonl\n"
      "  evalrun validate evalrun.db --json");
  command->callback([options, &context] { run_validate(*options, context); });
}

}  // namespace evalrun::cli
