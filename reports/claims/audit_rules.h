// What the rules of the audit share; only audit*.cpp include it.
#pragma once
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "reports/claims/claims.h"
#include "reports/claims/finding.h"

namespace evalrun::reports {

// Metrics that say how much faster a method is.
bool is_speedup(const Claim& claim);
// A figure as a plain number with the error that rounding may have left in it.
struct Figure {
  double value = 0;
  double rounding = 0;
};
Figure figure(const Claim& claim);
// A speedup as a factor: throughput_gain, in percent over the baseline, converted.
Figure speedup_factor(const Claim& claim);
Figure ratio(const Figure& a, const Figure& b);

// `value` with as many decimals as the claim prints.
std::string printed_like(const Claim& claim, double value);

inline constexpr double kTiny = 1e-9;  // relative errors of binary fractions are smaller

bool contains(const std::vector<std::string>& list, const std::string& item);
// "Table 3", not "Table 5 caption".
bool in_table(const Claim& claim);
// The parts of a data set whose mean its "overall" is; empty where they are not known.
const std::vector<std::string>& parts_of(const std::string& dataset);

// Figures of the same measurement under other metrics.
class ClaimCells {
 public:
  explicit ClaimCells(const Claims& claims);
  // The figure of `metric` for what `claim` measures: from the same place of the paper, or else the
  // one value that its other places give. Null when there is none, or several that differ.
  const Claim* partner(const Claim& claim, std::string_view metric) const;
  // Tokens per step of the same measurement, the target's own token included.
  struct Tokens {
    const Claim* claim = nullptr;
    double bonus = 0;  // to be added to its value
  };
  Tokens tokens_per_step(const Claim& claim) const;

 private:
  std::map<std::string, std::vector<const Claim*>> cells_;
};

// Collects what the rules say.
class AuditLog {
 public:
  void compared(const char* rule, const Claim& claim, std::initializer_list<const Claim*> others);
  void flag(Finding finding) { findings.push_back(std::move(finding)); }

  std::vector<Finding> findings;
  std::map<std::string, std::map<std::string, int64_t>> comparisons;  // paper -> rule -> count
  std::set<size_t> checked;                                           // lines
};

// audit_cells.cpp: figures of one measurement against each other.
void check_alpha_tau(const Claims& claims, const ClaimCells& cells, AuditLog& log);
void check_tau_conventions(const Claims& claims, const ClaimCells& cells, AuditLog& log);
void check_speedup_tau(const Claims& claims, const ClaimCells& cells, AuditLog& log);
void check_step_overhead(const Claims& claims, const ClaimCells& cells, AuditLog& log);
void check_throughput(const Claims& claims, const ClaimCells& cells, AuditLog& log);
void check_bounds(const Claims& claims, const ClaimCells& cells, AuditLog& log);
// audit_tables.cpp: rows of a table against each other.
void check_overall_mean(const Claims& claims, const ClaimCells& cells, AuditLog& log);
void check_same_numbers(const Claims& claims, const ClaimCells& cells, AuditLog& log);
void check_sum(const Claims& claims, const ClaimCells& cells, AuditLog& log);
// audit_prose.cpp: prose against the tables of its paper.
void check_prose_table(const Claims& claims, const ClaimCells& cells, AuditLog& log);

}  // namespace evalrun::reports
