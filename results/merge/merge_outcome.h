// What a merge reads, and what it has to say (results/merge/merge_runs.h).
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

}  // namespace evalrun::results
