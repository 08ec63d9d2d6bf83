// A whole load: servers checked and warmed up, blocks in their order, results in a file that the
// same command goes on with.
#pragma once
#include <cstdint>

#include "results/load_file.h"
#include "runners/load/load_block.h"
#include "runners/load/load_plan.h"
#include "runners/measure/progress.h"

namespace evalrun::runners {

struct LoadOutcome {
  enum class Status { kComplete, kInterrupted, kOutOfTime };
  Status status = Status::kComplete;
  int64_t blocks_left = 0;
};

struct LoadCourse {
  int warmup = 1;         // requests of each server before the first block, in no figure
  double max_time_s = 0;  // for everything; 0 = no limit. No request is sent after it
};

// Asks each server whether it is up and which model it has, and writes that into the plan. Throws
// data_error with URL and remedy.
void check_load_servers(LoadPlan& plan, const LoadTools& tools);

// Measures what the file does not hold yet. Throws data_error where a server is gone: what was
// measured is in the file.
LoadOutcome run_load(const LoadPlan& plan, const LoadCourse& course, const LoadTools& tools,
                     results::LoadFile& file, ProgressSink& progress);

}  // namespace evalrun::runners
