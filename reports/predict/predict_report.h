// What `evalrun predict` prints: predictions, their confirmation, tree analytics.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reports/predict/confirm.h"
#include "reports/predict/tree_report.h"

namespace evalrun::reports {

struct PredictReport {
  RunInfo run;
  std::vector<Prediction> predictions;
  std::optional<Confirmations> confirmations;
  std::optional<RunInfo> confirmed_by;
  std::vector<TreeReport> trees;
  std::vector<std::string> notes;
  // A tree as a method's parameter takes it.
  std::function<std::string(const std::vector<TreePath>& tree)> tree_text;
};

// The row with the highest speedup among those of its arm and batch.
bool is_best(const Prediction& row, const std::vector<Prediction>& rows);

std::string to_markdown(const PredictReport& r);
std::string to_text(const PredictReport& r);
std::string to_json(const PredictReport& r);

}  // namespace evalrun::reports
