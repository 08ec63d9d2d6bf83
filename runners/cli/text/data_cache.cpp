#include "runners/cli/text/data_cache.h"

#include <fnmatch.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>

#include "engine/base/text.h"
#include "engine/base/units.h"
#include "engine/model/weight_files.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

using engine::WeightFile;

struct CacheArguments {
  CLI::Option* clear = nullptr;
  std::string pattern;
};

std::string utc_text(int64_t ns) {
  const auto seconds = static_cast<std::time_t>(ns / 1'000'000'000);
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename(); }

std::string state_of(const WeightFile& file) {
  if (file.is_partial) return file.in_use ? "being written" : "left behind";
  return file.in_use ? "in use" : "";
}

nlohmann::ordered_json to_json(const std::vector<WeightFile>& files) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const WeightFile& file : files)
    array.push_back({{"path", file.path},
                     {"source", file.source},
                     {"model_sha256", file.model},
                     {"format", file.format},
                     {"layout", file.layout},
                     {"bytes", file.bytes},
                     {"last_used", utc_text(file.last_used_ns)},
                     {"in_use", file.in_use},
                     {"complete", !file.is_partial}});
  return array;
}

std::string table_of(const std::vector<WeightFile>& files) {
  std::vector<std::vector<std::string>> rows;
  for (const WeightFile& file : files)
    rows.push_back({file.source.empty() ? "-" : file_name(file.source), file.format,
                    base::format_bytes(file.bytes), utc_text(file.last_used_ns), state_of(file),
                    file_name(file.path)});
  return aligned_table({"model", "format", "size", "last used", "", "file"}, rows);
}

bool matches(const WeightFile& file, const std::string& pattern) {
  for (const std::string& text :
       {file_name(file.path), file.source, file_name(file.source), file.format})
    if (fnmatch(pattern.c_str(), text.c_str(), 0) == 0) return true;
  return false;
}

void list(const std::string& folder, const GlobalOptions& global) {
  const std::vector<WeightFile> files = engine::weight_files(folder);
  const int64_t total = engine::total_bytes(files);
  const int64_t limit = engine::weight_limit(folder, engine::weight_limit_variable());
  if (global.json)
    return print_json_document(
        {{"folder", folder}, {"limit_bytes", limit}, {"bytes", total}, {"files", to_json(files)}});
  if (!files.empty()) print_line(table_of(files) + "\n");
  print_line(fmt::format("{}: {} of converted weights, {} of at most {} (EVALRUN_CACHE_MAX)",
                         folder, base::plural(static_cast<int64_t>(files.size()), "file"),
                         base::format_bytes(total), base::format_bytes(limit)));
}

void clear(const std::string& folder, const std::string& pattern, const GlobalOptions& global) {
  const auto chosen = [&](const WeightFile& file) {
    return pattern.empty() || matches(file, pattern);
  };
  std::vector<WeightFile> kept;
  for (const WeightFile& file : engine::weight_files(folder))
    if (chosen(file)) kept.push_back(file);
  if (kept.empty() && !pattern.empty())
    throw base::usage_error(fmt::format("no file of converted weights matches '{}'", pattern),
                            "`evalrun data cache` lists them; a pattern is matched with the file, "
                            "the model and the format, * stands for anything");
  const std::vector<WeightFile> removed = engine::remove_weight_files(folder, chosen);
  std::erase_if(kept, [&](const WeightFile& file) {
    return std::ranges::find(removed, file.path, &WeightFile::path) != removed.end();
  });
  const int64_t bytes = engine::total_bytes(removed);
  if (global.json)
    return print_json_document({{"folder", folder},
                                {"removed", to_json(removed)},
                                {"removed_bytes", bytes},
                                {"kept", to_json(kept)}});
  if (!removed.empty()) print_line(table_of(removed) + "\n");
  print_line(fmt::format("{}: removed {}, {}", folder,
                         base::plural(static_cast<int64_t>(removed.size()), "file"),
                         base::format_bytes(bytes)));
  for (const WeightFile& file : kept) print_line(fmt::format("kept, in use: {}", file.path));
}

}  // namespace

void add_data_cache_command(CLI::App& data, Context& context) {
  auto* command = data.add_subcommand("cache", "Converted weights that are kept: list, clear");
  auto options = std::make_shared<CacheArguments>();
  options->clear =
      command
          ->add_option("--clear", options->pattern,
                       "Remove the files, or those whose name, model or format matches a pattern "
                       "such as '*q4*'; files in use stay")
          ->expected(0, 1)
          ->type_name("[PATTERN]");
  command->callback([options, &context] {
    const std::string folder = engine::weight_folder();
    if (folder.empty())
      throw base::usage_error("no folder for converted weights", "set EVALRUN_HOME or HOME");
    if (options->clear->count() == 0) return list(folder, context.global);
    clear(folder, options->pattern, context.global);
  });
}

}  // namespace evalrun::cli
