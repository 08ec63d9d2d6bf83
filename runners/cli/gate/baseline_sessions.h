// Baselines of several sessions: NAME, and `baseline save NAME --add` for each further run of the
// same thing, kept as NAME#2, NAME#3 and so on.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "results/store.h"

namespace evalrun::cli {

// "main", "main#2", ...: of session 1, 2, ...
std::string session_name(const std::string& baseline, int session);
// Their runs, in order; empty where there is no such baseline.
std::vector<int64_t> baseline_sessions(const results::ResultStore& store, const std::string& name);
// Adds a run as a further session. Throws usage_error where there is no such baseline, data_error
// where the run is not of the same thing as its first session.
void add_baseline_session(results::ResultStore& store, const std::string& name, int64_t run_id,
                          const std::string& note);
// Forgets all sessions after the first.
void remove_further_sessions(results::ResultStore& store, const std::string& name);

}  // namespace evalrun::cli
