// Go: compiler and linker are called directly with archives prepared once, so there is no build
// cache that programs could share; our main calls testing.Main and puts a test of its own last.
#include <re2/re2.h>

#include <array>

#include "engine/base/text.h"
#include "evaluators/programs/language.h"
#include "evaluators/programs/support/embedded.h"

namespace evalrun::evaluators {
namespace {

using datasets::CodeProblem;

constexpr const char* kGo = "/usr/bin/go";
constexpr std::array kOfficialPackages = {"math",  "strings", "fmt",  "strconv",   "time",
                                          "bytes", "regexp",  "sort", "math/rand", "crypto/md5"};

// The official rule: a package is imported when its name and a dot occur anywhere in the answer.
// `math.` in a comment is enough (and then fails to compile); a use in the test alone is not seen.
std::string import_block(const std::string& setup, const std::string& where_used) {
  std::string lines;
  for (const std::string package : kOfficialPackages) {
    if (setup.find(package) != std::string::npos) continue;
    const std::string name = package.substr(package.rfind('/') + 1);
    if (where_used.find(name + ".") != std::string::npos) lines += "    \"" + package + "\"\n";
  }
  return lines.empty() ? "" : "import (\n" + lines + ")\n";
}

std::string without_text(std::string text, const std::string& part) {
  for (size_t at = 0; !part.empty() && (at = text.find(part)) != std::string::npos;)
    text.erase(at, part.size());
  return text;
}

// A whole answer brings its own package line, imports and main; imports that the test's header has
// already would be an error.
std::string whole_program(const CodeProblem& problem, const Answer& answer) {
  std::string code = without_function(answer.code, R"((?m)^func\s+main\s*\(\s*\)\s*\{)");
  static const re2::RE2 package_line(R"((?m)^\s*package\s+\w+\s*$)"),
      block(R"((?ms)^import\s*\((.*?)\))"), single(R"((?m)^import\s+(\w*\s*"[^"]+")\s*$)"),
      entry(R"((\w*\s*)\"([^"]+)\")");
  re2::RE2::Replace(&code, package_line, "");
  std::string own, found;
  while (re2::RE2::PartialMatch(code, block, &found)) {
    own += found + "\n";
    re2::RE2::Replace(&code, block, "");
  }
  while (re2::RE2::PartialMatch(code, single, &found)) {
    own += found + "\n";
    re2::RE2::Replace(&code, single, "");
  }
  std::string header = problem.test_setup + "\n", lines, alias, path;
  re2::StringPiece rest(own);
  while (re2::RE2::FindAndConsume(&rest, entry, &alias, &path)) {
    const std::string name = path.substr(path.rfind('/') + 1);
    const bool used = code.find(name + ".") != std::string::npos || !base::trim(alias).empty();
    if (used && header.find("\"" + path + "\"") == std::string::npos)
      lines += "    " + std::string(base::trim(alias)) + " \"" + path + "\"\n";
  }
  if (!lines.empty()) header += "import (\n" + lines + ")\n";
  return header + import_block(header, code + problem.test) +
         without_last_line(without_text(problem.prompt, problem.imports)) + code;
}

Assembly assemble(const CodeProblem& problem, const Answer& answer,
                  const AssemblyOptions& options) {
  if (answer.whole) return {whole_program(problem, answer) + "\n", problem.test};
  const std::string where = answer.code + (options.fix_go_imports ? problem.test : "");
  return {problem.test_setup + "\n" + import_block(problem.test_setup, where) +
              without_text(problem.prompt, problem.imports) + answer.code + "\n",
          problem.test};
}

Commands commands(const Assembly& program, const Secrets& secrets, const BoxPaths& paths) {
  Commands c;
  static const re2::RE2 test_function(R"((?m)^func\s+(Test\w*)\s*\()");
  std::string tests, name;
  re2::StringPiece rest(program.test);
  while (re2::RE2::FindAndConsume(&rest, test_function, &name))
    tests += "{\"" + name + "\", " + name + "},\n";
  std::string driver = support_file("go_driver.go");
  driver.replace(driver.find("//TESTS"), 7, tests);
  driver.replace(driver.find("NONCE"), 5, secrets.nonce);
  c.files = {{"main_test.go", program.code + program.test}, {"driver.go", driver}};
  BoxRequest compile;
  compile.command = {"/bin/sh", paths.tool + "/build.sh", paths.tool, paths.job};
  c.compile = std::move(compile);
  c.run.command = {paths.job + "/program"};
  return c;
}

constexpr const char* kBuildScript = R"(set -e
# Unboxed, the folder is not where it was made.
config="$1/importcfg"
if [ "$1" != /tool ]; then config="$2/importcfg"; sed "s|@/|$1/|" "$1/importcfg" > "$config"; fi
"$1/compile" -o "$2/main.a" -p main -complete -importcfg "$config" \
  -c=2 -nolocalimports -pack "$2/main_test.go" "$2/driver.go"
"$1/link" -o "$2/program" -importcfg "$config" -s -w -buildmode=exe "$2/main.a"
)";

// Everything a program may import, by the go command, which also says where the archives are:
// those of the standard library come with Debian's package (1.19), the rest into our folder.
constexpr const char* kMakeTool = R"(set -e
cd /tmp
export GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE="$1/cache" CGO_ENABLED=0 GOFLAGS=-p=2
go list -export -deps -f '{{if .Export}}packagefile {{.ImportPath}}={{.Export}}{{end}}' \
  std github.com/stretchr/testify/assert > "$1/importcfg"
if [ "$1" != /tool ]; then sed -i "s|=$1/|=@/|" "$1/importcfg"; fi
tools=$(go env GOTOOLDIR)
ln -s "$tools/compile" "$1/compile"
ln -s "$tools/link" "$1/link"
)";

Toolchain find_toolchain() {
  Toolchain found;
  found.version = first_line_of({kGo, "version"});
  if (found.version.empty()) found.packages.emplace_back("golang-go");
  require_file(found, "/usr/share/gocode/src/github.com/stretchr/testify/assert",
               "golang-github-stretchr-testify-dev");
  return found;
}

}  // namespace

Language go_language() {
  Language language;
  language.name = "go";
  language.title = "Go";
  language.find_toolchain = &find_toolchain;
  language.tool_files = {{"build.sh", kBuildScript}, {"make.sh", kMakeTool}};
  language.tool_command = [](const BoxPaths& paths) {
    return std::vector<std::string>{"/bin/sh", paths.tool + "/make.sh", paths.tool};
  };
  language.assemble = &assemble;
  language.commands = &commands;
  return language;
}

}  // namespace evalrun::evaluators
