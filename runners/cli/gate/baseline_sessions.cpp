#include "runners/cli/gate/baseline_sessions.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "reports/data/sessions.h"
#include "results/queries.h"

namespace evalrun::cli {

std::string session_name(const std::string& baseline, int session) {
  return session == 1 ? baseline : fmt::format("{}#{}", baseline, session);
}

std::vector<int64_t> baseline_sessions(const results::ResultStore& store, const std::string& name) {
  std::vector<int64_t> runs;
  while (const auto run =
             results::baseline_run(store, session_name(name, static_cast<int>(runs.size()) + 1)))
    runs.push_back(*run);
  return runs;
}

void add_baseline_session(results::ResultStore& store, const std::string& name, int64_t run_id,
                          const std::string& note) {
  const std::vector<int64_t> runs = baseline_sessions(store, name);
  if (runs.empty())
    throw base::usage_error(fmt::format("--add: {} has no baseline '{}'", store.path(), name),
                            "save its first session without --add");
  if (std::find(runs.begin(), runs.end(), run_id) != runs.end())
    throw base::usage_error(
        fmt::format("run {} is a session of baseline '{}' already", run_id, name),
        "measure another one: evalrun run SUITE --no-resume");
  reports::require_sessions_of_one_thing(reports::load_run(store, runs.front()),
                                         reports::load_run(store, run_id), store.path());
  store.save_baseline(session_name(name, static_cast<int>(runs.size()) + 1), run_id, note);
}

void remove_further_sessions(results::ResultStore& store, const std::string& name) {
  for (size_t i = baseline_sessions(store, name).size(); i > 1; --i)
    store.remove_baseline(session_name(name, static_cast<int>(i)));
}

}  // namespace evalrun::cli
