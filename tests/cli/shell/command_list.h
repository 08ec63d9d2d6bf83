// What `evalrun man --list` says, as data.
#pragma once
#include <string>
#include <vector>

#include "tests/cli/cli_test.h"

namespace evalrun::tests {

struct ListedOption {
  std::vector<std::string> names;  // "-m", "--model"; or a bare word
  std::string type;                // "flag", "TEXT", ...
  bool named() const { return names[0].starts_with('-'); }
};
struct ListedCommand {
  std::vector<std::string> words;  // "baseline", "save"; none: the program
  std::vector<ListedOption> options;
};

inline std::vector<ListedCommand> read_command_list(const std::string& list) {
  std::vector<ListedCommand> commands;
  for (const std::string& line : base::split(list, '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> cells = base::split(line, '\t');
    if (cells.size() == 1)
      commands.push_back(
          {line == "evalrun" ? std::vector<std::string>() : base::split(line, ' '), {}});
    else
      commands.back().options.push_back({base::split(cells.at(1), ','), cells.at(2)});
  }
  return commands;
}

}  // namespace evalrun::tests
