// A program of the system, run to its end: what it printed, and its exit code.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace evalrun::runners {

struct CommandOutput {
  // The program's; 128 + signal where one ended it.
  int exit_code = 0;
  bool found = true;  // false: there is no such program
  std::string out, err;
};

// Words of a command line, and variables on top of this process's.
using CommandRunner = std::function<CommandOutput(const std::vector<std::string>& words,
                                                  const std::map<std::string, std::string>&)>;

// Of what wait() says.
int exit_code_of_status(int status);

// Looks the program up on the PATH; its standard input is empty. Throws kEnvironment where no
// process can be made.
CommandOutput run_command(const std::vector<std::string>& words,
                          const std::map<std::string, std::string>& variables = {});

}  // namespace evalrun::runners
