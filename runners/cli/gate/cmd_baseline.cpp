// evalrun baseline save|list|show|rm|export|import: runs that later ones are judged against.
#include <filesystem>
#include <memory>
#include <tuple>

#include "engine/base/text.h"
#include "engine/base/units.h"
#include "reports/figures/report.h"
#include "results/copy_run.h"
#include "results/queries.h"
#include "runners/cli/cli.h"
#include "runners/cli/gate/baseline_sessions.h"
#include "runners/cli/output.h"
#include "runners/cli/results/show_data.h"
#include "runners/cli/run_reference.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BaselineArguments {
  std::string name, from, note, file, as;
  bool force = false, add = false;
};

using results::BaselineRow;

BaselineRow get_baseline(const results::ResultStore& store, const std::string& name) {
  std::vector<std::string> known;
  for (const BaselineRow& b : results::baselines(store)) {
    if (b.name == name) return b;
    known.push_back(b.name);
  }
  throw base::Error(
      base::ExitCode::kNoBaseline, fmt::format("{} has no baseline '{}'", store.path(), name),
      known.empty() ? "save one: evalrun baseline save " + name : base::suggest(name, known));
}

// What later runs are measured against must itself be whole and honest.
void refuse_unfit(const results::ResultStore& store, int64_t run_id) {
  const results::GenerationCounts counts = results::count_generations(store, run_id);
  if (counts.planted > 0)
    throw base::usage_error(
        fmt::format("run {} holds {} generations with a planted fault: it cannot be a baseline",
                    run_id, counts.planted),
        "measure anew without --self-test and save that run");
  if (results::find_run_row(store, run_id)->finished.empty())
    throw base::usage_error(
        fmt::format("run {} is not finished ({} generations): it cannot be a baseline", run_id,
                    counts.stored),
        "resume it with the command it was started with (evalrun show run:N shows it)");
  if (counts.failed > 0)
    throw base::usage_error(
        fmt::format("{} of the {} generations of run {} failed: it cannot be a baseline",
                    counts.failed, counts.stored, run_id),
        "see why with evalrun show, and measure again with --no-resume");
}

void save(const BaselineArguments& options, const GlobalOptions& global) {
  if (base::trim(options.name).empty()) throw base::usage_error("a baseline needs a name");
  require_results(global.db);
  results::ResultStore store(global.db);
  std::string from = options.from;
  if (from.starts_with("run:")) from = from.substr(4);
  const int64_t run_id = reports::require_run(store, from);
  refuse_unfit(store, run_id);
  if (options.add) {
    add_baseline_session(store, options.name, run_id, options.note);
  } else {
    remove_further_sessions(store, options.name);
    store.save_baseline(options.name, run_id, options.note);
  }
  const auto sessions = static_cast<int>(baseline_sessions(store, options.name).size());
  const BaselineRow b = get_baseline(store, session_name(options.name, sessions));
  if (global.json)
    return print_json_document({{"name", b.name}, {"run", b.run.id}, {"sessions", sessions}});
  print_line(fmt::format("baseline '{}'{} = run {} ({}, suite {}, {})", options.name,
                         options.add ? fmt::format(", session {}", sessions) : "", b.run.id,
                         b.run.label, b.run.suite, b.run.commit));
}

void list(const GlobalOptions& global) {
  const auto store = open_results(global.db);
  Json array = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const BaselineRow& b : results::baselines(*store)) {
    array.push_back({{"name", b.name},
                     {"run", b.run.id},
                     {"label", b.run.label},
                     {"suite", b.run.suite},
                     {"commit", b.run.commit},
                     {"saved", b.saved},
                     {"note", b.note}});
    rows.push_back({b.name, std::to_string(b.run.id), b.run.label, b.run.suite, b.run.commit,
                    b.saved, b.note});
  }
  if (global.json) return print_json_document(array);
  if (rows.empty()) return print_line("no baselines yet: evalrun baseline save NAME");
  print_line(aligned_table({"name", "run", "label", "suite", "commit", "saved", "note"}, rows));
}

void show(const BaselineArguments& options, const GlobalOptions& global) {
  const auto store = open_results(global.db);
  const BaselineRow b = get_baseline(*store, options.name);
  const ShownRun run = read_run(*store, b.run.id);
  if (global.json) {
    Json out{{"name", b.name}, {"saved", b.saved}, {"note", b.note}};
    out.update(run_json(run));
    return print_json_document(out);
  }
  print_line(fmt::format("baseline '{}', saved {}{}\n", b.name, b.saved,
                         b.note.empty() ? "" : ": " + b.note));
  print_line(run_text(run));
}

void remove(const BaselineArguments& options, const GlobalOptions& global) {
  open_results(global.db);
  results::ResultStore store(global.db);
  get_baseline(store, options.name);  // an unknown name is an error that lists the known ones
  remove_further_sessions(store, options.name);
  store.remove_baseline(options.name);
  if (!global.json) print_line(fmt::format("baseline '{}' removed; its run stays", options.name));
}

