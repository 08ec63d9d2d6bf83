#include "results/merge/merge_runs.h"

#include "engine/base/error.h"
#include "results/merge/merge_file.h"
#include "results/merge/merge_sources.h"
#include "results/merge/merge_target.h"

namespace evalrun::results {

MergeOutcome merge_runs(const std::string& target, const std::vector<MergeInput>& inputs) {
  MergeFile file(target);
  const std::vector<MergeSource> sources = merge_sources(target, inputs);
  EVALRUN_CHECK(!sources.empty());
  MergeOutcome outcome;
  int64_t before = 0;
  {
    MergeTarget merged(file.path());
    for (const MergeSource& source : sources) {
      merged.add(source, outcome);
      if (source.is_target) before = source.generations;
    }
    merged.finish(sources, outcome);
    merged.close();
  }
  outcome.new_generations = outcome.stored - before;
  file.put_in_place();
  return outcome;
}

}  // namespace evalrun::results
