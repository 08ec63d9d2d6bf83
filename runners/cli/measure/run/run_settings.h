// Options of `run` that take several values: every combination is a run of its own, as llama-bench
// has it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runners/cli/cli.h"

namespace evalrun::cli {

struct RunSetting {
  ModelOptions model;  // -m empty where several were named: the suite has them then
  std::optional<int> max_new;
  std::optional<double> temperature;
  std::string name;  // of the options with several values: "dtype=q4,threads=1"; else empty
};

// In the order of the values, the last option fastest. Throws usage_error for a value named twice
// and for more than 64 combinations.
std::vector<RunSetting> every_setting(const ModelLists& model, const std::vector<int>& max_new,
                                      const std::vector<double>& temperature);

}  // namespace evalrun::cli
