// JavaScript: node runs our driver, which reads the program from a pipe. The test's console.assert
// becomes a function the program cannot replace; printing anything fails, as officially.
#include <re2/re2.h>

#include "evaluators/programs/language.h"
#include "evaluators/programs/support/embedded.h"

namespace evalrun::evaluators {
namespace {

using datasets::CodeProblem;

constexpr const char* kNode = "/usr/bin/node";

Assembly assemble(const CodeProblem& problem, const Answer& answer, const AssemblyOptions&) {
  if (!answer.whole) return {problem.prompt + answer.code + "\n", problem.test};
  // Examples that print would fail the official rule, which knows only completions.
  static const re2::RE2 example(R"((?m)^console\.log\(.*\);?\s*(?://.*)?$)");
  std::string code = answer.code;
  re2::RE2::GlobalReplace(&code, example, "");
  return {without_last_line(problem.prompt) + code + "\n", problem.test};
}

Commands commands(const Assembly& program, const Secrets& secrets, const BoxPaths& paths) {
  Commands c;
  static const re2::RE2 assertion(R"(\bconsole\s*\.\s*assert\s*\()");
  std::string test = program.test;
  re2::RE2::GlobalReplace(&test, assertion, secrets.name_a + "(");
  c.run.command = {kNode, "--max-old-space-size=512", paths.tool + "/driver.js"};
  c.run.environment = {{"NODE_PATH", paths.tool + "/modules"}};
  c.run.input = secrets.nonce + " " + secrets.name_a + " " + secrets.name_b + "\n" + program.code +
                test + "\n;" + secrets.name_b + "();\n";
  c.run.compiles_first = true;
  return c;
}

Toolchain find_toolchain() {
  Toolchain found;
  found.version = first_line_of({kNode, "--version"});
  if (found.version.empty())
    found.packages.emplace_back("nodejs");
  else
    found.version = "node " + found.version;
  return found;
}

}  // namespace

Language js_language() {
  Language language;
  language.name = "js";
  language.title = "JavaScript";
  language.find_toolchain = &find_toolchain;
  language.tool_files = {{"driver.js", support_file("js_driver.js")},
                         {"modules/js-md5.js", support_file("js_md5.js")}};
  language.assemble = &assemble;
  language.commands = &commands;
  language.compiles_itself = true;
  language.run_limits.processes = 64;
  language.must_be_silent = true;
  return language;
}

}  // namespace evalrun::evaluators
