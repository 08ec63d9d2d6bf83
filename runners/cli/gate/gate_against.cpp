#include "runners/cli/gate/gate_against.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <filesystem>

#include "runners/cli/command_line.h"
#include "runners/cli/gate/gate_environment.h"
#include "runners/cli/gate/other_program.h"
#include "runners/cli/gate/temporary_folder.h"
#include "runners/cluster/command_output.h"

namespace evalrun::cli {
namespace {

// One session.
void measure(const std::string& program, std::vector<std::string> words, const std::string& log) {
  words.insert(words.begin(), {program, "run"});
  const int status = std::system((shell_line(words) + " > " + shell_line({log}) + " 2>&1").c_str());
  require_measured(words, runners::exit_code_of_status(status), log);
}

// Sessions one after the other, each a process that measures everything.
GateOutcome check_in_turns(const AgainstRequest& request) {
  const TemporaryFolder folder("against");
  struct Build {
    std::string program, database;
    std::vector<int64_t> runs;
  };
  Build builds[] = {{request.program, folder.file("other.db"), {}},
                    {own_program(), folder.file("this.db"), {}}};
  const int per_look = request.sessions.value_or(kInTurnsBudget.sessions);
  reports::GateOptions gate = request.gate;
  gate.looks = 1 + request.max_extra_runs.value_or(kInTurnsBudget.extra_runs);
  GateOutcome outcome;
  outcome.baseline = request.program;
  outcome.way = GateWay::kTurns;
  outcome.baseline_run = outcome.run_id = 1;  // new databases: sessions are their runs 1, 2, ...
  for (int session = 0;;) {
    for (int i = 0; i < per_look; ++i, ++session)
      for (int turn = 0; turn < 2; ++turn) {
        Build& build = builds[(session + turn) % 2];
        std::vector<std::string> words = request.arguments;
        words.insert(words.end(), {"--no-resume", "--db", build.database, "--label",
                                   fmt::format("session {}", session + 1)});
        spdlog::info("session {} of {}", session + 1, build.program);
        measure(build.program, words, folder.file("log"));
        build.runs.push_back(static_cast<int64_t>(build.runs.size()) + 1);
      }
    gate.look = outcome.looks;
    // The other build may write an older schema: opening for writing takes it along.
    const results::ResultStore other(builds[0].database), current(builds[1].database);
    outcome.result =
        reports::evaluate_gate({other, builds[0].runs}, {current, builds[1].runs}, gate);
    ++outcome.looks;
    outcome.sessions = session;
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

}  // namespace

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

GateOutcome check_against(const AgainstRequest& request) {
  if (auto outcome = check_in_lock_step(request)) return std::move(*outcome);
  if (!request.fault.empty())
    throw base::usage_error(
        fmt::format("--against: '{}' cannot be told when to measure (--lock-step): it is older",
                    request.program),
        "a fault is planted in lock step only; name a build from 1.1 on");
  spdlog::warn(
      "{} is older and cannot be told when to measure: whole sessions take turns instead of "
      "prompts, which needs a quieter machine",
      request.program);
  return check_in_turns(request);
}

}  // namespace evalrun::cli
