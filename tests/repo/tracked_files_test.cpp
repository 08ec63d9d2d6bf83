// What is committed: size, words and flags that must not be there, format.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "tests/repo/source_tree.h"

namespace evalrun::tests {
namespace {

using ::testing::IsEmpty;

// Written in two parts so that this file does not find itself.
struct Forbidden {
  std::string pattern;
  std::string part;  // of every match: lines without it need no regular expression
  std::string why;
};
std::vector<Forbidden> forbidden() {
  return {
      {std::string("-march=") + "native", "native", "instruction sets are chosen at run time"},
      {std::string("-mtune=") + "native", "native", "instruction sets are chosen at run time"},
      {std::string("-ffast") + "-math", "fast",
       "reordered sums would make a row's bits depend on its path"},
      {std::string("-O") + "fast", "fast", "implies reordered floating-point sums"},
      {std::string("-funsafe-math") + "-optimizations", "unsafe", "reordered floating-point sums"},
      {std::string("\\bTO") + "DO\\b", "DO", "unfinished work belongs into an issue"},
      {std::string("\\bFIX") + "ME\\b", "ME", "unfinished work belongs into an issue"},
      {std::string("#pragma STDC FP_") + "CONTRACT ON", "CONTRACT", "see -ffp-contract in cmake/"},
      // Notes that no reader of the repository has: name the paper and its section.
      {std::string("\\bmethods_") + "(seed|baselines)", "methods_",
       "a document outside the repository"},
      {std::string("\\b(architecture|statistics|seeds|cuda)_") + "review\\b", "_review",
       "a document outside the repository"},
      // A reader cannot know what a letter stands for.
      {std::string("\\b[Rr]ule") + "s? [GXSM]\\b", "ule",
       "rules of verification have names: methods/verifier.h"},
  };
}

// Folders where people keep their own things; what is under /usr, /etc or /proc is on every Linux.
const std::vector<std::string> kForeignFolders = {"home",  "root",      "Users",    "mnt",
                                                  "media", "opt",       "srv",      "scratch",
                                                  "work",  "workspace", "data/home"};
const std::regex kForeignPath(fmt::format(R"((^|[\s"'=(`])/({})/[\w.-])",
                                          fmt::join(kForeignFolders, "|")));

bool has_foreign_path(const std::string& line) {
  // Most lines name no such folder, and finding that out is quick.
  return std::ranges::any_of(kForeignFolders,
                             [&](const std::string& folder) {
                               return line.find("/" + folder + "/") != line.npos;
                             }) &&
         std::regex_search(line, kForeignPath);
}

bool is_text(const std::string& file) {
  static const std::set<std::string> extensions = {".h",  ".cpp", ".cu", ".cuh", ".txt",  ".cmake",
                                                   ".md", ".sql", ".py", ".sh",  ".json", ""};
  return extensions.count(std::filesystem::path(file).extension().string()) == 1;
}

// Data of tests and the built-in prompts may contain any text.
bool is_data(const std::string& file) {
  return file.rfind("tests/data/", 0) == 0 || file == "LICENSE" ||
         file.find("/samples") != std::string::npos;
}

std::vector<std::string> forbidden_in(const std::string& file, std::string_view text) {
  static const std::vector<Forbidden> all = forbidden();
  static const std::vector<std::regex> patterns = [] {
    std::vector<std::regex> compiled;
    for (const Forbidden& f : all) compiled.emplace_back(f.pattern);
    return compiled;
  }();
  std::vector<std::string> found;
  int number = 0;
  for (const std::string& line : base::split(text, '\n')) {
    ++number;
    std::smatch match;
    for (size_t i = 0; i < all.size(); ++i)
      if (line.find(all[i].part) != line.npos && std::regex_search(line, match, patterns[i]))
        found.push_back(fmt::format("{}:{}: '{}': {}", file, number, match.str(), all[i].why));
    if (has_foreign_path(line))
      found.push_back(fmt::format("{}:{}: '{}' looks like a path of one machine", file, number,
                                  std::string(base::trim(line))));
  }
  return found;
}

// Lines of comment that stand twice in succession: what moves and reflowing leave behind.
std::vector<std::string> repeated_comments(const std::string& file, std::string_view text) {
  static const std::regex comment(R"(\s*(//|#|--)\s.*\w\s\w.*)");
  std::vector<std::string> found;
  std::string previous;
  int number = 0;
  for (const std::string& line : base::split(text, '\n')) {
    ++number;
    if (line == previous && std::regex_match(line, comment))
      found.push_back(fmt::format("{}:{}: twice: {}", file, number, std::string(base::trim(line))));
    previous = line;
  }
  return found;
}

class TrackedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    files_ = tracked_files();
    if (files_.empty()) GTEST_SKIP() << "not a git checkout, so what is tracked is unknown";
  }
  std::vector<std::string> files_;
};

