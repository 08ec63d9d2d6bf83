// What `evalrun run` says when a run has ended: warnings, exit code, table.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "results/store.h"
#include "runners/measure/runner.h"

namespace evalrun::cli {

// Warnings of what failed or is missing, with `resume_command`; the exit code.
int tell_end(const runners::RunOutcome& outcome, const std::string& resume_command);

// The table of one run; of several, the runs side by side. `format`: of --format.
std::string run_table(const results::ResultStore& store, const std::vector<int64_t>& runs,
                      const std::string& format, bool no_color);

// Methods that promise plain decoding's tokens and gave others: whatever the table says of their
// speed, their output is wrong. False: there are some, and an error names each.
bool tokens_as_promised(const results::ResultStore& store, int64_t run_id);

}  // namespace evalrun::cli
