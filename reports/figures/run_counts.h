// What the views v_acceptance_histogram and v_node_acceptance say about one run. Where the run was
// loaded with its steps (load_run), that is known. Else its rows are added up while they are read
// once, in the order they lie in the file: a sum in SQL would sort them first, which takes longer
// than all the reading.
#pragma once
#include "reports/data/run_data.h"
#include "results/store.h"

namespace evalrun::reports {

RunCounts count_run(const results::ResultStore& store, const RunData& data);

}  // namespace evalrun::reports