TEST_F(TrackedFiles, AreSmall) {
  constexpr uintmax_t kMiB = 1024 * 1024;
  uintmax_t total = 0, adapters = 0;
  for (const std::string& file : files_) {
    const uintmax_t size = std::filesystem::file_size(absolute(file));
    const bool adapter = file.starts_with("methods/adapters/");  // trained weights
    EXPECT_LE(size, (adapter ? 8 : 2) * kMiB) << file << ": too large for the repository";
    total += size;
    if (adapter) adapters += size;
  }
  EXPECT_LE(adapters, 32 * kMiB);
  EXPECT_LT(total, 48 * kMiB);
}

TEST_F(TrackedFiles, AreNotProducts) {
  static const std::set<std::string> products = {".o",   ".a",   ".so",   ".db",  ".log",
                                                 ".pyc", ".whl", ".orig", ".rej", ".swp"};
  for (const std::string& file : files_)
    EXPECT_EQ(products.count(std::filesystem::path(file).extension().string()), 0u) << file;
}

TEST_F(TrackedFiles, HoldNothingForbidden) {
  for (const std::string& file : files_) {
    if (!is_text(file) || is_data(file)) continue;
    EXPECT_THAT(forbidden_in(file, base::read_file(absolute(file))), IsEmpty());
  }
}

TEST_F(TrackedFiles, RepeatNoLineOfComment) {
  for (const std::string& file : files_) {
    if (!is_text(file) || is_data(file)) continue;
    EXPECT_THAT(repeated_comments(file, base::read_file(absolute(file))), IsEmpty());
  }
}

// Tests run beside each other: a path that two of them share is truncated by one while the other
// reads it.
TEST_F(TrackedFiles, TestsHaveFoldersOfTheirOwn) {
  const std::regex shared(
      "TempDir"
      R"(\(\))"
      "|temp_directory_"
      "path");
  for (const std::string& file : files_) {
    if (!file.starts_with("tests/") || file == "tests/temp_folder.h" || !is_text(file)) continue;
    const std::string text = base::read_file(absolute(file));
    EXPECT_FALSE(std::regex_search(text, shared)) << file << ": use tests/temp_folder.h";
  }
}

TEST_F(TrackedFiles, TextEndsWithANewline) {
  for (const std::string& file : files_) {
    if (!is_text(file) || is_data(file)) continue;
    const std::string text = base::read_file(absolute(file));
    EXPECT_TRUE(text.empty() || text.back() == '\n') << file << ": no newline at the end";
    EXPECT_EQ(text.find("\r\n"), std::string::npos) << file << ": Windows line ends";
  }
}

// A string that opens with a statement.
bool asks_the_store(std::string_view source) {
  for (const char* statement :
       {"SELECT", "INSERT", "UPDATE", "DELETE FROM", "CREATE", "PRAGMA", "ATTACH", "WITH"})
    if (source.find(fmt::format("\"{} ", statement)) != source.npos) return true;
  return false;
}

