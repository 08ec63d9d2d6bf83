#include "runners/cli/gate/gate_against.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "engine/base/text.h"
#include "runners/cli/command_line.h"
#include "runners/cli/gate/gate_environment.h"
#include "runners/cli/gate/temporary_folder.h"

namespace evalrun::cli {
namespace {

namespace fs = std::filesystem;
using base::ExitCode;

std::string last_line(const std::string& file) {
  std::string last;
  for (const std::string& line : base::split(base::read_file(file), '\n'))
    if (!base::trim(line).empty()) last = base::trim(line);
  return last;
}

// One session. A generation that failed (exit code 5) is the gate's business.
void measure(const std::string& program, std::vector<std::string> words, const std::string& log) {
  words.insert(words.begin(), {program, "run"});
  const int status = std::system((shell_line(words) + " > " + shell_line({log}) + " 2>&1").c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == 0 || code == static_cast<int>(ExitCode::kCorrectness)) return;
  if (code == static_cast<int>(ExitCode::kInterrupted) || code == 128 + SIGINT)
    throw base::Error(ExitCode::kInterrupted, "interrupted: the check has no verdict",
                      "start it again; it measures anew");
  if (code == 126 || code == 127)
    throw base::usage_error(fmt::format("--against: '{}' cannot be started", program),
                            "name the evalrun of the other build");
  if (code == static_cast<int>(ExitCode::kDevice))
    throw base::Error(ExitCode::kDevice,
                      fmt::format("{}: {}: {}", program, shell_line(words), last_line(log)),
                      "see `evalrun doctor` and the kernel's log (dmesg), then start it again; it "
                      "measures anew");
  throw base::data_error(program, shell_line(words),
                         fmt::format("ended with exit code {}: {}", code, last_line(log)),
                         "run it by hand; both builds must know the suite and its options");
}

}  // namespace

GateOutcome check_against(const AgainstRequest& request) {
  const TemporaryFolder folder("against");
  struct Build {
    std::string program, database;
    std::vector<int64_t> runs;
  };
  Build builds[] = {{request.program, folder.file("other.db"), {}},
                    {fs::read_symlink("/proc/self/exe").string(), folder.file("this.db"), {}}};
  reports::GateOptions gate = request.gate;
  gate.looks = 1 + request.max_extra_runs;
  GateOutcome outcome;
  outcome.baseline = request.program;
  outcome.baseline_run = outcome.run_id = 1;  // new databases: sessions are their runs 1, 2, ...
  for (int session = 0;;) {
    for (int i = 0; i < request.sessions; ++i, ++session)
      for (int turn = 0; turn < 2; ++turn) {
        Build& build = builds[(session + turn) % 2];
        std::vector<std::string> words = request.arguments;
        words.insert(words.end(), {"--no-resume", "--db", build.database, "--label",
                                   fmt::format("session {}", session + 1)});
        spdlog::info("session {} of {}", session + 1, build.program);
        measure(build.program, words, folder.file("log"));
        build.runs.push_back(static_cast<int64_t>(build.runs.size()) + 1);
      }
    // The other build may write an older schema: opening for writing takes it along.
    const results::ResultStore other(builds[0].database), current(builds[1].database);
    outcome.result =
        reports::evaluate_gate({other, builds[0].runs}, {current, builds[1].runs}, gate);
    ++outcome.looks;
    if (outcome.looks < gate.looks && outcome.result.more_repeats_help()) continue;
    outcome.code = outcome.result.code;
    outcome.note = fmt::format("{} sessions of each build, in turns", builds[1].runs.size());
    std::vector<MeasuredRun> measured;
    for (const int64_t run : builds[1].runs) {
      measured.push_back({other, run, fmt::format("session {}, other build", run)});
      measured.push_back({current, run, fmt::format("session {}, this build", run)});
    }
    judge_environment(measured, outcome);
    return outcome;
  }
}

}  // namespace evalrun::cli
