#include "results/regroup.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "results/queries.h"

namespace evalrun::results {

std::unique_ptr<ResultStore> regrouped(const ResultStore& store, const std::vector<Axis>& axes) {
  auto parts = std::make_unique<ResultStore>(store.path(), ResultStore::Mode::kReadOnly);
  std::string task = "task";
  for (const Axis axis : axes)
    task += fmt::format(" || CASE {0} WHEN '' THEN '' ELSE ' / ' || {0} END",
                        axis == Axis::kCategory ? "category" : "language");
  // Unqualified names mean temporary tables and views first, in temporary views as well.
  parts->execute(fmt::format(
      "CREATE TEMP VIEW prompt AS SELECT id, run_id, key, {} AS task, name, category, language, "
      "rendered_hash, turns, reference{} FROM main.prompt",
      task, has_groups(store) ? ", group_name" : ""));
  constexpr std::string_view kCreate = "CREATE VIEW";
  std::vector<std::string> views;
  parts->query("SELECT sql FROM main.sqlite_schema WHERE type = 'view'", {}, [&](const Row& row) {
    views.push_back(row.text(0).substr(kCreate.size()));
    return true;
  });
  for (const std::string& view : views) parts->execute("CREATE TEMP VIEW" + view);
  return parts;
}

}  // namespace evalrun::results
