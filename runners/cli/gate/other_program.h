// What the ends of a program that `check --against` started mean.
#pragma once
#include <string>
#include <vector>

namespace evalrun::cli {

// The last line of a log that is not blank.
std::string last_line(const std::string& file);

// Returns for a run that measured: exit code 0, or 5, as a generation that failed is the gate's
// business. Otherwise throws what the code (128 + signal for one that was killed) stands for, with
// the last line of its log: kInterrupted; usage_error for a program that cannot be started;
// kDevice; data_error. `when`: ", in visit 3 of session 2" or "".
void require_measured(const std::vector<std::string>& words, int code, const std::string& log,
                      const std::string& when = "");

}  // namespace evalrun::cli
