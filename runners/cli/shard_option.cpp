#include "runners/cli/shard_option.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "runners/plan/shards.h"

namespace evalrun::cli {

void ShardOption::add(CLI::App& app, const std::string& what, const std::string& merge) {
  app.add_option("--shard", text_,
                 fmt::format("I/N, from 1/N to N/N: every N-th of the {} alone; {}", what, merge))
      ->check([](const std::string& text) -> std::string {
        try {
          runners::parse_shard(text);
          return "";
        } catch (const base::Error& e) {
          return e.message();
        }
      });
}

bool ShardOption::takes(int64_t index) const {
  if (!given()) return true;
  const results::Shard shard = runners::parse_shard(text_);
  return index % shard.count == shard.number - 1;
}

}  // namespace evalrun::cli
