// What a report says where several machines measured the run: which they are, the speedups of each,
// whether they differ, and what machines like these would give.
#pragma once
#include <string>
#include <vector>

#include "reports/document/document.h"
#include "reports/figures/report.h"
#include "reports/table/comparison_table.h"

namespace evalrun::reports {

// "4 machines: a, b, c, d (2 x ..., 2 x ...), each prompt on one of them with all its arms. ...";
// "" for one machine.
std::string machines_paragraph(const RunInfo& run);

// T(n)/T(1) as the run measured it before its first token, a line each: of its machine, or of every
// machine that stored it; of many machines from the least to the largest. A broken or missing table
// says nothing.
std::vector<std::string> row_cost_lines(const RunInfo& run);

// A row for each machine of each method; of many machines those with the lowest and the highest
// speedups. No rows for one machine.
Table machine_table(const RunInfo& run, const DatasetRows& rows);

// Whether machines differ, and the speedups for machines like these; "" for one machine.
std::string machines_remark(const RunInfo& run, const DatasetRows& rows);

}  // namespace evalrun::reports
