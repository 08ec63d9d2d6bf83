// `evalrun cluster` without a scheduler, and with programs that answer like one.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/e2e/program.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ClusterCommand : public ::testing::Test {
 protected:
  // With `programs` before everything else on the PATH, and nothing of a real Slurm.
  ProgramResult run(const std::string& arguments) {
    return run_command_in(folder_, {"sh", "-c",
                                    "PATH=" + folder_.file("bin") + ":/usr/no-slurm " +
                                        EVALRUN_PROGRAM + " cluster " + arguments});
  }
  void program(const std::string& name, const std::string& script) {
    folder_.write_program("bin/" + name, "#!/bin/sh\n" + script);
  }
  TempFolder folder_;
};

constexpr const char* kSubmit = "submit --shards 3 --folder run -- ci --methods ar,pld";

TEST_F(ClusterCommand, NoSlurm) {
  const ProgramResult result = run(kSubmit);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("'sbatch' is not on the PATH"));
  EXPECT_THAT(result.err, HasSubstr("evalrun merge"));
  // The folder is free for another attempt.
  program("sbatch", "echo 7\n");
  EXPECT_EQ(run(kSubmit).exit_code, 0);
}

TEST_F(ClusterCommand, ARefusalIsPassedOn) {
  program("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1\n");
  const ProgramResult result = run(kSubmit);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("Invalid account"));
}

TEST_F(ClusterCommand, WordsOfTheRunAreCheckedBefore) {
  const auto refused = [&](const std::string& words, const std::string& named) {
    const ProgramResult result = run("submit --shards 2 --folder run -- " + words);
    EXPECT_EQ(result.exit_code, 2) << words << result.err;
    EXPECT_THAT(result.err, HasSubstr(named));
    EXPECT_FALSE(std::filesystem::exists(folder_.file("run/cluster.json")));
  };
  refused("no-such-suite", "no-such-suite");
  refused("ci --no-such-option", "--no-such-option");
  refused("ci --db r.db", "--db is given to each shard");
  refused("ci --shard=1/2", "--shard is given to each shard");
  refused("ci --plan", "--plan measures nothing");
  refused("ci -n 8,16", "--max-new names several values");
}

TEST_F(ClusterCommand, DryRunDoesNothing) {
  const ProgramResult result =
      run("submit --dry-run --shards 3 --folder run --option=--partition=gpu -- ci --label 'a b' "
          "-m model.gguf --methods ar,pld -n 8");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("sbatch --parsable"));
  EXPECT_THAT(result.out, HasSubstr("--partition=gpu"));
  EXPECT_THAT(result.out, HasSubstr("ci --label 'a b'"));
  EXPECT_THAT(result.out, HasSubstr("run/evalrun.sbatch is not there yet"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("run")));
}

TEST_F(ClusterCommand, MissingShardsAndTheRemedy) {
  program("sbatch", "echo 7\n");
  ASSERT_EQ(run(kSubmit).exit_code, 0);
  program("squeue",
          "printf '1|FAILED|NonZeroExitCode|n1\\n2|TIMEOUT|TimeLimit|n2\\n3|RUNNING|None|n3\\n'\n");
  folder_.write("run/logs/1.log", "error: model.gguf is not there\n");
  const ProgramResult status = run("status run");
  EXPECT_EQ(status.exit_code, 7);
  EXPECT_THAT(status.out, HasSubstr("0 of 3 shards complete, 1 running, 2 failed"));
  EXPECT_THAT(status.err, HasSubstr("model.gguf is not there"));
  EXPECT_THAT(status.err, HasSubstr("TIMEOUT"));
  EXPECT_THAT(status.err, HasSubstr("evalrun cluster resubmit"));
  const ProgramResult words = run("resubmit run --dry-run");
  EXPECT_THAT(words.out, HasSubstr("--array=1-2 "));
  EXPECT_THAT(words.out, HasSubstr("EVALRUN_CLUSTER_SHARDS=3"));

  program("sbatch", "echo 8\n");
  EXPECT_EQ(run("resubmit run").exit_code, 0);
  program("squeue",
          "case \"$*\" in *=8*) printf '1|PENDING|Priority|\\n2|PENDING|Priority|\\n' ;; "
          "*) printf '3|RUNNING|None|n3\\n' ;; esac\n");
  const ProgramResult again = run("resubmit run");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing is missing"));
}

TEST_F(ClusterCommand, AFolderOfNothing) {
  for (const char* command : {"status nowhere", "resubmit nowhere", "collect nowhere"}) {
    const ProgramResult result = run(command);
    EXPECT_EQ(result.exit_code, 7) << command;
    EXPECT_THAT(result.err, HasSubstr("no cluster.json"));
  }
}

TEST_F(ClusterCommand, TheFolderIsTakenOnce) {
  program("sbatch", "echo 7\n");
  ASSERT_EQ(run(kSubmit).exit_code, 0);
  const ProgramResult twice = run(kSubmit);
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("holds a run already"));
}

// What a task runs, without a scheduler: the store's folders are where the program looks for them.
TEST_F(ClusterCommand, ATaskReadsEveryFolderOfTheStore) {
  for (const char* kind : {"models", "corpora", "adapters", "data"}) {
    std::filesystem::create_directories(folder_.file("store/" + std::string(kind)));
    folder_.write("store/" + std::string(kind) + "/of_" + kind, "");
  }
  program("evalrun",
          R"(ls "$EVALRUN_HOME/models" "$EVALRUN_HOME/corpora" "$EVALRUN_ADAPTERS" "$EVALRUN_DATA"
echo "$@"
)");
  const ProgramResult result = run_command_in(
      folder_, {"env", "SLURM_ARRAY_JOB_ID=7", "SLURM_ARRAY_TASK_ID=2", "SLURM_ARRAY_TASK_COUNT=3",
                "EVALRUN_CLUSTER_PROGRAM=" + folder_.file("bin/evalrun"),
                "EVALRUN_CLUSTER_STORE=" + folder_.file("store"),
                "EVALRUN_CLUSTER_FOLDER=" + folder_.file("job"),
                "EVALRUN_CLUSTER_LOCAL=" + folder_.file("local"), "bash",
                EVALRUN_SOURCE_DIR "/scripts/slurm/evalrun.sbatch", "ci"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* kind : {"models", "corpora", "adapters", "data"})
    EXPECT_THAT(result.out, HasSubstr(std::string("of_") + kind));
  EXPECT_THAT(result.out, HasSubstr("run ci --shard 2/3 --copy-to "));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("store/corpora/of_corpora"))) << "only read";
}

}  // namespace
}  // namespace evalrun::tests
