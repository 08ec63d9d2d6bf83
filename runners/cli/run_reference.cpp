#include "runners/cli/run_reference.h"

#include <filesystem>
#include <tuple>

#include "engine/base/error.h"
#include "reports/figures/report.h"

namespace evalrun::cli {
namespace {

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

void require_results(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw base::data_error(path, "", "there is no such result database",
                           "measure first (evalrun run quick), or name another one with --db");
}

std::shared_ptr<results::ResultStore> open_results(const std::string& path) {
  require_results(path);
  return std::make_shared<results::ResultStore>(path, results::ResultStore::Mode::kReadOnly);
}

std::pair<std::string, std::string> split_file(const std::string& text, const std::string& db) {
  // A label may hold a colon, so the part before one counts as a file only when that file exists.
  for (size_t colon = text.find(':'); colon != std::string::npos; colon = text.find(':', colon + 1))
    if (is_file(text.substr(0, colon))) return {text.substr(0, colon), text.substr(colon + 1)};
  return {db, text};
}

RunReference find_run(const std::string& text, const std::string& db) {
  std::string file = text, name;
  if (!is_file(text)) std::tie(file, name) = split_file(text, db);
  if (name.starts_with("run:")) name = name.substr(4);
  RunReference found;
  found.store = open_results(file);
  found.run_id = reports::require_run(*found.store, name);
  return found;
}

}  // namespace evalrun::cli
