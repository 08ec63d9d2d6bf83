// evalrun data list|fetch|verify: the official data files under the data root; data overlap, data
// cache and data model: see data_overlap.h, data_cache.h, data_model.h.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "datasets/dataset.h"
#include "datasets/manifest.h"
#include "engine/base/text.h"
#include "engine/base/units.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/cli/text/data_cache.h"
#include "runners/cli/text/data_model.h"
#include "runners/cli/text/data_overlap.h"

namespace evalrun::cli {
namespace {

struct DataArguments {
  std::string data_root;
  std::vector<std::string> names;
  bool force = false;
};

// Names must be data sets of the manifest; an empty list means all of them.
bool chosen(const DataArguments& options, const std::string& dataset) {
  return options.names.empty() ||
         std::find(options.names.begin(), options.names.end(), dataset) != options.names.end();
}

void check_names(const DataArguments& options) {
  std::vector<std::string> known;
  for (const datasets::ManifestFile& file : datasets::manifest())
    if (known.empty() || known.back() != file.dataset) known.push_back(file.dataset);
  for (const std::string& name : options.names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw base::usage_error(fmt::format("unknown data set '{}'", name),
                              base::suggest(name, known));
}

void list_files(const DataArguments& options, const GlobalOptions& global) {
  const std::string root = datasets::resolve_data_root(options.data_root);
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  std::vector<std::vector<std::string>> rows;
  for (const datasets::ManifestFile& file : datasets::manifest()) {
    const bool present = !root.empty() && std::filesystem::exists(root + "/" + file.path);
    array.push_back({{"dataset", file.dataset},
                     {"path", file.path},
                     {"bytes", file.bytes},
                     {"sha256", file.sha256},
                     {"count", file.count},
                     {"licence", file.licence},
                     {"fetchable", file.fetchable()},
                     {"present", present},
                     {"stand_in", file.stand_in},
                     {"url", file.url},
                     {"note", file.note}});
    rows.push_back({file.dataset, file.path, file.bytes > 0 ? base::format_bytes(file.bytes) : "-",
                    file.count > 0 ? std::to_string(file.count) : "-",
                    file.licence.empty() ? "-" : file.licence, file.fetchable() ? "yes" : "by hand",
                    present ? "yes" : "no"});
  }
  if (global.json) return print_json_document(array);
  print_line(
      aligned_table({"data set", "file", "size", "records", "licence", "fetch", "present"}, rows));
  print_line(root.empty() ? "\nno data root: give --data-root or set EVALRUN_DATA"
                          : "\ndata root: " + root);
}

void verify_files(const DataArguments& options, Context& context) {
  check_names(options);
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  std::vector<std::vector<std::string>> rows;
  bool failed = false;
  for (const datasets::FileCheck& check :
       datasets::verify_data(datasets::resolve_data_root(options.data_root))) {
    if (!chosen(options, check.file.dataset)) continue;
    // Nobody needs every set; one that was asked for by name must be there.
    const bool bad = check.is_error() ||
                     (!options.names.empty() && check.state == datasets::FileState::kMissing);
    failed = failed || bad;
    array.push_back({{"dataset", check.file.dataset},
                     {"path", check.file.path},
                     {"state", datasets::to_string(check.state)},
                     {"ok", !bad},
                     {"bytes", check.bytes},
                     {"sha256", check.sha256},
                     {"count", check.count},
                     {"detail", check.detail}});
    rows.push_back(
        {bad ? "ERROR" : "ok", check.file.path, datasets::to_string(check.state), check.detail});
  }
  if (context.global.json)
    print_json_document(array);
  else
    print_line(aligned_table({"", "file", "state", "detail"}, rows));
  if (failed) context.exit_code = static_cast<int>(base::ExitCode::kData);
}

void fetch_files(const DataArguments& options, const GlobalOptions& global) {
  datasets::FetchOptions fetch;
  fetch.data_root = datasets::resolve_data_root(options.data_root);
  fetch.force = options.force;
  std::string last;
  fetch.progress = [&](const datasets::FetchProgress& p) {
    if (p.path != last && global.verbosity >= 0) fmt::print(stderr, "fetching {}\n", p.path);
    last = p.path;
    return true;
  };
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const std::string& name : options.names) {
    for (const datasets::FetchResult& result : datasets::fetch_dataset(name, fetch)) {
      const bool fetched = result.outcome == datasets::FetchOutcome::kFetched;
      array.push_back({{"dataset", result.file.dataset},
                       {"path", result.target},
                       {"outcome", fetched ? "fetched" : "already there"}});
      if (!global.json)
        print_line(fmt::format("{}: {}", result.target,
                               fetched ? "fetched, SHA-256 right" : "already there"));
    }
  }
  if (global.json) print_json_document(array);
}

}  // namespace

void add_data_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand(
      "data",
      "Official data files: list, fetch, verify, overlap; the default model; converted weights: "
      "cache");
  command->require_subcommand(1);
  auto options = std::make_shared<DataArguments>();

  auto* list = command->add_subcommand("list", "What files there are and which are present");
  add_data_root(*list, options->data_root);
  list->callback([options, &context] { list_files(*options, context.global); });

  auto* fetch = command->add_subcommand("fetch", "Download official files and check them");
  fetch->add_option("--data-root", options->data_root,
                    "Folder the files lie under, made if need be (default: EVALRUN_DATA)");
  fetch->add_option("name", options->names, "Data sets, or 'all'")->required();
  fetch->add_flag("--force", options->force, "Replace a file that exists but is not official");
  fetch->callback([options, &context] { fetch_files(*options, context.global); });

  auto* verify = command->add_subcommand("verify", "Check sizes and SHA-256 of what is present");
  add_data_root(*verify, options->data_root);
  verify->add_option("name", options->names, "Data sets that must be there (default: any)");
  verify->callback([options, &context] { verify_files(*options, context); });

  add_data_overlap_command(*command, context);
  add_data_model_command(*command, context);
  add_data_cache_command(*command, context);

  command->footer(
      "Examples:\n"
      "  evalrun data model\n"
      "  evalrun data list\n"
      "  evalrun data fetch gsm8k --data-root ~/data\n"
      "  EVALRUN_DATA=~/data evalrun data verify\n"
      "  evalrun data overlap prompts.jsonl --data-root ~/data\n"
      "  evalrun data cache --clear '*q4*'");
}

}  // namespace evalrun::cli
