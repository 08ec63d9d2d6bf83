// The generations of a run, each row of `generation` read once: what the views v_generation_all,
// v_sample, v_count, v_identity and v_answer say about one run. Sums in SQL would sort the rows
// first, which takes longer than all the reading. What turns say comes from the tallies of the
// generations (results/tally.h), or from the turns where one has none.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "reports/data/run_data.h"
#include "results/store.h"

namespace evalrun::reports {

// Fills `samples` and `generations` of a run whose arms and prompts are known, arms by id.
// `step_detail`: the outcomes as well, where all generations have their tally.
void read_generations(const results::ResultStore& store, Faults faults, bool step_detail,
                      RunData& data);

// Rows of a table with a column generation_id, for the finished generations of the run without a
// planted fault, in their order: `use` sees the generation and the row. `columns` are of the table,
// with generation_id as column 0.
void for_generation_rows(const results::ResultStore& store, const RunData& data,
                         std::string_view table, std::string_view columns,
                         const std::function<void(const Generation&, const results::Row&)>& use);

}  // namespace evalrun::reports
