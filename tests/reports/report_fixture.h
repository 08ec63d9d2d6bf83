// A synthetic run and its report, for the tests of the table.
#pragma once
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "reports/figures/report.h"
#include "tests/results/synthetic.h"

namespace evalrun::reports {

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() : store_(folder_.file("a.db")) { run_.arms = tests::usual_arms(); }
  Report report(const ReportOptions& options = {}) {
    return build_report(store_, tests::fill(store_, run_), options);
  }
  static const ReportRow& row(const Report& r, const std::string& label,
                              const std::string& dataset) {
    for (const ReportRow& x : r.rows)
      if (x.arm.label == label && x.dataset == dataset) return x;
    throw std::runtime_error("no row " + label);
  }
  tests::TempFolder folder_;
  results::ResultStore store_;
  tests::SyntheticRun run_;
};

}  // namespace evalrun::reports