// Commands ask by name (results/queries.h). Reports too, but for figures of their own that must be
// fast: no file joins these.
TEST_F(TrackedFiles, HoldNoSqlOutsideOfResults) {
  static const std::set<std::string> reports = {
      "reports/data/generations.cpp",    "reports/data/load_run.cpp",
      "reports/gate/gate_output.cpp",    "reports/gate/gate_quality.cpp",
      "reports/compare/history.cpp",     "reports/html/timeline.cpp",
      "reports/predict/step_costs.cpp",  "reports/predict/step_trace.cpp",
      "reports/figures/conditions.cpp",  "reports/figures/gpu_use.cpp",
      "reports/figures/quality.cpp",     "reports/figures/report.cpp",
      "reports/figures/row_builder.cpp", "reports/figures/run_counts.cpp"};
  std::set<std::string> found;
  for (const std::string& file : files_) {
    const bool source = file.ends_with(".cpp") || file.ends_with(".h") || file.ends_with(".cu");
    if (!source || file.starts_with("results/") || file.starts_with("tests/")) continue;
    if (asks_the_store(base::read_file(absolute(file)))) found.insert(file);
  }
  EXPECT_EQ(found, reports);
}

TEST(Sql, IsSeen) {
  EXPECT_TRUE(asks_the_store("store.query(\n    \"SELECT id FROM run\", {}, f);"));
  EXPECT_TRUE(asks_the_store("s = \"SELECT id FROM run\";"));
  EXPECT_TRUE(asks_the_store("store_.execute(\"DELETE FROM run\");"));
  EXPECT_FALSE(asks_the_store("find_run_row(store, id); // SELECT a run"));
  EXPECT_FALSE(asks_the_store("help = \"Select runs\";"));
}

// A Markdown text less its blocks of code.
std::string without_code(const std::string& text) {
  std::string rest;
  bool code = false;
  for (const std::string& line : base::split(text, '\n')) {
    const bool fence = line.starts_with("```");
    if (!code && !fence) rest += line + "\n";
    if (fence) code = !code;
  }
  return rest;
}

// Links between our own documents lead somewhere.
TEST_F(TrackedFiles, DocumentLinksResolve) {
  static const std::regex link(R"(\]\(([^)#:]+)(#[^)]*)?\))");  // a colon means another site
  int links = 0;
  for (const std::string& file : files_) {
    if (std::filesystem::path(file).extension() != ".md" || is_data(file)) continue;
    const std::string text = without_code(base::read_file(absolute(file)));
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it, ++links) {
      const std::filesystem::path folder = std::filesystem::path(absolute(file)).parent_path();
      EXPECT_TRUE(std::filesystem::exists(folder / (*it)[1].str())) << file << ": " << it->str();
    }
  }
  EXPECT_GT(links, 10);
}

// The scanner itself sees what it exists for, and lets ordinary text pass.
TEST(ForbiddenText, IsSeen) {
  EXPECT_EQ(
      forbidden_in("a.cmake", std::string("x\nadd_compile_options(-march=") + "native)").size(),
      1u);
  EXPECT_EQ(forbidden_in("a.cpp", std::string("// TO") + "DO: later").size(), 1u);
  EXPECT_EQ(forbidden_in("a.h", std::string("// as in methods_") + "baselines 9").size(), 1u);
  EXPECT_EQ(forbidden_in("a.md", std::string("| best choices, ru") + "le X |").size(), 1u);
  EXPECT_EQ(forbidden_in("a.h", std::string("(ru") + "les S and M)").size(), 1u);
  EXPECT_THAT(forbidden_in("a.md", "this rule says so, rules Xenon"), IsEmpty());
  EXPECT_EQ(forbidden_in("a.cpp", std::string("open(\"/ho") + "me/someone/data\")").size(), 1u);
  EXPECT_THAT(
      forbidden_in("a.md", "see /usr/share/doc and https://example.org/home/page, 1 / 2 /3"),
      IsEmpty());
  EXPECT_THAT(forbidden_in("a.cpp", "// the last / outermost/ node; s/x/y/"), IsEmpty());
}

TEST(RepeatedComments, AreSeen) {
  EXPECT_EQ(repeated_comments("a.h", "// one line\n// one line\n").size(), 1u);
  EXPECT_EQ(repeated_comments("a.py", "    # one line\n    # one line\n").size(), 1u);
  EXPECT_THAT(repeated_comments("a.h", "x;  // one line\n// one line\n//\n//\n  f(1);\n  f(1);\n"),
              IsEmpty());
}

