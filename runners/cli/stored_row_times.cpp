#include "runners/cli/stored_row_times.h"

#include <nlohmann/json.hpp>

#include "runners/machine/row_cost_cache.h"

namespace evalrun::cli {

reports::RowTimes stored_row_times(const reports::RunInfo& run) {
  reports::RowTimes times;
  for (const auto& [name, value] : run.environment) {
    if (!name.starts_with("row_cost")) continue;
    const auto table = runners::row_cost_from_json(nlohmann::json::parse(value, nullptr, false));
    if (!table || !table->shape.empty()) continue;
    reports::RowTime& time = table->sequences == 1 ? times.one : times.batches[table->sequences];
    time = [table](int rows) { return table->ms(rows); };
    if (table->sequences == 1) times.context = table->context;
  }
  return times;
}

}  // namespace evalrun::cli
