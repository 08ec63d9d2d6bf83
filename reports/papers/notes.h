// Sentences under a paper's table: what was measured, how its adapters were trained, what is
// published, what the marks and columns mean.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reports/claims/claims.h"
#include "reports/papers/budgets.h"
#include "reports/papers/paper_table.h"

namespace evalrun::reports {

// What is to be said beside what the table itself holds.
struct NoteSource {
  const Claims& claims;                                 // an empty file name: none were asked for
  const std::vector<const ArmInfo*>& arms;              // that have a cell, one or more
  const std::vector<const ArmInfo*>& compared;          // these, and the form's control
  const std::vector<const ArmInfo*>& first_of_methods;  // of each of the form's; null without one
  const std::map<std::string, int64_t>& prompts;        // by label of a data set
  const ComparedBudgets& budgets;                       // of the compared
};

// Adds the notes and details of a table whose rows and columns are complete.
void add_paper_notes(const NoteSource& source, PaperTable& table);

}  // namespace evalrun::reports
