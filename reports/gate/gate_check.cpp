#include "reports/gate/gate_check.h"

#include <utility>

#include "engine/base/error.h"

namespace evalrun::reports {

const char* to_string(Outcome o) {
  switch (o) {
    case Outcome::kCorrectness:
      return "correctness failure";
    case Outcome::kIncompatible:
      return "not comparable";
    case Outcome::kRegression:
      return "regression";
    case Outcome::kInconclusive:
      return "inconclusive";
    case Outcome::kImprovement:
      return "improvement";
    case Outcome::kOk:
      return "ok";
  }
  EVALRUN_CHECK(false, "unknown outcome {}", static_cast<int>(o));
}

double GateOptions::level() const {
  if (looks <= 1) return alpha;
  return look == 0 ? alpha / 2 : alpha / 2 / (looks - 1);
}

GateCheck gate_check(std::string metric, std::string method, Outcome outcome, std::string reason,
                     int64_t n) {
  GateCheck v;
  v.metric = std::move(metric);
  v.method = std::move(method);
  v.outcome = outcome;
  v.reason = std::move(reason);
  v.n = n;
  return v;
}

}  // namespace evalrun::reports
