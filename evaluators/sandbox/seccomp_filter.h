// The system calls a boxed program may not make, as a classic BPF program for bubblewrap.
#pragma once
#include <string>

namespace evalrun::evaluators {

// Allowed unless listed: namespaces, mounts, tracing, kernel keys, modules, clocks, memory that no
// limit sees, and every socket but AF_UNIX are refused; another architecture's calls kill. Checked
// on x86-64. Throws InternalError when libseccomp cannot build it.
const std::string& seccomp_filter();

}  // namespace evalrun::evaluators
