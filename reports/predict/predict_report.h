// What `evalrun predict` prints: predictions, their confirmation, tree analytics, acceptance, the
// oracle gap.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reports/document/document.h"
#include "reports/json_values.h"
#include "reports/predict/acceptance.h"
#include "reports/predict/confirm.h"
#include "reports/predict/oracle.h"
#include "reports/predict/tree_report.h"

namespace evalrun::reports {

struct PredictReport {
  RunInfo run;
  std::vector<Prediction> predictions;
  std::string shape;  // of the random weights that gave T(n); "" = a model's
  std::optional<Confirmations> confirmations;
  std::optional<RunInfo> confirmed_by;
  std::vector<TreeReport> trees;
  std::vector<ArmAcceptance> acceptance;
  std::optional<OracleReport> oracle;
  std::vector<std::string> notes;
  // A tree as a method's parameter takes it.
  std::function<std::string(const std::vector<TreePath>& tree)> tree_text;
};

// The row with the highest speedup among those of its arm and batch.
bool is_best(const Prediction& row, const std::vector<Prediction>& rows);

// CSV has the confirmations, else the predictions, of the JSON; of --nodes the tables.
Document document(const PredictReport& r);
std::string to_json(const PredictReport& r);

// Their parts, for the two above.
void add_acceptance(const std::vector<ArmAcceptance>& arms, Document& d);
void add_oracle(const OracleReport& r, Document& d);
Json acceptance_json(const std::vector<ArmAcceptance>& arms);
Json oracle_json(const OracleReport& r);

}  // namespace evalrun::reports
