// The command line this process was started with, for records and for the command that resumes a
// run.
#pragma once
#include <string>
#include <vector>

namespace evalrun::cli {

// argv as the kernel keeps it.
std::vector<std::string> process_arguments();
// One line a POSIX shell reads back as the same words.
std::string shell_line(const std::vector<std::string>& words);
// The line that continues this run: EVALRUN_* variables first, and --no-resume replaced by the
// nonce it drew (not empty then).
std::string resume_line(std::vector<std::string> arguments, const std::string& nonce);

}  // namespace evalrun::cli
