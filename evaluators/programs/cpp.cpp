// C++: g++ -std=c++11 without optimisation, as officially; a precompiled header of exactly the
// official nine and the gold linker take two thirds off. The last statement of main reports
// success.
#include <array>

#include "evaluators/programs/language.h"
#include "evaluators/programs/support/embedded.h"

namespace evalrun::evaluators {
namespace {

using datasets::CodeProblem;

constexpr const char* kCompiler = "/usr/bin/g++";
constexpr std::array kOfficialLines = {
    "#include<stdlib.h>", "#include<algorithm>", "#include<math.h>",
    "#include<stdio.h>",  "#include<vector>",    "#include<string>",
    "#include<climits>",  "#include<cstring>",   "#include<iostream>"};
constexpr std::array kBigcodeLines = {
    "using namespace std;", "#include<stdlib.h>", "#include<algorithm>",     "#include<cmath>",
    "#include<math.h>",     "#include<numeric>",  "#include<stdio.h>",       "#include<vector>",
    "#include<set>",        "#include<map>",      "#include<queue>",         "#include<stack>",
    "#include<list>",       "#include<deque>",    "#include<boost/any.hpp>", "#include<string>",
    "#include<climits>",    "#include<cstring>",  "#include<iostream>",      "#include<sstream>",
    "#include<fstream>"};

template <typename Lines>
std::string missing_lines(const Lines& lines, const std::string& prompt) {
  std::string text;
  for (const char* line : lines)
    if (prompt.find(line) == std::string::npos) text += std::string(line) + "\n";
  return text;
}

// What comes before the signature: comment, includes, helpers. The helpers stay out when the answer
// brings its own.
std::string header_of(const CodeProblem& problem, const Answer& answer) {
  const std::string header = without_last_line(problem.prompt);
  if (header.find('{') == std::string::npos) return header;
  CodeProblem helper = problem;
  helper.prompt = header;
  if (!defines_function("cpp", answer.code, entry_point(helper))) return header;
  return split_lines(header, {"#", "using "}).first;
}

Assembly assemble(const CodeProblem& problem, const Answer& answer,
                  const AssemblyOptions& options) {
  Assembly program;
  program.code = options.convention == CodeConvention::kBigcode
                     ? missing_lines(kBigcodeLines, problem.prompt)
                     : missing_lines(kOfficialLines, problem.prompt);
  program.code += "\n";
  if (answer.whole)
    program.code += header_of(problem, answer) +
                    without_function(answer.code, R"(\bint\s+main\s*\([^)]*\)\s*\{)");
  else
    program.code += problem.prompt + answer.code;
  program.code += "\n";
  program.test = problem.test;
  return program;
}

Commands commands(const Assembly& program, const Secrets& secrets, const BoxPaths& paths) {
  Commands c;
  std::string test = "extern \"C\" void evalrun_done(const char*);\n" + program.test;
  const size_t end = test.rfind('}');  // of main: every test ends with it
  if (end != std::string::npos) test.insert(end, "\n;evalrun_done(\"" + secrets.nonce + "\");\n");
  BoxRequest compile;
  compile.command = {kCompiler,  "-std=c++11",
                     "-w",       "-fuse-ld=gold",
                     "-include", paths.tool + "/prelude.h",
                     "-x",       "c++",
                     "-",        "-x",
                     "none",     paths.tool + "/done.o",
                     "-o",       paths.job + "/program"};
  if ((program.code + test).find("openssl/") != std::string::npos)
    compile.command.insert(compile.command.end(), {"-lcrypto", "-lssl"});
  compile.input = program.code + test;
  c.compile = std::move(compile);
  c.run.command = {paths.job + "/program"};
  return c;
}

Toolchain find_toolchain() {
  Toolchain found;
  found.version = first_line_of({kCompiler, "--version"});
  if (found.version.empty()) found.packages.emplace_back("g++");
  require_file(found, "/usr/include/boost/any.hpp", "libboost-dev");
  require_file(found, "/usr/include/openssl/md5.h", "libssl-dev");
  return found;
}

}  // namespace

Language cpp_language() {
  Language language;
  language.name = "cpp";
  language.title = "C++";
  language.find_toolchain = &find_toolchain;
  language.tool_files = {{"prelude.h", support_file("cpp_prelude.hpp")},
                         {"done.c", support_file("cpp_done.c")}};
  language.tool_command = [](const BoxPaths& paths) {
    return std::vector<std::string>{
        "/bin/sh", "-c",
        "set -e; cd " + paths.tool +
            "; g++ -std=c++11 -w -x c++-header prelude.h -o prelude.h.gch; gcc -O1 -c done.c"};
  };
  language.assemble = &assemble;
  language.commands = &commands;
  language.run_limits.address_space = int64_t{1} << 30;
  return language;
}

}  // namespace evalrun::evaluators
