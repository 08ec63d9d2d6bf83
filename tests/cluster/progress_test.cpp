// Progress over shards, by hand-computed figures.
#include <gmock/gmock.h>

#include "runners/cluster/cluster_state.h"
#include "runners/cluster/time_left.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `measured` generations of the stored ones by the process that says so, in `seconds`.
ShardStatus status_of(const std::string& state, int planned, int stored, int measured,
                      double seconds) {
  ShardStatus s;
  s.state = state;
  s.planned = planned;
  s.stored = stored;
  s.measured = measured;
  s.seconds = seconds;
  return s;
}

TEST(TimeLeft, TheSlowestRunningShard) {
  // 60 left at 1 s, 30 left at 3 s.
  const JobProgress job = progress_of({{status_of("measuring", 100, 40, 40, 40), true},
                                       {status_of("measuring", 100, 70, 10, 30), true}});
  EXPECT_EQ(job.planned, 200);
  EXPECT_EQ(job.stored, 110);
  EXPECT_FALSE(job.estimated);
  EXPECT_DOUBLE_EQ(job.seconds_left.value(), 90);
}

TEST(TimeLeft, WaitingShardsTakeTheFirstFreePlace) {
  // Pace 1 s. Two places, free after 10 s and 50 s; two shards of 100 wait, as long as the mean.
  const JobProgress job = progress_of({{status_of("measuring", 100, 90, 90, 90), true},
                                       {status_of("measuring", 100, 50, 50, 50), true},
                                       {std::nullopt, false},
                                       {std::nullopt, false}});
  EXPECT_TRUE(job.estimated);
  EXPECT_EQ(job.planned, 400);
  // 10 + 100 and 50 + 100.
  EXPECT_DOUBLE_EQ(job.seconds_left.value(), 150);
}

TEST(TimeLeft, UnknownWhereNothingRunsOrWasMeasured) {
  EXPECT_FALSE(progress_of({{status_of("measuring", 10, 0, 0, 0), true}}).seconds_left);
  EXPECT_FALSE(progress_of({{status_of("stopped", 10, 5, 5, 5), false}}).seconds_left);
  EXPECT_FALSE(progress_of(std::vector<ShardProgress>{}).seconds_left);
}

class StateOfShards : public ::testing::Test {
 protected:
  StateOfShards() : folder_(temp_.file("run")) {
    plan_.scheduler = "slurm";
    plan_.shards = 3;
    folder_.create(plan_);
  }
  void say(int shard, const ShardStatus& status) {
    write_status(status_path(folder_.database(shard, 3)), status);
  }
  tests::TempFolder temp_;
  ClusterFolder folder_;
  ClusterPlan plan_;
};

TEST_F(StateOfShards, WhatIsMissingAndWhy) {
  say(1, status_of("complete", 10, 10, 10, 5));
  temp_.write("run/logs/2.log", "info: hello\nerror: model.gguf: is not there\n  hint: fetch it\n");
  const std::vector<ShardView> views =
      shard_views(folder_, plan_,
                  {{1, {TaskPhase::kFailed, "FAILED", "NonZeroExitCode", "n1"}},
                   {2, {TaskPhase::kFailed, "FAILED", "NonZeroExitCode", "n1"}},
                   {3, {TaskPhase::kRunning, "RUNNING", "", "n2"}}});
  EXPECT_EQ(views[0].phase, ShardPhase::kComplete) << "whatever its task's exit code";
  EXPECT_EQ(views[1].phase, ShardPhase::kFailed);
  EXPECT_THAT(views[1].why, HasSubstr("error: model.gguf: is not there"));
  EXPECT_THAT(views[1].why, HasSubstr("NonZeroExitCode"));
  EXPECT_THAT(missing_shards(views), ElementsAre(2));
  EXPECT_THAT(progress_line(views), HasSubstr("1 of 3 shards complete, 1 running, 1 failed"));
}

TEST_F(StateOfShards, LostWhereNobodyKnowsIt) {
  say(2, status_of("measuring", 10, 4, 4, 5));
  const std::vector<ShardView> views = shard_views(folder_, plan_, {});
  EXPECT_EQ(views[1].phase, ShardPhase::kLost);
  EXPECT_THAT(missing_shards(views), ElementsAre(1, 2, 3));
  EXPECT_THAT(views[0].why, HasSubstr("neither a log nor a status"));
}

}  // namespace
}  // namespace evalrun::runners
