// The words of a run that others will start, checked before they do.
#pragma once
#include <string>
#include <vector>

namespace evalrun::cli {

// `words`: those after `evalrun run`. Throws usage_error for what `run` would refuse (a wrong
// option, a suite that nobody knows), and for options that whoever starts the shards gives itself.
// Models and data are not looked for: they may lie elsewhere on the nodes.
void check_run_words(const std::vector<std::string>& words);

}  // namespace evalrun::cli
