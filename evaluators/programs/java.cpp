// Java: one JVM compiles in memory and runs (our Driver.java), started from an archive of its
// loaded classes. The archive is valid only for the jar at the same path.
#include <re2/re2.h>

#include "evaluators/programs/language.h"
#include "evaluators/programs/support/embedded.h"

namespace evalrun::evaluators {
namespace {

using datasets::CodeProblem;

constexpr const char* kJava = "/usr/bin/java";

// A whole answer: a class, whatever its name, becomes the class that the test wants; a bare method
// gets the prompt's class around it.
std::string whole_program(const CodeProblem& problem, const Answer& answer) {
  auto [imports, code] = split_lines(answer.code, {"import ", "package "});
  static const re2::RE2 package_line(R"((?m)^package .*$)"),
      top_class(R"((?m)^(?:public\s+)?(?:final\s+)?class\s+\w+)"),
      solution(R"((?m)^(?:public\s+)?(?:final\s+)?class\s+Solution\b)");
  re2::RE2::GlobalReplace(&imports, package_line, "");
  code = without_function(code, R"(public\s+static\s+void\s+main\s*\([^)]*\)[^{;]*\{)");
  if (!re2::RE2::PartialMatch(code, top_class))
    return imports + without_last_line(problem.prompt) + code + "\n}\n";
  const std::string head = split_lines(problem.prompt, {"import "}).first;
  re2::RE2::Replace(&code, re2::RE2::PartialMatch(code, solution) ? solution : top_class,
                    "class Solution");
  return head + imports + code;
}

Assembly assemble(const CodeProblem& problem, const Answer& answer, const AssemblyOptions&) {
  return {(answer.whole ? whole_program(problem, answer) : problem.prompt + answer.code) + "\n",
          problem.test};
}

std::vector<std::string> jvm(const BoxPaths& paths) {
  std::vector<std::string> command = {
      kJava,    "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m",
      "-Xss8m", "-XX:-UsePerfData",        "-Xlog:disable",    "-Xlog:all=error:stderr"};
  if (paths.boxed) command.push_back("-XX:SharedArchiveFile=" + paths.tool + "/driver.jsa");
  command.insert(command.end(), {"-cp", paths.tool + "/driver.jar", "Driver"});
  return command;
}

Commands commands(const Assembly& program, const Secrets& secrets, const BoxPaths& paths) {
  Commands c;
  c.run.command = jvm(paths);
  c.run.input = secrets.nonce + "\n" + program.code + program.test;
  c.run.compiles_first = true;
  c.run.proc = true;
  return c;
}

Toolchain find_toolchain() {
  Toolchain found;
  found.version = first_line_of({kJava, "-version"});
  if (found.version.empty() || first_line_of({"/usr/bin/javac", "-version"}).empty())
    found.packages.emplace_back("default-jdk-headless");
  return found;
}

// A program that loads what programs of the data set load.
constexpr const char* kSample = R"(nonce
import java.util.*;
import java.util.stream.*;
class Solution {
  public List<Integer> f(List<Integer> a) {
    Map<String, Integer> m = new HashMap<>();
    for (int x : a) m.merge("k" + x, 1, Integer::sum);
    return a.stream().filter(x -> m.get("k" + x) == 1).sorted().collect(Collectors.toList());
  }
}
public class Main {
  public static void main(String[] args) {
    Solution s = new Solution();
    List<Boolean> correct = Arrays.asList(
        s.f(new ArrayList<>(Arrays.asList(3, 1, 2, 3))).equals(Arrays.asList(1, 2)),
        Objects.equals(String.format("%d", 1), "1"));
    if (correct.contains(false)) throw new AssertionError();
  }
}
)";

}  // namespace

Language java_language() {
  Language language;
  language.name = "java";
  language.title = "Java";
  language.find_toolchain = &find_toolchain;
  language.tool_files = {{"Driver.java", support_file("Driver.java")}, {"sample.txt", kSample}};
  language.tool_command = [](const BoxPaths& paths) {
    std::string make = "set -e; cd " + paths.tool +
                       "; javac -proc:none Driver.java; jar cf driver.jar *.class; rm *.class";
    if (paths.boxed) {
      make += "; ";
      BoxPaths plain = paths;
      plain.boxed = false;
      std::string run;
      for (const std::string& word : jvm(plain)) {
        run += (run.empty() ? "" : " ") + word;
        if (word == kJava) run += " -XX:ArchiveClassesAtExit=driver.jsa";
      }
      make += run + " < sample.txt";
    }
    return std::vector<std::string>{"/bin/sh", "-c", make};
  };
  language.assemble = &assemble;
  language.commands = &commands;
  language.compiles_itself = true;
  // The virtual machine reserves address space by the gigabyte; -Xmx bounds its heap.
  language.run_limits.data = int64_t{2} << 30;
  language.run_limits.processes = 64;
  return language;
}

}  // namespace evalrun::evaluators
