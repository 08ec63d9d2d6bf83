// Whether the speedups of a report may be quoted: was the machine fit to measure, and did plain
// decoding measured twice come out the same? docs/measurement.md, "Protocol" and "Speedup".
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "reports/figures/report.h"

namespace evalrun::reports {

// How far the A/A arm's speedup may be from 1.
inline constexpr double kMostNoise = 0.05;

// What speaks against the speedups of a data set, a clause each: its noise floor first, at every
// batch where it is large, then the machine while the run was measured.
std::vector<std::string> not_quotable(const Report& report, const std::string& dataset);

// The noise floor's clauses alone, one for each batch; empty where it is small or was not measured.
std::vector<std::string> too_noisy(const Report& report, const std::string& dataset);

// Of a row's own speedup, by the noise floor of its data set and batch, and by the machine. Absent
// where nothing speaks against quoting and no clocks speak for it.
std::optional<bool> quotable(const Report& report, const ReportRow& row);

// "Not quotable: plain decoding against itself gives 0.81, so no speedup here can be trusted.
// Measure again on a quiet machine."; "" where nothing speaks against quoting.
std::string not_quotable_text(const Report& report, const std::string& dataset);

}  // namespace evalrun::reports
