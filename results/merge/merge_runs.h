// Runs that measured parts of one plan - shards of several machines, runs that were cut off - as
// one run in one file.
//
// What two files hold of the same cell (arm, prompt, repeat, sample):
//   the same measurement (machine, start, time and counters): it is there once;
//   measured twice, the same tokens: the one that did not fail stays, then the one that began
//     first, then the shorter one, then the one of the lower machine key;
//   other tokens: an error. Arms that promise the distribution alone, and whose drafts follow the
//     machine, may differ: those count as measured twice.
// So the result does not depend on the order of the files, and merging again changes nothing.
#pragma once
#include <string>
#include <vector>

#include "results/merge/merge_outcome.h"

namespace evalrun::results {

// Merges into the file `target`, which is made, or whose run is one of those to merge. It is
// written beside itself (TARGET.merging) and renamed: it is there whole or as it was, whatever
// happens, and the same call goes through afterwards. Memory does not grow with the runs.
//
// A run of several machines has facts in its environment that all of them agree about; those of
// each are in machine_fact. Arms of other kernels, threads or devices of one kind are one arm:
// kernels "avx2+avx512", threads 0 where they differ. Certificates: of a key the newer one.
// Baselines stay where they are. The run is finished when it has all generations of its plan.
//
// Throws Error: kNoBaseline for runs of other plans (what differs, by name), kCorrectness for a
// cell of other tokens, kData for files that are no databases, damaged, of another schema version,
// without a plan, in use, or a full disk; usage_error for a target that holds anything else.
MergeOutcome merge_runs(const std::string& target, const std::vector<MergeInput>& inputs);

}  // namespace evalrun::results
