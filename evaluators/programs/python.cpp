// Python: the program comes through a pipe and is compiled and run by a driver given with -c, so no
// file holds its text. numpy, three times as slow to import as all else, only when it is named.
#include "evaluators/programs/language.h"
#include "evaluators/programs/support/embedded.h"

namespace evalrun::evaluators {
namespace {

using datasets::CodeProblem;

constexpr const char* kPython = "/usr/bin/python3";

// What the official evaluation imports for every HumanEval-X program, but numpy.
constexpr const char* kPrelude =
    "import math\nimport re\nimport sys\nimport copy\nimport datetime\nimport itertools\n"
    "import collections\nimport heapq\nimport statistics\nimport functools\nimport hashlib\n"
    "import string\nfrom typing import *\nfrom collections import *\n";

bool names_numpy(const std::string& text) {
  return text.find("numpy") != std::string::npos || text.find("np.") != std::string::npos;
}

Assembly assemble(const CodeProblem& problem, const Answer& answer, const AssemblyOptions&) {
  Assembly program;
  if (problem.set == CodeProblem::Set::kHumanEvalX) {
    program.code = kPrelude;
    if (names_numpy(problem.prompt + answer.code + problem.test))
      program.code += "import numpy\nimport numpy as np\n";
  }
  // Before a whole function the prompt's own one is closed: its imports and helpers remain.
  if (problem.set != CodeProblem::Set::kMbpp)
    program.code += problem.prompt + (answer.whole ? "\n    pass\n" : "");
  program.code += answer.code + "\n";
  program.test =
      problem.test_setup + (problem.test_setup.empty() ? "" : "\n") + problem.test + "\n";
  if (problem.set == CodeProblem::Set::kHumanEval)
    program.test += "check(" + problem.entry_point + ")\n";
  return program;
}

Commands commands(const Assembly& program, const Secrets& secrets, const BoxPaths&) {
  Commands c;
  c.run.command = {kPython, "-I", "-B"};
  if (!names_numpy(program.code + program.test)) c.run.command.emplace_back("-S");
  c.run.command.insert(c.run.command.end(), {"-c", support_file("python_driver.py")});
  c.run.input =
      program.code + program.test + "\n__import__('os').write(3, b'" + secrets.nonce + "')\n";
  c.run.compiles_first = true;
  return c;
}

Toolchain find_toolchain() {
  Toolchain found;
  found.version = first_line_of({kPython, "--version"});
  if (found.version.empty()) found.packages.emplace_back("python3");
  require_file(found, "/usr/lib/python3/dist-packages/numpy", "python3-numpy");
  return found;
}

}  // namespace

Language python_language() {
  Language language;
  language.name = "python";
  language.title = "Python";
  language.find_toolchain = &find_toolchain;
  language.assemble = &assemble;
  language.commands = &commands;
  language.compiles_itself = true;
  language.run_limits.address_space = int64_t{1} << 30;
  return language;
}

}  // namespace evalrun::evaluators
