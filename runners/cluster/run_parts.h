// The databases of a shared run's processes (runners/cluster/shared_run.h).
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "results/records.h"
#include "results/store.h"

namespace evalrun::runners {

class RunParts {
 public:
  RunParts(std::string database, results::PlanRecord plan);
  // Of a rank. The folder is made. Throws data_error.
  std::string file(int rank) const;

  // Keys of the prompts that one run holds whole, with all arms, repeats and samples. Rank 0 asks
  // before any process writes, and after all have closed their databases.
  std::set<std::string> whole_prompts() const;
  // The run of FILE that holds the whole plan, if any.
  std::optional<int64_t> finished() const;
  // When every prompt is whole: takes away what is superseded, merges, copies the run into FILE,
  // removes the parts. Returns its number there.
  int64_t put_together() const;

 private:
  std::vector<std::string> files() const;
  void drop_superseded() const;
  std::string database_, folder_;
  results::PlanRecord plan_;
};

}  // namespace evalrun::runners
