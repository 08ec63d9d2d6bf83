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
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "results/records.h"

namespace evalrun::results {

struct MergeInput {
  std::string path;
  std::optional<int64_t> run_id = {};  // absent: all runs of the file, which must be of one plan
};

// A cell that two files have.
struct TwiceMeasured {
  std::string arm = {}, prompt = {};
  int64_t repeat = 0, sample = 0;
  std::string kept = {}, left_out = {};  // name of the machine and when it began
};

// A prompt that lacks generations.
struct MergeGap {
  std::string task, prompt;
  int64_t stored = 0;
  std::vector<Shard> shards = {};  // that it is in, of each count that the files know
};

// Of a shard that lacks generations.
struct MissingShard {
  Shard shard;
  int64_t prompts = 0, incomplete = 0;  // that are in it, and of them those with gaps
  bool here = false;                    // some file was to measure it
};

struct MergeOutcome {
  int64_t run_id = 0;
  std::string key;
  PlanRecord plan;
  int64_t runs = 0;                        // merged, that of the target included
  int64_t stored = 0;                      // generations there now
  int64_t new_generations = 0;             // that the target did not have
  int64_t copies = 0;                      // the same measurement in two files
  int64_t twice = 0;                       // measured twice
  std::vector<TwiceMeasured> first_twice;  // at most kNamed of them
  std::vector<std::string> machines;       // names
  int64_t incomplete = 0;                  // prompts of the plan that lack generations
  std::vector<MergeGap> first_gaps;        // at most kNamed of them
  std::vector<MissingShard> missing;       // shards of these prompts
  std::vector<std::string> commands;       // one of a run with a shard, for a remedy
  bool complete() const { return stored >= plan.generations(); }

  static constexpr size_t kNamed = 10;
};

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
