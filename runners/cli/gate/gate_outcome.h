// What `evalrun check` says in the end: the gate's result, and what was done around it.
#pragma once
#include <cstdint>
#include <string>

#include "reports/gate/gate.h"

namespace evalrun::cli {

// How the two sides were measured.
enum class GateWay { kStored, kTurns, kLockStep };
const char* to_string(GateWay way);  // "stored", "turns", "lock-step"

struct GateOutcome {
  reports::GateResult result;
  base::ExitCode code = base::ExitCode::kOk;  // result.code, unless the machine or the second run
                                              // say otherwise; then `note` tells why
  std::string baseline;                       // name, as asked for
  int64_t baseline_run = 0;                   // 0 = none
  int64_t run_id = 0;  // what was judged, in the database of the new runs; 0 = nothing
  GateWay way = GateWay::kStored;
  int sessions = 1;            // processes of the new build
  int looks = 0;               // times the evidence was looked at
  int64_t confirming_run = 0;  // second run of a red verdict, 0 = none was needed
  double steal_share = 0;      // processor time taken by other guests, the worst run
  std::string note;
};

// The class of a code on the command line: "regression", "no-baseline", ... "" for kOk.
std::string failure_class(base::ExitCode code);

std::string gate_json(const GateOutcome& outcome);  // the gate's JSON with what was done around it
std::string gate_line(const GateOutcome& outcome);  // the one line for standard output

}  // namespace evalrun::cli
