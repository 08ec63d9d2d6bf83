// Tree analytics of an arm: how often each place of its drafts was accepted, what was wasted, and
// the best tree of every size, chosen on half of the prompts and scored on the others.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/predict/predict.h"

namespace evalrun::reports {

struct BestTree {
  std::vector<TreePath> tree;  // the first n of the paths, best first
  double gain = 0;             // in tau, of the last path, on the prompts it was chosen on
  double tau_chosen_on = 0;    // predicted for those
  Prediction others;           // predicted for the other half
};

struct TreeReport {
  std::string arm;
  int steps = 0;
  TreePlaces places;                 // of all prompts
  int chosen_on = 0, scored_on = 0;  // prompts
  std::vector<BestTree> trees = {};  // by size; empty where trees cannot be cut
  std::string no_trees = {};         // why, "" = there are some
};

// Prompts are halved by a hash of their keys: which half one belongs to does not depend on the arm.
// Throws usage_error for an arm that cannot be predicted.
TreeReport tree_report(const PredictSources& sources, const ArmInfo& arm, int nodes);

}  // namespace evalrun::reports
