// Names on the command line that were given up: they go on working, and no help shows them.
#pragma once
#include <string>
#include <vector>

namespace evalrun::cli {

// The words after the program's name, with every old name replaced by the one it has now.
std::vector<std::string> with_new_names(std::vector<std::string> words);

}  // namespace evalrun::cli
