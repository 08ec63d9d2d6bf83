// What the scripts of the HTML report draw, as one JSON object.
#pragma once
#include <string>

#include "reports/figures/report.h"
#include "results/store.h"

namespace evalrun::reports {

// Fits inside a <script> element: no "<" in it. Keys:
//   datasets         names in the order of the rows, the pooled one last
//   indicative_below prompts of equal weight that an interval needs to be more than indicative
//   rows             of to_json(), the keys that are drawn, `lossy` and `synthetic`
//   overlap_note     what the mark of arms trained on test prompts means; "" where none has it
//   flatters_note    the same of arms whose figures flatter their method
//   sweeps           find_sweeps()
//   parts            Report::parts
//   row_cost         {context, rows: [{rows, ratio, lo, hi, ms}]} with quartiles, or null
//   step_columns     names of the numbers of a step, times in milliseconds
//   timelines        load_timelines(), a step as a list of numbers
std::string html_data(const Report& report, const results::ResultStore& store);

}  // namespace evalrun::reports
