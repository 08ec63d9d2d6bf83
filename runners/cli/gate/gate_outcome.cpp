#include "runners/cli/gate/gate_outcome.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace evalrun::cli {

std::string failure_class(base::ExitCode code) {
  switch (code) {
    case base::ExitCode::kRegression:
      return "regression";
    case base::ExitCode::kNoBaseline:
      return "no-baseline";
    case base::ExitCode::kInconclusive:
      return "inconclusive";
    case base::ExitCode::kCorrectness:
      return "correctness";
    case base::ExitCode::kEnvironment:
      return "environment";
    default:
      return "";
  }
}

const char* to_string(GateWay way) {
  switch (way) {
    case GateWay::kStored:
      return "stored";
    case GateWay::kTurns:
      return "turns";
    case GateWay::kLockStep:
      return "lock-step";
  }
  EVALRUN_CHECK(false, "unknown way {}", static_cast<int>(way));
}

std::string gate_json(const GateOutcome& outcome) {
  auto json = nlohmann::ordered_json::parse(reports::to_json(outcome.result));
  const std::string name = failure_class(outcome.code);
  json["exit_code"] = static_cast<int>(outcome.code);
  json["class"] = name.empty() ? "ok" : name;
  json["note"] = outcome.note;
  json["baseline"] = outcome.baseline;
  json["baseline_run"] = outcome.baseline_run;
  json["run"] = outcome.run_id;
  json["way"] = to_string(outcome.way);
  json["sessions"] = outcome.sessions;
  json["looks"] = outcome.looks;
  json["confirming_run"] = outcome.confirming_run;
  json["steal_share"] = outcome.steal_share;
  return json.dump(2);
}

std::string gate_line(const GateOutcome& outcome) {
  if (outcome.code != outcome.result.code)
    return fmt::format("check: {} - {}", failure_class(outcome.code), outcome.note);
  return outcome.result.summary + (outcome.note.empty() ? "" : "; " + outcome.note);
}

}  // namespace evalrun::cli
