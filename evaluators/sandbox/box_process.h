// One started box: its descriptors, its clock, its end.
#pragma once
#include <string>
#include <vector>

#include "evaluators/sandbox/box_request.h"

namespace evalrun::evaluators {

// Starts `command` (absolute path first, empty environment but for `environment`) with the
// descriptors that bubblewrap and box_init.cpp expect, enforces the request's limits from outside,
// and returns when nothing of it runs any more. owner: user id the control channel is given to, 0 =
// ours. boxed = false: no bubblewrap around it, so there is no status line to wait for.
BoxResult supervise(const std::vector<std::string>& command,
                    const std::vector<std::string>& environment, const BoxRequest& request,
                    unsigned owner, bool boxed);

}  // namespace evalrun::evaluators
