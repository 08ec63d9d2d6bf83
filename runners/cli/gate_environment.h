// The check "environment" of the gate: was the machine fit to measure, and may its state have made
// the speed verdict?
#pragma once
#include "results/store.h"
#include "runners/cli/gate_run.h"

namespace evalrun::cli {

// Adds the check to a measured outcome, from what its runs stored with their generations. Exit code
// 6 only where the verdict is about speed and a clock that differs between the arms, or within the
// run, may have made it. Other processes do not change a verdict: blocks put them on both arms
// alike, and what they add in noise ends as inconclusive.
void judge_environment(const results::ResultStore& store, GateOutcome& outcome);

}  // namespace evalrun::cli
