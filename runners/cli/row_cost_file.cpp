#include "runners/cli/row_cost_file.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"
#include "runners/machine/row_cost_cache.h"

namespace evalrun::cli {

engine::RowCostTable row_cost_of(const nlohmann::json& json, const std::string& file) {
  if (json.is_object() && json.contains("formats"))
    throw base::data_error(file, "formats", "several T(n) tables",
                           "write one: evalrun cost --dtype NAME --json");
  const auto table = runners::row_cost_from_json(json);
  if (!table)
    throw base::data_error(file, "", "is no table of row costs", "write one: evalrun cost --json");
  if (table->sequences != 1)
    throw base::data_error(file, "sequences",
                           fmt::format("T(n) of {} sequences together", table->sequences),
                           "write that of one: evalrun cost --json");
  return *table;
}

engine::RowCostTable row_cost_in_file(const std::string& file) {
  return row_cost_of(base::parse_json(base::read_file(file), file), file);
}

}  // namespace evalrun::cli
