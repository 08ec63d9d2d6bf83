// A red verdict about speed against a baseline of one session: what other stored sessions of the
// baseline's build say of it, an A/A history of the machine.
#pragma once
#include <string>

#include "reports/gate/gate.h"
#include "runners/cli/run_reference.h"

namespace evalrun::cli {

struct HistoryVerdict {
  bool explains = false;  // sessions of one build differ by as much, so that nothing is proven
  std::string note;       // "" for a baseline of several sessions: their spread is in the verdict
};
// `red` is a regression of one new session, which is left out of the history where it is stored
// there. A history of one session, the baseline's own, explains nothing; and none explains a
// verdict that is not about time.
HistoryVerdict judge_by_history(const RunReference& baseline, const reports::GateResult& red,
                                const reports::GateOptions& options);

}  // namespace evalrun::cli
