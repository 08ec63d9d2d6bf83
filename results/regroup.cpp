#include "results/regroup.h"

#include <fmt/format.h>

#include "results/copy_run.h"

namespace evalrun::results {

std::unique_ptr<ResultStore> regrouped(const ResultStore& store, int64_t run_id, Axis axis) {
  auto copy = std::make_unique<ResultStore>(":memory:");
  copy_run(store, run_id, *copy, Ids::kKeep);
  copy->execute(fmt::format("UPDATE prompt SET task = task || ' / ' || {0} WHERE {0} <> ''",
                            axis == Axis::kCategory ? "category" : "language"));
  return copy;
}

}  // namespace evalrun::results
