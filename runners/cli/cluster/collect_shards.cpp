#include "runners/cli/cluster/collect_shards.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <vector>

#include "engine/base/text.h"
#include "runners/cli/command_line.h"
#include "runners/cli/results/merge_files.h"
#include "runners/cluster/slurm.h"

namespace evalrun::cli {

void collect_shards(Context& context, const runners::ClusterFolder& folder,
                    const runners::ClusterPlan& plan, const std::string& out) {
  std::vector<results::MergeInput> copies;
  std::vector<int> absent;
  for (int shard = 1; shard <= plan.shards; ++shard) {
    const std::string copy = folder.database(shard, plan.shards);
    std::error_code ignored;
    if (std::filesystem::exists(copy, ignored))
      copies.push_back({copy});
    else
      absent.push_back(shard);
  }
  if (copies.empty())
    throw base::data_error(folder.path(), "shards", "no shard has been copied yet",
                           fmt::format("see how far they are: evalrun cluster status {}",
                                       shell_line({folder.path()})));
  merge_files(context, out, copies);
  if (!absent.empty())
    spdlog::warn("{} of {}: nothing is there yet", runners::array_text(absent),
                 base::plural(plan.shards, "shard"));
  if (context.exit_code != 0)
    spdlog::warn("this submits what is missing and no longer runs:\n  evalrun cluster resubmit {}",
                 shell_line({folder.path()}));
}

}  // namespace evalrun::cli
