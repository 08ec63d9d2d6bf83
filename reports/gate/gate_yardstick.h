// What the gate measures an arm by: an arm of the same run, answered in turns with it, so that the
// machine's speed is in both times. A server has no plain decoding of its own beside it; which arm
// is its yardstick is decided here (docs/gate.md, "Servers").
#pragma once
#include <string>
#include <vector>

#include "reports/data/run_data.h"
#include "reports/gate/gate_check.h"

namespace evalrun::reports {

struct JudgedArm {
  std::string label;
  std::string yardstick;  // label of another arm of the run; "" = none, its time as it is
  bool server = false;    // it, or its yardstick, is one
  // A yardstick that lost speed is a loss, too: where nothing else tells.
  bool both_count = true;
};

struct Yardsticks {
  std::vector<JudgedArm> arms;  // in the order of the run
  // Why this run cannot be judged, and what to do; "" where it can.
  std::string refusal, remedy;
  bool wrong_name = false;  // GateOptions::yardstick is to blame, not the run
};

// GateOptions::yardstick names an arm, or says that there is none; "" chooses. Without servers
// every arm that drafts stands against its reference, and a name is refused.
Yardsticks yardsticks_of(const RunData& run, const GateOptions& options);

// What a reader of the verdict should know of the yardsticks of both runs, one line each.
std::vector<std::string> yardstick_warnings(const RunData& base, const RunData& current,
                                            const GateOptions& options);

}  // namespace evalrun::reports
