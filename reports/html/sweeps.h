// Arms of a run that differ in nothing but one or two numeric parameters of their method: what can
// be drawn as a curve or as a heat map.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "reports/data/run_data.h"

namespace evalrun::reports {

struct SweepPoint {
  std::string label;           // of the arm
  std::vector<double> values;  // one per swept parameter
};

struct Sweep {
  std::string method;
  std::vector<std::string> parameters;  // one or two
  std::string
      fixed;  // what tells the sweep from others of its method: "ngram=3", "" if it is alone
  std::vector<SweepPoint> points;  // by values
};

// One parameter: every set of two arms or more that agree in all else. Two: every set in which both
// take two values or more, over at least four arms. Those of two parameters come first. The arms of
// a run label each other apart, so a label names one.
std::vector<Sweep> find_sweeps(const std::vector<ArmInfo>& arms);

}  // namespace evalrun::reports
