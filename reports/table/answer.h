// The first lines of a report: what to switch on, in words.
#pragma once
#include <string>

#include "reports/figures/report.h"

namespace evalrun::reports {

// "Fastest lossless here: pld, 1.36x [1.18, 1.58] in decoding, 1.27x [1.14, 1.41] for whole
// requests." and, a sentence each: what cannot be told apart from it, what is slower than plain
// decoding. Never a winner that the prompts do not support. Before it: why none of this may be
// quoted, if so. Empty where nothing can be ranked (no baseline, one prompt, no method) and nothing
// speaks against the run.
std::string answer(const Report& report, const std::string& dataset);

}  // namespace evalrun::reports
