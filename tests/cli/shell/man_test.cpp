// Man pages, made from the command line itself.
#include <regex>
#include <set>

#include "tests/cli/shell/command_list.h"

namespace evalrun::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

class ManPages : public CommandTest {
 protected:
  void SetUp() override { commands_ = read_command_list(run({"man", "--list"}).out); }
  std::string page_of(const Words& command) {
    Words line = {"man"};
    line.insert(line.end(), command.begin(), command.end());
    const ProgramResult result = run(line);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  std::vector<ListedCommand> commands_;
};

// Dashes are escaped in roff, so that a reader can copy them.
std::string bold(const std::string& name) {
  return "\\fB" + std::regex_replace(name, std::regex("-"), "\\-") + "\\fR";
}

TEST_F(ManPages, ListHasWhatHelpShows) {
  static const std::regex option("  (?:-\\w,)?(--[\\w-]+).*");
  EXPECT_GT(commands_.size(), 30u);
  std::smatch match;
  for (const ListedCommand& command : commands_) {
    Words line = command.words;
    line.push_back("--help");
    std::set<std::string> shown, listed;
    const std::string help = run(line).out;
    for (const std::string& l : base::split(help.substr(0, help.find("Examples:")), '\n'))
      if (std::regex_match(l, match, option)) shown.insert(match[1]);
    for (const ListedOption& o : command.options)
      for (const std::string& name : o.names) listed.insert(name);
    for (const std::string& name : shown) EXPECT_TRUE(listed.contains(name)) << line[0] << name;
  }
}

TEST_F(ManPages, EveryOptionIsOnItsPage) {
  for (const ListedCommand& command : commands_) {
    const std::string page = page_of(command.words);
    for (const char* section :
         {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"})
      EXPECT_THAT(page, HasSubstr(std::string(".SH ") + section + "\n"));
    for (const ListedOption& option : command.options)
      for (const std::string& name : option.names)
        EXPECT_THAT(page, HasSubstr(option.named() ? bold(name) : "\\fI" + name + "\\fR"));
  }
}

TEST_F(ManPages, GroupsVariablesAndExamples) {
  const std::string run_page = page_of({"run"});
  EXPECT_THAT(run_page, HasSubstr("\n.SS Model\n"));
  EXPECT_THAT(run_page, HasSubstr(".SH EXAMPLES\n.nf\nevalrun run quick\n"));
  EXPECT_THAT(run_page, HasSubstr(".SH ENVIRONMENT\n.TP\n\\fBEVALRUN_ISA\\fR\n"));
  EXPECT_THAT(run_page, Not(HasSubstr("Examples:")));
  const std::string program = page_of({});
  EXPECT_THAT(program, HasSubstr("\\fBEVALRUN_DB\\fR"));
  EXPECT_THAT(program, HasSubstr("\n.SS Gate\n"));
  EXPECT_THAT(page_of({"baseline", "save"}), HasSubstr("\\fBevalrun\\-baseline\\fR(1)"));
}

TEST_F(ManPages, ExitCodesAreTheDocumented) {
  const auto numbers = [](const std::string& text, const std::regex& pattern) {
    std::vector<std::string> found;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
      found.push_back((*it)[1]);
    return found;
  };
  std::string page = page_of({"check"});
  page = page.substr(page.find(".SH EXIT STATUS"));
  EXPECT_EQ(numbers(page, std::regex(R"(\\fB(\d+)\\fR)")),
            numbers(base::read_file(EVALRUN_SOURCE_DIR "/docs/exit-codes.md"),
                    std::regex(R"(\n\| (\d+) \|)")));
}

TEST_F(ManPages, AllPagesAndNoWarningOfGroff) {
  ASSERT_EQ(run({"man", "--all", "pages/man1"}).exit_code, 0);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.file("pages/man1")))
    names.insert(entry.path().filename());
  EXPECT_EQ(names.size(), commands_.size());
  EXPECT_TRUE(names.contains("evalrun.1"));
  EXPECT_TRUE(names.contains("evalrun-baseline-save.1"));
  // Where groff is installed; its warnings go to standard error.
  const ProgramResult groff = run_command_in(
      folder_, {"sh", "-c",
                "command -v groff >/dev/null || exit 0; groff -k -man -Tutf8 -ww -z pages/man1/*"});
  EXPECT_EQ(groff.exit_code, 0);
  EXPECT_EQ(groff.err, "");
}

TEST_F(ManPages, Refusals) {
  expect_refused(run({"man", "baselin"}), 2, "unknown command 'baselin'");
  expect_refused(run({"man", "--all", "stdout.txt/x"}), 7, "--all");
  expect_refused(run({"man", "run", "--list"}), 2, "--list");
}

}  // namespace
}  // namespace evalrun::tests
