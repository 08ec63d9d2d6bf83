// Memory of a process and everything below it.
#pragma once
#include <sys/types.h>

#include <cstdint>

namespace evalrun::evaluators {

// Resident bytes of `root` and its descendants, shared pages counted once per process; 0 when it is
// gone or not positive. A few file reads per process.
int64_t tree_rss(pid_t root);

}  // namespace evalrun::evaluators
