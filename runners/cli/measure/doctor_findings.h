// What `evalrun doctor` finds, and how it says it.
#pragma once
#include <string>
#include <vector>

namespace evalrun::cli {

enum class Level { kOk, kNote, kWarning, kProblem };
struct Finding {
  std::string name, value;
  Level level = Level::kOk;
  std::string hint = {};
};
using Findings = std::vector<Finding>;

// The paths there are, and the one that is taken: EVALRUN_ISA, or the first.
void examine_isas(Findings& out);

int count_problems(const Findings& findings);
// As a table, or as one JSON document.
void print_findings(const Findings& findings, bool json);

}  // namespace evalrun::cli
