// A part of a plan's prompts as a run of its own: what searches measure round by round (evalrun
// tune parameters, tune method).
#pragma once
#include <string>
#include <vector>

#include "reports/data/pairing.h"
#include "results/store.h"
#include "runners/cli/instruments.h"
#include "runners/plan/plan.h"

namespace evalrun::cli {

// What all searches ask for beside methods, tasks and sizes: first turns once, without A/A arm and
// scores, prompts that are too long left out. `where`: who asks, for errors of the suite.
void complete_search(runners::PlanRequest& request, const std::string& where);

// Measures prompts [begin, end) of the request's in a mixed order that is always the same, so that
// every part has all kinds of them. The run's key follows from the request, whose nonce must name
// the part: what is stored is not measured again. Returns methods and plain decoding paired, in
// order of the methods, without plain decoding of tuned targets. Throws kInterrupted, and
// kCorrectness where tokens are not as promised.
std::vector<reports::Pairing> measure_part(const runners::PlanRequest& request, int begin, int end,
                                           results::ResultStore& store, Instruments& instruments);

}  // namespace evalrun::cli
