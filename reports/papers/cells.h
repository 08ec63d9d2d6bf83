// What meets in a cell of a paper's table: which arms a form's patterns name, and what a report
// says in the paper's unit.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/figures/report.h"
#include "reports/papers/form.h"

namespace evalrun::reports {

struct PaperCell {
  std::optional<double> value;  // absent: not measured, not published
  std::optional<double> plain;  // where the form asks for it: of plain decoding
  // Measured:
  int64_t arm = 0;       // its id
  std::string budget;    // of its adapter's training (budget_text()); "" without, and where unknown
  bool unequal = false;  // it was trained otherwise than the table's other adapters
  std::optional<base::Interval> interval;
  std::optional<double> sd;  // over samples
  int64_t n_prompts = 0;
  double n_eff = 0;  // of the interval; the number of prompts where all have one weight
  // Published:
  std::string printed, printed_plain;  // as in the file
  std::string hardware;
  std::vector<std::string> findings;  // rules of the audit that flag it
  std::vector<std::string> tags;
};

// "space:k=*" names "space:k=3" and "space", whose k is the default, but no arm with another
// parameter (any_target=true says where the weights come from, and is none of the method's);
// "space:k=+" does not name "space".
bool names_arm(const std::string& pattern, const std::string& label);

// A tuned target is called after the model it was made of.
std::string model_of(const ArmInfo& arm);
std::string decoding_of(const ArmInfo& arm);  // "greedy" or "sampled", as PaperForm::decoding

// No value where the row has no such metric.
PaperCell measured_value(const ReportRow& row, const FormMetric& metric);

}  // namespace evalrun::reports