void export_to_file(const BaselineArguments& options, const GlobalOptions& global) {
  const auto store = open_results(global.db);
  const BaselineRow b = get_baseline(*store, options.name);
  refuse_unfit(*store, b.run.id);
  results::export_baseline(*store, b.name, options.file);
  if (const auto n = static_cast<int>(baseline_sessions(*store, b.name).size()); n > 1) {
    results::ResultStore target(options.file);
    for (int i = 2; i <= n; ++i) {
      const std::string name = session_name(b.name, i);
      results::copy_baseline(*store, name, target, name, false);
    }
  }
  const auto bytes = std::filesystem::file_size(options.file);
  if (global.json)
    return print_json_document(
        {{"name", b.name}, {"run", b.run.id}, {"file", options.file}, {"bytes", bytes}});
  print_line(fmt::format("baseline '{}' (run {}, {}, suite {}, {}) is in {}, {}", b.name, b.run.id,
                         b.run.label, b.run.suite, b.run.commit, options.file,
                         base::format_bytes(bytes)));
}

// FILE with one baseline, or FILE:NAME.
BaselineRow baseline_in(const results::ResultStore& store, const std::string& name) {
  if (!name.empty()) return get_baseline(store, name);
  const std::vector<BaselineRow> all = results::baselines(store);
  if (all.empty())
    throw base::Error(base::ExitCode::kNoBaseline,
                      fmt::format("{} holds no baseline", store.path()),
                      "evalrun baseline export NAME FILE writes one that does");
  // By name, so that further sessions follow the first.
  if (all.size() == baseline_sessions(store, all.front().name).size()) return all.front();
  std::string names;
  for (const BaselineRow& b : all) names += (names.empty() ? "" : ", ") + b.name;
  throw base::usage_error(fmt::format("{} holds {} baselines: {}", store.path(), all.size(), names),
                          fmt::format("name one: {}:{}", store.path(), all.front().name));
}

void import_from_file(const BaselineArguments& options, const GlobalOptions& global) {
  std::string file = options.file, name;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) std::tie(file, name) = split_file(file, file);
  const auto source = open_results(file);
  const BaselineRow from = baseline_in(*source, name);
  refuse_unfit(*source, from.run.id);
  results::ResultStore store(global.db);
  const std::string as = options.as.empty() ? from.name : options.as;
  results::copy_baseline(*source, from.name, store, as, options.force);
  if (options.force) remove_further_sessions(store, as);
  const auto n = static_cast<int>(baseline_sessions(*source, from.name).size());
  for (int i = 2; i <= n; ++i)
    results::copy_baseline(*source, session_name(from.name, i), store, session_name(as, i),
                           options.force);
  const BaselineRow b = get_baseline(store, as);
  if (global.json) return print_json_document({{"name", b.name}, {"run", b.run.id}});
  print_line(fmt::format("baseline '{}' = run {} ({}, suite {}, {}), from {}", b.name, b.run.id,
                         b.run.label, b.run.suite, b.run.commit, file));
}

}  // namespace

void add_baseline_command(CLI::App& app, Context& context) {
  auto* command =
      app.add_subcommand("baseline", "Save, list, show, remove, export and import baseline runs");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  evalrun run ci --label before && evalrun baseline save main\n"
      "  evalrun baseline save v1 --from run:3 --note 'release 1'\n"
      "  evalrun baseline list --json\n"
      "  evalrun baseline export main main.db && evalrun baseline import main.db --db other.db");
  auto options = std::make_shared<BaselineArguments>();

  auto* save_command = command->add_subcommand("save", "Name a finished run");
  save_command->add_option("name", options->name, "Name; `check` looks for 'main'")->required();
  save_command->add_option("--from", options->from, "Run to name (default: the newest)");
  save_command->add_option("--note", options->note, "Free text kept with it");
  save_command->add_flag("--add", options->add,
                         "As a further session of the baseline: another run of the same build");
  save_command->callback([options, &context] { save(*options, context.global); });

  auto* list_command = command->add_subcommand("list", "All baselines");
  list_command->callback([&context] { list(context.global); });

  auto* show_command = command->add_subcommand("show", "One baseline and its run");
  show_command->add_option("name", options->name)->required();
  show_command->callback([options, &context] { show(*options, context.global); });

  auto* rm_command = command->add_subcommand("rm", "Forget a name; the run stays");
  rm_command->add_option("name", options->name)->required();
  rm_command->callback([options, &context] { remove(*options, context.global); });

  auto* export_command = command->add_subcommand("export", "One baseline and its run as a file");
  export_command->add_option("name", options->name)->required();
  export_command->add_option("file", options->file, "New result database")->required();
  export_command->callback([options, &context] { export_to_file(*options, context.global); });

  auto* import_command = command->add_subcommand("import", "Take one over from a file");
  import_command
      ->add_option("file", options->file, "Written by export; FILE:NAME where there are several")
      ->required();
  import_command->add_option("--as", options->as, "Name it gets here (default: the one it has)");
  import_command->add_flag("--force", options->force, "Take the name from another run");
  import_command->callback([options, &context] { import_from_file(*options, context.global); });
}

}  // namespace evalrun::cli
