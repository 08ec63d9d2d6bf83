// Stored runs and baselines carried from one database to another.
#pragma once
#include <cstdint>
#include <string>

#include "results/store.h"

namespace evalrun::results {

// Copies a run with all that belongs to it. As copy_baseline(), without a name.
int64_t copy_run(const ResultStore& source, int64_t run_id, ResultStore& target);

// Copies a baseline's run with all that belongs to it - environment, arms, prompts and their
// rendered text, generations down to steps, nodes, divergences, clocks and scores, certificates -
// under new numbers, names it there with the note and date it has here, and returns the run's
// number there. A run of the same key with the same measurements is the same run and is not copied
// again. The target is of this program's schema version, the source one that it reads. All or
// nothing. Throws data_error when the target holds other measurements under the run's key,
// usage_error when it has a baseline `as` already, unless `replace`. Expects the source to have
// `name`.
int64_t copy_baseline(const ResultStore& source, const std::string& name, ResultStore& target,
                      const std::string& as, bool replace);

// A new file with this one baseline and its run: one file, no log beside it. It is complete, or it
// does not exist. Throws data_error when the file exists.
void export_baseline(const ResultStore& source, const std::string& name, const std::string& path);

}  // namespace evalrun::results
