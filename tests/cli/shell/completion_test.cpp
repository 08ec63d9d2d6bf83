// Completions of three shells: whole, and what bash makes of its script.
#include <algorithm>

#include "tests/cli/shell/command_list.h"

namespace evalrun::tests {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Words = std::vector<std::string>;

class Completion : public CommandTest {
 protected:
  // The file of the script.
  std::string write_script(const std::string& shell) {
    const ProgramResult result = run({"completion", shell});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return folder_.write("script." + shell, result.out);
  }
  // What bash offers for the last of the words.
  Words offered(const Words& words) {
    const std::string script = write_script("bash");
    std::string line;
    for (const std::string& word : words) line += " '" + word + "'";
    const ProgramResult result = run_command_in(
        folder_, {"bash", "-c",
                  fmt::format("compopt() {{ :; }}; complete() {{ :; }}; source '{}'; "
                              "COMP_WORDS=({}); COMP_CWORD={}; _evalrun; "
                              "printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                              script, line, words.size() - 1)});
    EXPECT_EQ(result.err, "");
    Words found;
    for (const std::string& l : base::split(result.out, '\n'))
      if (!l.empty()) found.push_back(l);
    return found;
  }
};

TEST_F(Completion, HasEveryCommandAndOption) {
  const auto commands = read_command_list(run({"man", "--list"}).out);
  const std::string bash = base::read_file(write_script("bash"));
  const std::string zsh = base::read_file(write_script("zsh"));
  const std::string fish = base::read_file(write_script("fish"));
  for (const ListedCommand& command : commands) {
    const std::string name = fmt::format("{}", fmt::join(command.words, " "));
    // Options of this command alone: from its name to the next one's.
    const auto part = [&](const std::string& script, const std::string& begin,
                          const std::string& end) {
      const size_t at = script.find(begin);
      EXPECT_NE(at, script.npos) << begin;
      return at == script.npos ? "" : script.substr(at, script.find(end, at) - at);
    };
    const std::string in_bash =
        part(bash, fmt::format("    '{}:-'*) words='", name), " ;;\n") + "'";
    const std::string in_zsh =
        part(zsh, fmt::format("    '{}') choices=(\n      '-", name), ") ;;\n");
    std::string in_fish;
    for (const std::string& line : base::split(fish, '\n'))
      if (line.find(fmt::format("__evalrun_is '{}'\"", name)) != line.npos) in_fish += line + "\n";
    for (const ListedOption& option : command.options) {
      if (!option.named()) continue;
      for (const std::string& o : option.names) {
        EXPECT_TRUE(in_bash.find(o + " ") != in_bash.npos || in_bash.find(o + "'") != in_bash.npos)
            << name << " " << o;
        EXPECT_THAT(in_zsh, HasSubstr("'" + o + ":"));
        EXPECT_THAT(in_fish, HasSubstr(o.starts_with("--") ? " -l " + o.substr(2) + " "
                                                           : " -s " + o.substr(1) + " "));
      }
    }
  }
}

TEST_F(Completion, ScriptsAreRight) {
  EXPECT_EQ(run_command_in(folder_, {"bash", "-n", write_script("bash")}).exit_code, 0);
  for (const char* shell : {"zsh", "fish"}) {  // where they are installed
    const ProgramResult result =
        run_command_in(folder_, {"sh", "-c",
                                 fmt::format("command -v {0} >/dev/null || exit 0; {0} -n '{1}'",
                                             shell, write_script(shell))});
    EXPECT_EQ(result.exit_code, 0) << shell << result.err;
  }
  expect_refused(run({"completion", "tcsh"}), 2, "shell");
}

TEST_F(Completion, CommandsOptionsAndChoices) {
  EXPECT_THAT(offered({"evalrun", ""}), AllOf(Contains("run"), Contains("completion")));
  EXPECT_THAT(offered({"evalrun", "base"}), ElementsAre("baseline"));
  EXPECT_THAT(offered({"evalrun", "baseline", "ex"}), ElementsAre("export"));
  EXPECT_THAT(offered({"evalrun", "--db", "x.db", "report", "--esti"}), ElementsAre("--estimator"));
  EXPECT_THAT(offered({"evalrun", "report", "--js"}), ElementsAre("--json"));
  EXPECT_THAT(offered({"evalrun", "report", "--estimator", ""}),
              ElementsAre("sum", "geo", "legacy", "legacy-decode"));
  EXPECT_THAT(offered({"evalrun", "report", "--estimator", "=", "g"}), ElementsAre("geo"));
  EXPECT_THAT(offered({"evalrun", "report", "--estimator", "="}),
              ElementsAre("sum", "geo", "legacy", "legacy-decode"));
  EXPECT_THAT(offered({"evalrun", "run", "qu"}), ElementsAre("quick"));
  EXPECT_THAT(offered({"evalrun", "run", "--methods", "ar,med"}), ElementsAre("ar,medusa"));
  EXPECT_THAT(offered({"evalrun", "run", "--tasks", "gsm"}), Contains("gsm8k"));
  EXPECT_THAT(offered({"evalrun", "run", "--methods", "fa"}), ElementsAre("falcon", "fast"));
  EXPECT_THAT(offered({"evalrun", "run", "--dtype", "q4,bf"}), ElementsAre("q4,bf16"));
  EXPECT_THAT(offered({"evalrun", "check", "--dtype", "bf"}), ElementsAre("bf16"));
  EXPECT_THAT(offered({"evalrun", "list", "meth"}), ElementsAre("methods"));
  EXPECT_THAT(offered({"evalrun", "run", "--isa", "port"}), ElementsAre("portable"));
  // Files are the shell's own.
  EXPECT_THAT(offered({"evalrun", "run", "-m", ""}), IsEmpty());
  EXPECT_THAT(offered({"evalrun", "report", "--estimator", "-"}), Not(Contains("--json")));
}

}  // namespace
}  // namespace evalrun::tests
