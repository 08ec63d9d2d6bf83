// Slurm's commands, by a runner that answers as they do. The lines are those of Slurm 22.05.8.
#include <gmock/gmock.h>

#include "engine/base/error.h"
#include "runners/cluster/slurm.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Scripted {
  std::map<std::string, CommandOutput> answers;  // by program
  std::vector<std::vector<std::string>> asked = {};
  std::map<std::string, std::string> variables = {};
  CommandRunner runner() {
    return
        [this](const std::vector<std::string>& words, const std::map<std::string, std::string>& v) {
          asked.push_back(words);
          variables = v;
          const auto answer = answers.find(words.front());
          return answer == answers.end()
                     ? CommandOutput{.exit_code = 0, .found = false, .out = "", .err = ""}
                     : answer->second;
        };
  }
};

CommandOutput prints(std::string out) {
  return {.exit_code = 0, .found = true, .out = std::move(out), .err = ""};
}

ClusterPlan plan_of(int shards) {
  ClusterPlan plan;
  plan.scheduler = "slurm";
  plan.shards = shards;
  plan.program = "/usr/bin/evalrun";
  plan.words = {"ci", "--methods", "ar,pld:k=2", "--label", "two words"};
  plan.options = {"--partition=gpu"};
  plan.local = "/scratch";
  return plan;
}

base::Error error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const base::Error& e) {
    return e;
  }
  return {base::ExitCode::kOk, "no error"};
}

TEST(ArrayText, RangesAndSingleTasks) {
  EXPECT_EQ(array_text({3}), "3");
  EXPECT_EQ(array_text({1, 2, 3, 7, 9, 10}), "1-3,7,9-10");
  EXPECT_EQ(array_text({7, 2, 1, 2}), "1-2,7");
}

TEST(Slurm, SubmitsAnArrayWithTheWordsOfTheRun) {
  Scripted scripted{{{"sbatch", prints("4711;main\n")}}};
  const ClusterFolder folder("/shared/run");
  EXPECT_EQ(Slurm(scripted.runner()).submit(folder, plan_of(4), {2, 3}), "4711");
  EXPECT_THAT(scripted.asked.at(0),
              ElementsAre("sbatch", "--parsable", "--export=ALL", "--array=2-3",
                          "--output=/shared/run/logs/%a.log", "--partition=gpu",
                          "/shared/run/evalrun.sbatch", "ci", "--methods", "ar,pld:k=2", "--label",
                          "two words"));
  EXPECT_EQ(scripted.variables.at("EVALRUN_CLUSTER_SHARDS"), "4")
      << "of the plan, not of this array";
  EXPECT_EQ(scripted.variables.at("EVALRUN_CLUSTER_LOCAL"), "/scratch");
  EXPECT_EQ(scripted.variables.count("EVALRUN_CLUSTER_STORE"), 0u) << "the script's default";
}

TEST(Slurm, SaysThatThereIsNone) {
  Scripted scripted{{}};
  const base::Error e = error_of([&] {
    Slurm(scripted.runner()).submit(ClusterFolder("/shared/run"), plan_of(2), {1, 2});
  });
  EXPECT_EQ(e.code(), base::ExitCode::kEnvironment);
  EXPECT_THAT(e.what(), HasSubstr("'sbatch' is not on the PATH"));
  EXPECT_THAT(e.hint(), HasSubstr("evalrun merge"));
}

TEST(Slurm, SaysWhyItRefuses) {
  Scripted scripted{{{"sbatch",
                      {.exit_code = 1,
                       .found = true,
                       .out = "",
                       .err = "sbatch: error: invalid partition specified: gpu\n"}}}};
  const base::Error e = error_of([&] {
    Slurm(scripted.runner()).submit(ClusterFolder("/shared/run"), plan_of(2), {1, 2});
  });
  EXPECT_THAT(e.message(), HasSubstr("invalid partition specified: gpu"));
  EXPECT_THAT(e.hint(), HasSubstr("--option=--partition=NAME"));
}