TEST_F(TrackedFiles, AreFormatted) {
  const auto version = run_command("clang-format --version");
  if (version.exit_code != 0) GTEST_SKIP() << "clang-format is not installed";
  if (version.output.find("version 14.") == std::string::npos)
    GTEST_SKIP() << "formatting differs between versions; ours is clang-format 14";
  std::string sources;
  for (const std::string& file : files_) {
    const std::string extension = std::filesystem::path(file).extension().string();
    if (extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh")
      sources += " '" + file + "'";
  }
  // Every complaint opens with "path:line:column: error:".
  const auto result = run_command("clang-format --dry-run -Werror" + sources);
  std::set<std::string> bad;
  for (const std::string& line : base::split(result.output, '\n'))
    if (line.find(": error: code should be clang-formatted") != std::string::npos)
      bad.insert(line.substr(0, line.find(':')));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(bad, IsEmpty()) << "clang-format -i on these files fixes it";
}

TEST_F(TrackedFiles, ShellScriptsPassShellcheck) {
  if (run_command("shellcheck --version").exit_code != 0)
    GTEST_SKIP() << "shellcheck is not installed";
  std::string list;
  for (const std::string& file : files_)
    if (std::filesystem::path(file).extension() != ".md" &&
        base::read_file(absolute(file)).substr(0, 40).find("bash") != std::string::npos)
      list += " '" + file + "'";
  ASSERT_NE(list.find("scripts/test"), std::string::npos);
  const auto result = run_command("shellcheck -x" + list);
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

// The program's version stands in two texts as well.
TEST_F(TrackedFiles, NameTheVersion) {
  const std::string root = EVALRUN_SOURCE_DIR "/";
  const std::string project = base::read_file(root + "CMakeLists.txt");
  std::smatch version;
  ASSERT_TRUE(std::regex_search(project, version, std::regex(R"(VERSION (\d+\.\d+\.\d+) )")));
  const std::string citation = base::read_file(root + "CITATION.cff");
  EXPECT_NE(citation.find("version: " + version.str(1) + "\n"), citation.npos);
  const std::string changes = base::read_file(root + "CHANGELOG.md");
  EXPECT_NE(changes.find("## " + version.str(1) + "\n"), changes.npos);
}

// Tests that docs/stability.md names exist: `Suite.Name`, or `Suite.*`.
TEST_F(TrackedFiles, PromisesNameTestsThatExist) {
  std::string tests;
  for (const std::string& file : files_)
    if (file.starts_with("tests/") && file.ends_with("_test.cpp"))
      tests += base::read_file(absolute(file));
  static const std::regex name(R"(`([A-Z]\w*[a-z]\w*)\.(\w+|\*)`)");
  const std::string page = base::read_file(EVALRUN_SOURCE_DIR "/docs/stability.md");
  int named = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), name), end; it != end; ++it, ++named) {
    const std::string suite = (*it)[1], test = (*it)[2];
    EXPECT_TRUE(
        std::regex_search(tests, std::regex(fmt::format(R"(TEST(_F|_P)?\({},\s+{})", suite,
                                                        test == "*" ? "\\w+" : test + "\\)"))))
        << it->str();
  }
  EXPECT_GT(named, 8);
}

// The version of the result database stands in two texts as well.
TEST_F(TrackedFiles, NameTheSchemaThatIsWritten) {
  const std::string root = EVALRUN_SOURCE_DIR "/";
  const std::string header = base::read_file(root + "results/store.h");
  std::smatch version;
  ASSERT_TRUE(std::regex_search(header, version, std::regex(R"(kSchemaVersion = (\d+);)")));
  for (const char* file : {"docs/schema.md", "results/schema.sql"})
    EXPECT_NE(base::read_file(root + file).find("schema version " + version.str(1)),
              std::string::npos)
        << file << " does not say schema version " << version.str(1);
}

}  // namespace
}  // namespace evalrun::tests
