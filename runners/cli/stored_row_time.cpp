#include "runners/cli/stored_row_time.h"

#include <nlohmann/json.hpp>

#include "runners/machine/row_cost_cache.h"

namespace evalrun::cli {

reports::RowTime stored_row_time(const reports::RunInfo& run) {
  const auto found = run.environment.find("row_cost");
  if (found == run.environment.end()) return {};
  const auto table =
      runners::row_cost_from_json(nlohmann::json::parse(found->second, nullptr, false));
  if (!table || !table->shape.empty()) return {};
  return [table](int rows) { return table->ms(rows); };
}

}  // namespace evalrun::cli
