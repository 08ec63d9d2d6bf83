#include "runners/cluster/cluster_folder.h"

#include <gmock/gmock.h>

#include <fstream>

#include "engine/base/error.h"
#include "runners/cluster/shard_status.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

using ::testing::HasSubstr;

ClusterPlan a_plan() {
  ClusterPlan plan;
  plan.scheduler = "slurm";
  plan.shards = 8;
  plan.program = "/usr/bin/evalrun";
  plan.words = {"ci", "--label", "two words"};
  plan.options = {"--partition=gpu"};
  plan.store = "/shared/store";
  plan.jobs = {{"11", {1, 2, 3, 4, 5, 6, 7, 8}}, {"12", {3}}};
  return plan;
}

std::string refusal_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const base::Error& e) {
    return e.what();
  }
  return "";
}

TEST(ClusterFolder, KeepsThePlan) {
  const tests::TempFolder temp;
  const ClusterFolder folder(temp.file("run"));
  folder.create(a_plan());
  EXPECT_EQ(folder.load(), a_plan());
}

TEST(ClusterFolder, IsNotTakenTwice) {
  const tests::TempFolder temp;
  const ClusterFolder folder(temp.file("run"));
  folder.create(a_plan());
  EXPECT_THAT(refusal_of([&] { folder.create(a_plan()); }), HasSubstr("evalrun cluster resubmit"));
}

TEST(ClusterFolder, RefusesWhatIsNone) {
  const tests::TempFolder temp;
  EXPECT_THAT(refusal_of([&] { ClusterFolder(temp.path()).load(); }), HasSubstr("no cluster.json"));
  temp.write("cluster.json", "{\"scheduler\": \"slurm\"}");
  EXPECT_THAT(refusal_of([&] { ClusterFolder(temp.path()).load(); }), HasSubstr("shards"));
  temp.write("file", "");
  EXPECT_THAT(refusal_of([&] { ClusterFolder(temp.file("file")).create(a_plan()); }),
              HasSubstr("cannot be made"));
}

TEST(ShardStatus, RoundTrip) {
  const tests::TempFolder temp;
  ShardStatus status;
  status.shard = "3/8";
  status.state = "measuring";
  status.message = "a \"word\"";
  status.host = "n1";
  status.job = "11_3";
  status.planned = 100;
  status.stored = 40;
  status.measured = 30;
  status.failed = 1;
  status.seconds = 12.5;
  status.updated_unix_s = 1700000000;
  const std::string path = status_path(temp.file("3-of-8.db"));
  EXPECT_EQ(path, temp.file("3-of-8.status.json"));
  EXPECT_FALSE(read_status(path));
  write_status(path, status);
  EXPECT_EQ(read_status(path), status);
  std::ofstream(path) << "{";
  EXPECT_THAT(refusal_of([&] { read_status(path); }), HasSubstr("is no status of a shard"));
}

}  // namespace
}  // namespace evalrun::runners
