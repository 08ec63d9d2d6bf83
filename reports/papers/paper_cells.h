// What meets in a cell of a paper's table: which arms a form's patterns name, and what a report
// says in the paper's unit.
#pragma once
#include <string>

#include "reports/papers/paper_table.h"

namespace evalrun::reports {

// "space:k=*" names "space:k=3" and "space", whose k is the default, but no arm with another
// parameter; "space:k=+" does not name "space".
bool names_arm(const std::string& pattern, const std::string& label);

// A tuned target is called after the model it was made of.
std::string model_of(const ArmInfo& arm);
std::string decoding_of(const ArmInfo& arm);  // "greedy" or "sampled", as PaperForm::decoding

// No value where the row has no such metric.
PaperCell measured_value(const ReportRow& row, const FormMetric& metric);

}  // namespace evalrun::reports
