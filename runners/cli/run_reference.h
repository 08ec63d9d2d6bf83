// Runs as people name them on the command line.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "results/store.h"

namespace evalrun::cli {

// Throws data_error when there is no such file, which opening it for writing would create.
void require_results(const std::string& path);
// Opens an existing result database for reading. Throws data_error when there is none (it would be
// created otherwise, and then look empty).
std::shared_ptr<results::ResultStore> open_results(const std::string& path);

// "FILE:NAME" as {FILE, NAME} where FILE exists, else {db, TEXT}.
std::pair<std::string, std::string> split_file(const std::string& text, const std::string& db);

struct RunReference {
  std::shared_ptr<results::ResultStore> store;
  int64_t run_id = 0;
  std::vector<int64_t> more_sessions = {};  // of a baseline that has several
  std::vector<int64_t> sessions() const {
    std::vector<int64_t> all = {run_id};
    all.insert(all.end(), more_sessions.begin(), more_sessions.end());
    return all;
  }
};

// TEXT: "" or "latest" (the newest), a number, "run:N", a key, a label or the name of a baseline,
// looked up in `db`; or "FILE" / "FILE:TEXT" for another database. Throws usage_error that lists
// some runs.
RunReference find_run(const std::string& text, const std::string& db);

}  // namespace evalrun::cli
