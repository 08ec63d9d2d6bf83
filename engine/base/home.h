// Where evalrun keeps its own files.
#pragma once
#include <filesystem>

namespace evalrun::base {

// $EVALRUN_HOME, or ~/.cache/evalrun; empty when neither is known.
std::filesystem::path home_folder();

}  // namespace evalrun::base
