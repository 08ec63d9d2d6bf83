// Rings of files that include each other. A header and the source of the same name are one unit:
// who reads one reads both.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace evalrun::tests {

// `texts`: path from the root -> contents. Each ring once: its units (paths without extension),
// sorted.
std::vector<std::vector<std::string>> include_cycles(
    const std::map<std::string, std::string>& texts);

}  // namespace evalrun::tests
