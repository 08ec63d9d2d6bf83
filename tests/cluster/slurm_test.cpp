// A job array on a real Slurm of two nodes on the loopback address: a task is killed, another is
// told to end, a third is cancelled and submitted again; the merged run is that of one machine.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/text.h"
#include "tests/e2e/program.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kPrompts = 90, kMaxNew = 96;

bool on_path(const std::string& program) {
  for (const std::string& folder : base::split(std::getenv("PATH"), ':'))
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

std::string why_no_slurm() {
  for (const char* program : {"slurmctld", "slurmd", "sbatch", "munged"})
    if (!on_path(program))
      return fmt::format("no Slurm: {} is not installed (slurmctld slurmd slurm-client munge)",
                         program);
  if (::geteuid() != 0) return "no Slurm: its daemons need root";
  return "";
}

bool is_free(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(fd);
  return bound;
}

// The first of three ports that are free on every address. Below those that Linux gives to outgoing
// connections, which could take one until Slurm does.
int free_ports() {
  const int begin = 20'000 + static_cast<int>(::getpid()) % 4'000 * 3;
  for (int port = begin; port < 32'700; port += 3)
    if (is_free(port) && is_free(port + 1) && is_free(port + 2)) return port;
  return begin;
}

// The process of a shard, by the words it was started with. 0 = there is none.
pid_t process_of(const std::string& shard, const std::string& folder) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string words;
    try {
      words = base::read_file(entry.path() / "cmdline");
    } catch (const std::exception&) {
      continue;  // it has ended
    }
    const std::string own = std::string("--shard") + '\0' + shard + '\0';
    if (words.find(own) != std::string::npos && words.find(folder) != std::string::npos &&
        words.find(EVALRUN_PROGRAM) == 0)
      return std::atoi(name.c_str());
  }
  return 0;
}

