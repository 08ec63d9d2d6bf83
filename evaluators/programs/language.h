// What running programs of one language takes: toolchain, prepared parts, assembly, commands.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "datasets/dataset.h"
#include "engine/base/registry.h"
#include "evaluators/programs/completion.h"
#include "evaluators/sandbox/box.h"

namespace evalrun::evaluators {

struct Toolchain {
  std::string version;                // "g++ 12.2.0"; goes into every result
  std::vector<std::string> packages;  // Debian packages that are missing; empty = complete
};

struct AssemblyOptions {
  CodeConvention convention = CodeConvention::kEvalrun;
  bool fix_go_imports = false;  // look for used packages in the test, too, not only in the answer
};

// A program without the secrets of its run. `test` begins where foreign code ends.
struct Assembly {
  std::string code, test;
};

// New for each run and unknown to the program's author.
struct Secrets {
  std::string nonce;           // 128 bits, hex; written to descriptor 3 after the last assertion
  std::string name_a, name_b;  // identifiers
};

// Paths as the program sees them.
struct BoxPaths {
  std::string job, tool;
  bool boxed = true;
};

struct Commands {
  std::vector<std::pair<std::string, std::string>> files;  // written into the job folder
  std::optional<BoxRequest> compile;                       // limits and tool folder come later
  BoxRequest run;
};

struct Language {
  std::string name;   // as in CodeProblem::language
  std::string title;  // "C++"
  std::function<Toolchain()> find_toolchain;
  // Prepared once per toolchain: files to write into the tool folder, and a command that finishes
  // the work there. Empty = nothing to prepare.
  std::vector<std::pair<std::string, std::string>> tool_files;
  std::function<std::vector<std::string>(const BoxPaths&)> tool_command;
  std::function<Assembly(const datasets::CodeProblem&, const Answer&, const AssemblyOptions&)>
      assemble;
  std::function<Commands(const Assembly&, const Secrets&, const BoxPaths&)> commands;
  // Limits of a run besides the wall clock.
  BoxLimits run_limits;
  // No step of its own: the program's driver compiles and then writes C to the control channel.
  bool compiles_itself = false;
  // Writing anything fails the test (the official rule of JavaScript).
  bool must_be_silent = false;
  // Reads "N passed" from the output: fewer than two means that only our own test ran.
  bool counts_tests = false;
};

const base::Registry<Language>& languages();

Language python_language();
Language cpp_language();
Language java_language();
Language js_language();
Language go_language();
Language rust_language();

// Helpers for these.
// First line of what `command` prints, "" when it fails. Trusted programs of the machine only.
std::string first_line_of(const std::vector<std::string>& command);
// Adds `package` to the missing ones unless `path` exists.
void require_file(Toolchain& toolchain, const std::string& path, const std::string& package);
// `code` without the function whose header `pattern` (RE2) matches up to the opening brace.
std::string without_function(std::string code, const std::string& pattern);
// Without the last line that is not empty: a signature.
std::string without_last_line(const std::string& text);
// Text of the lines of `code` that begin with one of `words`, and the rest.
std::pair<std::string, std::string> split_lines(const std::string& code,
                                                const std::vector<std::string>& words);

}  // namespace evalrun::evaluators