TEST(Slurm, StatesOfTasks) {
  ClusterPlan plan = plan_of(4);
  plan.jobs = {{"11", {1, 2, 3, 4}}};
  Scripted scripted{{{"squeue", prints("4|PENDING|Resources|\n"
                                       "2|RUNNING|None|n2\n"
                                       "1|FAILED|NonZeroExitCode|n1\n")},
                     {"sacct", prints("11_1|COMPLETED|0:0|n9\n"
                                      "11_3|OUT_OF_MEMORY|0:125|n1\n")}}};
  const std::map<int, TaskState> states = Slurm(scripted.runner()).states(plan);
  EXPECT_EQ(states.at(1).phase, TaskPhase::kFailed) << "squeue is newer than sacct";
  EXPECT_EQ(states.at(2).phase, TaskPhase::kRunning);
  EXPECT_EQ(states.at(2).node, "n2");
  EXPECT_EQ(states.at(3).phase, TaskPhase::kFailed);
  EXPECT_EQ(states.at(3).name, "OUT_OF_MEMORY");
  EXPECT_EQ(states.at(3).reason, "exit code 0:125");
  EXPECT_EQ(states.at(4).phase, TaskPhase::kWaiting);
  EXPECT_EQ(states.at(4).reason, "Resources");
}

TEST(Slurm, TheLatestJobOfAShardCounts) {
  ClusterPlan plan = plan_of(2);
  plan.jobs = {{"11", {1, 2}}, {"12", {2}}};
  Scripted scripted{{{"squeue", prints("")}}};
  const CommandRunner by_job = [&](const std::vector<std::string>& words,
                                   const std::map<std::string, std::string>&) {
    const bool first = std::find(words.begin(), words.end(), "--jobs=11") != words.end();
    return prints(first ? "1|COMPLETED|None|n1\n2|TIMEOUT|TimeLimit|n2\n" : "2|RUNNING|None|n1\n");
  };
  const std::map<int, TaskState> states = Slurm(by_job).states(plan);
  EXPECT_EQ(states.at(1).phase, TaskPhase::kEnded);
  EXPECT_EQ(states.at(2).phase, TaskPhase::kRunning);
}

TEST(Slurm, ForgottenJobsWithoutAccounts) {
  ClusterPlan plan = plan_of(1);
  plan.jobs = {{"11", {1}}};
  const CommandOutput invalid = {.exit_code = 1,
                                 .found = true,
                                 .out = "",
                                 .err = "slurm_load_jobs error: Invalid job id specified\n"};
  const CommandOutput disabled = {
      .exit_code = 1, .found = true, .out = "", .err = "Slurm accounting storage is disabled\n"};
  Scripted scripted{{{"squeue", invalid}, {"sacct", disabled}}};
  EXPECT_EQ(Slurm(scripted.runner()).states(plan).at(1).phase, TaskPhase::kUnknown);
}

// Or a resubmission would measure shards twice that are being measured.
TEST(Slurm, AControllerThatDoesNotAnswerLosesNothing) {
  ClusterPlan plan = plan_of(1);
  plan.jobs = {{"11", {1}}};
  const CommandOutput busy = {
      .exit_code = 1,
      .found = true,
      .out = "",
      .err = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"};
  Scripted scripted{{{"squeue", busy}, {"sacct", prints("")}}};
  const base::Error e = error_of([&] { Slurm(scripted.runner()).states(plan); });
  EXPECT_EQ(e.code(), base::ExitCode::kEnvironment);
  EXPECT_THAT(e.message(), HasSubstr("Unable to contact slurm controller"));
}

TEST(Slurm, PhasesOfStates) {
  EXPECT_EQ(phase_of("CANCELLED by 1000"), TaskPhase::kFailed);
  EXPECT_EQ(phase_of("COMPLETING"), TaskPhase::kRunning);
  EXPECT_EQ(phase_of("NODE_FAIL"), TaskPhase::kFailed);
  EXPECT_EQ(phase_of("REQUEUED"), TaskPhase::kWaiting);
  EXPECT_EQ(phase_of("A_STATE_OF_TOMORROW"), TaskPhase::kUnknown);
}

TEST(CommandOutput, BothStreamsExitCodeAndVariables) {
  const CommandOutput output =
      run_command({"sh", "-c", "echo out $X; echo err >&2; exit 3"}, {{"X", "a b"}});
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_EQ(output.out, "out a b\n");
  EXPECT_EQ(output.err, "err\n");
  EXPECT_TRUE(output.found);
  EXPECT_FALSE(run_command({"no-such-program-anywhere"}).found);
  EXPECT_EQ(run_command({"sh", "-c", "kill -9 $$"}).exit_code, 128 + 9);
  // More than two pipes hold.
  EXPECT_EQ(run_command({"sh", "-c", "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero"})
                .out.size(),
            300000u);
}

}  // namespace
}  // namespace evalrun::runners