class SlurmCluster : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_slurm(); !why.empty()) GTEST_SKIP() << why;
    const ProgramResult start = run_command_in(
        folder_, {kScript, "start", folder_.file("slurm"), std::to_string(free_ports())});
    ASSERT_EQ(start.exit_code, 0) << start.err << start.out;
    started_ = true;
    ::setenv("SLURM_CONF", folder_.file("slurm/slurm.conf").c_str(), 1);
    write_prompts(folder_, kPrompts);
  }
  void TearDown() override {
    if (started_) run_command_in(folder_, {kScript, "stop", folder_.file("slurm")});
  }

  std::string slurm(const std::vector<std::string>& words) {
    const ProgramResult result = run_command_in(folder_, words);
    return std::string(base::trim(result.out + result.err));
  }
  template <typename F>
  bool within_seconds(int seconds, const F& f) {
    for (int i = 0; i < 20 * seconds; ++i) {
      if (f()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
  // Slurm makes a requeued task wait for two minutes. A node refuses one that begins within the
  // second in which it was ended there ("credential revoked").
  bool release(const std::string& task) {
    return within_seconds(20, [&] {
      if (slurm({"squeue", "--noheader", "--format=%T", "--jobs=" + task}) != "PENDING")
        return false;
      slurm({"scontrol", "update", "JobId=" + task, "StartTime=now+2"});
      return true;
    });
  }
  std::string local_database(int shard) const {
    for (const auto& entry : fs::directory_iterator(folder_.file("local")))
      if (entry.path().string().ends_with(fmt::format("-{}", shard)))
        return entry.path() / fmt::format("{}-of-3.db", shard);
    return "";
  }
  // Measured by hand while it waits: true once this shard holds a few generations.
  bool under_way(int shard) {
    return within_seconds(20, [&] {
      const std::string db = local_database(shard);
      return !db.empty() && count_stored(db) >= 4 &&
             process_of(fmt::format("{}/3", shard), folder_.path()) != 0;
    });
  }

  static constexpr const char* kScript = EVALRUN_SOURCE_DIR "/tests/cluster/slurm_on_loopback";
  TempFolder folder_;
  bool started_ = false;
};

// Words of a run without "run" and its database.
std::vector<std::string> run_words() {
  std::vector<std::string> words = run_arguments(kMaxNew);
  words.erase(words.begin());
  const auto db = std::find(words.begin(), words.end(), "--db");
  words.erase(db, db + 2);
  return words;
}

TEST_F(SlurmCluster, KilledToldToEndAndCancelled) {
  fs::create_directory(folder_.file("local"));
  std::vector<std::string> submit = {"cluster", "submit",  "--shards", "3",      "--folder",
                                     "job",     "--local", "local",    "--json", "--"};
  const std::vector<std::string> words = run_words();
  submit.insert(submit.end(), words.begin(), words.end());
  const ProgramResult submitted = run_evalrun(folder_, submit);
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const std::string job = nlohmann::json::parse(submitted.out).at("job");
  const auto log = [&](int shard) {
    return base::read_file(folder_.file(fmt::format("job/logs/{}.log", shard)));
  };

  // Two nodes, three tasks: the last one waits, and is taken away.
  slurm({"scancel", job + "_3"});
  ASSERT_TRUE(under_way(1)) << slurm({"squeue", "--array", "--states=all"});
  ASSERT_EQ(::kill(process_of("1/3", folder_.path()), SIGKILL), 0);
  ASSERT_TRUE(under_way(2));
  slurm({"scancel", "--batch", "--signal=TERM", job + "_2"});
  const int before = count_stored(local_database(1));
  ASSERT_TRUE(release(job + "_1")) << log(1);
  ASSERT_TRUE(release(job + "_2")) << log(2);
  EXPECT_THAT(log(1), HasSubstr("ended with code 137: requeued"));
  EXPECT_THAT(log(2), HasSubstr("told to end: requeued"));

  const ProgramResult followed =
      run_evalrun(folder_, {"cluster", "status", "job", "--follow", "--every", "0.3"});
  EXPECT_EQ(followed.exit_code, 7) << "shard 3 is missing" << followed.out;
  // Slurm forgets a task that was cancelled before it began.
  EXPECT_THAT(followed.out, HasSubstr("2 of 3 shards complete, 1 lost"));
  EXPECT_THAT(followed.err, HasSubstr("shard 3 lost: its task left neither a log nor a status"));
  EXPECT_THAT(followed.err, HasSubstr("shard 3 is missing"));
  EXPECT_THAT(log(1), HasSubstr("restart 1"));
  // What was stored before the kill was not measured again.
  const nlohmann::json one = nlohmann::json::parse(folder_.read("job/shards/1-of-3.status.json"));
  EXPECT_LE(one.at("measured").get<int>(), one.at("planned").get<int>() - before);
  // The script cleans up after the run has reported its end.
  EXPECT_TRUE(within_seconds(10, [&] { return !fs::exists(local_database(1)); }))
      << "the node is left clean";

  const ProgramResult gaps =
      run_evalrun(folder_, {"cluster", "collect", "job", "--out", "some.db"});
  EXPECT_NE(gaps.exit_code, 0) << "a third is missing";
  EXPECT_THAT(gaps.err, HasSubstr("evalrun cluster resubmit"));

  const ProgramResult again = run_evalrun(folder_, {"cluster", "resubmit", "job"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("1 shard"));
  const ProgramResult done =
      run_evalrun(folder_, {"cluster", "status", "job", "--follow", "--every", "0.3"});
  EXPECT_EQ(done.exit_code, 0) << done.err << log(3);
  EXPECT_THAT(done.out, HasSubstr("3 of 3 shards complete"));

  const ProgramResult collected =
      run_evalrun(folder_, {"cluster", "collect", "job", "--out", "merged.db"});
  EXPECT_EQ(collected.exit_code, 0) << collected.err;
  const ProgramResult whole = run_evalrun(folder_, run_arguments(kMaxNew));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const StoredRun expected = read_stored(folder_.file("r.db"));
  const StoredRun merged = read_stored(folder_.file("merged.db"));
  ASSERT_EQ(merged.size(), expected.size());
  for (const auto& [cell, generation] : expected)
    EXPECT_TRUE(merged.at(cell).same_output(generation)) << cell.arm << " " << cell.prompt;
  EXPECT_EQ(query_value(folder_.file("merged.db"), "SELECT count(*) FROM run"), "1");
  EXPECT_EQ(check_integrity(folder_.file("merged.db")), "ok");
}

}  // namespace
}  // namespace evalrun::tests
