// What a rule of the audit has found.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "reports/claims/claims.h"

namespace evalrun::reports {

struct Finding {
  std::string rule;
  std::vector<Claim> flagged;     // the first is the figure that `implied` is for
  std::vector<size_t> against;    // lines of the figures it was compared with
  std::optional<double> implied;  // in the unit of flagged[0]; absent where no figure follows
  const char* relation = "=";     // of the claimed to the implied figure, as the rule wants it
  std::string text;               // what is wrong, in a sentence
};

}  // namespace evalrun::reports
