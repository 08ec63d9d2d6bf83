// The built binary `evalrun` as a child process, in a folder of its own.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/temp_folder.h"

namespace evalrun::tests {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out, err;
};

// One running child. Its folder is the working directory, standard input is empty, standard output
// and error go to files there, and no EVALRUN_* variable of ours reaches it.
class Child {
 public:
  Child(const TempFolder& folder, const std::vector<std::string>& command);
  ~Child();  // kills it if it still runs
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void send(int signal) const;
  bool running();  // false once it has ended
  int wait();      // exit code, as in ProgramResult

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

ProgramResult run_command_in(const TempFolder& folder, const std::vector<std::string>& command);

#ifdef EVALRUN_PROGRAM  // which of its builds a test is about
// With the path of `evalrun` first.
inline std::vector<std::string> evalrun_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), EVALRUN_PROGRAM);
  return arguments;
}
inline ProgramResult run_evalrun(const TempFolder& folder, std::vector<std::string> arguments) {
  return run_command_in(folder, evalrun_command(std::move(arguments)));
}
#endif

// The tiny model among the fixtures.
std::string tiny_model();

// Writes `prompts.jsonl`: n raw completions of words that repeat, so that lookup drafts are
// accepted now and then.
void write_prompts(const TempFolder& folder, int n);

// `evalrun run` over prompts.jsonl on the tiny model with AR, A/A and PLD.
std::vector<std::string> run_arguments(int max_new, const std::vector<std::string>& more = {});

}  // namespace evalrun::tests
