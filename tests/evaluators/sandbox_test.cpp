// The box itself: what a program sees, how it ends, and what happens where there can be no box.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/base/text.h"
#include "evaluators/sandbox/box.h"
#include "tests/evaluators/code_test.h"
#include "tests/temp_folder.h"

namespace evalrun::tests {
namespace {

namespace fs = std::filesystem;
using evaluators::BoxRequest;
using evaluators::BoxResult;
using evaluators::Sandbox;
using End = BoxResult::End;

BoxRequest shell(const std::string& script) {
  BoxRequest request;
  request.command = {"/bin/sh", "-c", script};
  request.limits.wall_s = 2;
  return request;
}

class Box : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      sandbox_ = Sandbox::open({});
    } catch (const base::Error& error) {
      GTEST_SKIP() << error.message();
    }
    job_ = sandbox_->open_job();
  }
  BoxResult run(const BoxRequest& request) { return sandbox_->run(*job_, request); }

  std::shared_ptr<Sandbox> sandbox_;
  std::unique_ptr<Sandbox::Job> job_;
};

TEST_F(Box, ReportsExitOutputAndControl) {
  BoxRequest request = shell("cat; echo two >&2; printf nonce >&3; exit 7");
  request.input = std::string(100000, 'x').replace(5, 1, 1, '\0');
  request.limits.output_bytes = 200000;
  const BoxResult r = run(request);
  EXPECT_EQ(r.end, End::kExited) << r.problem;
  EXPECT_EQ(r.exit_code, 7);
  EXPECT_EQ(r.out, request.input);
  EXPECT_EQ(r.err, "two\n");
  EXPECT_EQ(r.control, "nonce");
  EXPECT_GT(r.peak_rss, 100000);
  EXPECT_TRUE(r.cpu_ms.has_value());
  EXPECT_LT(r.wall_ms, 2000);
}

TEST_F(Box, ReportsSignalsAndMissingPrograms) {
  const BoxResult killed = run(shell("kill -SEGV $$"));
  EXPECT_EQ(killed.end, End::kSignalled);
  EXPECT_EQ(killed.signal, SIGSEGV);
  BoxRequest request;
  request.command = {"/box/nothing"};
  const BoxResult missing = run(request);
  EXPECT_EQ(missing.end, End::kBroken);
  EXPECT_NE(missing.problem.find("No such file"), std::string::npos) << missing.problem;
}

TEST_F(Box, HasNoRights) {
  BoxRequest request =
      shell("id -u; grep -h Cap /proc/self/status; grep Seccomp: /proc/self/status; ls /");
  request.proc = true;
  const BoxResult r = run(request);
  EXPECT_NE(r.out.substr(0, 2), "0\n");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
    EXPECT_NE(r.out.find(std::string(set) + ":\t0000000000000000"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("Seccomp:\t2"), std::string::npos);
  for (const char* folder : {"home", "root", "var", "sys", "run"})
    EXPECT_EQ(r.out.find(std::string("\n") + folder + "\n"), std::string::npos) << r.out;
}

TEST_F(Box, WallClockEndsIt) {
  const auto begin = std::chrono::steady_clock::now();
  BoxRequest request = shell("sleep 60");
  request.limits.wall_s = 0.3;
  const BoxResult r = run(request);
  EXPECT_EQ(r.end, End::kTimeout);
  EXPECT_GT(r.peak_rss, 100000) << "the largest tree seen, since no report of the end came";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST_F(Box, RunsAfterCompilingHaveTheirOwnClock) {
  BoxRequest request = shell("sleep 0.6; printf C >&3; sleep 60");
  request.compiles_first = true;
  request.compile_wall_s = 5;
  request.limits.wall_s = 0.3;
  const BoxResult r = run(request);
  EXPECT_EQ(r.end, End::kTimeout);
  EXPECT_GE(r.compile_ms, 590);
  EXPECT_GE(r.wall_ms, 890);
  EXPECT_LT(r.wall_ms, 3000);
}

// The box's PID 1 killed from outside: not the program's fault, and not a verdict.
TEST_F(Box, KilledHelperIsASandboxError) {
  BoxResult result;
  std::thread runner([&] { result = run(shell("sleep 60")); });
  // Our child is bubblewrap, its child the box's PID 1.
  const auto child_of = [](const std::string& pid) {
    std::string text;
    for (const auto& task : fs::directory_iterator("/proc/" + pid + "/task")) {
      std::ifstream file(task.path() / "children");
      file >> text;
      if (!text.empty()) break;
    }
    return text;
  };
  for (int i = 0; i < 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::string bwrap = child_of("self");
    const std::string helper = bwrap.empty() ? "" : child_of(bwrap);
    if (helper.empty() || child_of(helper).empty()) continue;
    ::kill(std::atoi(helper.c_str()), SIGKILL);
    break;
  }
  runner.join();
  EXPECT_EQ(result.end, End::kBroken);
}

TEST_F(Box, ManyAtOnce) {
  std::vector<std::thread> threads;
  std::vector<int> codes(8, -1);
  for (size_t i = 0; i < codes.size(); ++i)
    threads.emplace_back([&, i] {
      const auto job = sandbox_->open_job();
      for (int n = 0; n < 3; ++n)
        codes[i] = sandbox_->run(*job, shell(fmt::format("exit {}", i))).exit_code;
    });
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(codes[i], static_cast<int>(i));
}

// Root where user namespaces are off: another way to the same walls.
TEST(BoxWithoutUserNamespaces, HoldsAsWell) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a box without user namespaces";
  std::shared_ptr<Sandbox> sandbox;
  try {
    sandbox = Sandbox::open({}, Sandbox::Kind::kRoot);
  } catch (const base::Error& error) {
    GTEST_SKIP() << error.message();
  }
  const auto job = sandbox->open_job();
  BoxRequest request = shell(
      "id -u; grep -h Cap /proc/self/status; i=0; while [ $i -lt 60 ]; do sleep 9 & i=$((i+1)); "
      "done");
  request.proc = true;
  const BoxResult r = sandbox->run(*job, request);
  EXPECT_EQ(r.out.substr(0, 1), "2") << r.out << r.err << r.problem;
  EXPECT_EQ(r.out.find("Cap") != std::string::npos, true);
  EXPECT_NE(r.out.find("CapInh:\t0000000000000000"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("CapBnd:\t0000000000000000"), std::string::npos) << r.out;
  EXPECT_NE(r.err.find("fork"), std::string::npos) << "the limit of processes did not hold";
}

// Processes of the machine with this word in their command line, or that began with `first`
// besides.
int processes_with(const std::string& word, const std::string& first = "") {
  int n = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line((std::istreambuf_iterator<char>(file)), {});
    n += line.find(word) != std::string::npos && line.starts_with(first) ? 1 : 0;
  }
  return n;
}

// evalrun itself killed: the box goes with it, also without user namespaces, where the signal that
// a parent's death sends is lost with the change of user.
TEST(Killed, NothingIsLeftRunning) {
  for (const auto kind : {Sandbox::Kind::kUserNamespace, Sandbox::Kind::kRoot}) {
    if (kind == Sandbox::Kind::kRoot && ::geteuid() != 0) continue;
    try {
      Sandbox::open({}, kind);
    } catch (const base::Error& error) {
      GTEST_SKIP() << error.message();
    }
    const std::string word = fmt::format("3{}.{}", ::getpid(), static_cast<int>(kind));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto sandbox = Sandbox::open({}, kind);
      const auto job = sandbox->open_job();
      BoxRequest request;
      request.command = {"/bin/sleep", word};
      request.limits.wall_s = 3600;
      sandbox->run(*job, request);
      ::_exit(0);
    }
    const auto wait_for = [&](auto condition) {
      for (int i = 0; i < 500 && !condition(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return condition();
    };
    // The program itself: while bubblewrap sets up the box, a kill can leave it waiting for a
    // parent that is gone (docs/sandbox.md).
    EXPECT_TRUE(wait_for([&] { return processes_with(word, "/bin/sleep") > 0; }))
        << "never started";
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(wait_for([&] { return processes_with(word) == 0; }))
        << processes_with(word) << " left, kind " << static_cast<int>(kind);
  }
}

// What a killed evalrun left is removed by the next one, but not what another machine's process of
// the same number is using (containers that share the folder).
TEST_F(Box, RemovesOnlyFoldersNobodyUses) {
  fs::path root;
  for (const char* place :
       {"/dev/shm", ::getenv("TMPDIR") != nullptr ? ::getenv("TMPDIR") : "/tmp"})
    for (const auto& entry : fs::directory_iterator(place))
      if (entry.path().filename().string().starts_with(fmt::format("evalrun-box-{}-", ::getpid())))
        root = place;
  ASSERT_FALSE(root.empty());
  const int gone = 0x7ffffffe;  // no process has it
  const fs::path stale = root / fmt::format("evalrun-box-{}-stale{}", gone, ::getpid());
  const fs::path used = root / fmt::format("evalrun-box-{}-used{}", gone, ::getpid());
  fs::create_directory(stale);
  fs::create_directory(used);
  const int lock = ::open(used.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(lock, LOCK_SH), 0);
  Sandbox::open({});
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(used));
  ::close(lock);
  Sandbox::open({});
  EXPECT_FALSE(fs::exists(used));
}

TEST(NoSandbox, IsARefusalThatSaysWhatToDo) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  evaluators::ScoringContext context = test_context();
  context.read_only_folders = {"/usr/share"};  // refusals are remembered: not for other tests
  const datasets::CodeProblem& problem = self_check("python");
  try {
    Sandbox::open({});
    FAIL() << "a sandbox without bubblewrap";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kEnvironment);
    EXPECT_NE(std::string(error.what()).find("apt-get install bubblewrap"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--allow-unsafe"), std::string::npos);
  }
  const tests::TempFolder folder;
  const std::string witness = folder.file("witness");
  const std::string code = "    open('" + witness + "', 'w')\n    return a + b\n";
  const auto result =
      evaluators::run_answer(problem, {code, false}, evaluators::CodeConvention::kEvalrun, context);
  if (!evaluators::toolchain_of(evaluators::languages().get("python")).packages.empty())
    EXPECT_EQ(result.status, "toolchain_missing");
  else
    EXPECT_EQ(result.status, "sandbox_error");
  EXPECT_FALSE(result.has_value());
  EXPECT_FALSE(fs::exists(witness)) << "the program was run without a sandbox";
  ::setenv("PATH", path.c_str(), 1);
}

TEST(NoSandbox, AHelperThatDoesNotWorkIsARefusal) {
  ::setenv("EVALRUN_BOX_INIT", "/usr/bin/false", 1);
  EXPECT_THROW(Sandbox::open({}), base::Error);
  ::setenv("EVALRUN_BOX_INIT", "/nowhere/at/all", 1);
  EXPECT_THROW(Sandbox::open({}), base::Error);
  ::unsetenv("EVALRUN_BOX_INIT");
}

// Asked for by name, and stamped: limits and the nonce still hold.
TEST(NoSandbox, UnsafeOnRequestOnly) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  evaluators::ScoringContext context = test_context();
  context.allow_unsafe = true;
  const auto& toolchain = evaluators::toolchain_of(evaluators::languages().get("python"));
  if (!toolchain.packages.empty()) GTEST_SKIP() << "python: " << toolchain.packages.front();
  const auto verdict = [&](const std::string& code) {
    return evaluators::run_answer(self_check("python"), {code, false},
                                  evaluators::CodeConvention::kEvalrun, context);
  };
  const auto good = verdict("    return a + b\n");
  EXPECT_EQ(good.status, "passed") << good.detail << good.output;
  EXPECT_EQ(good.sandbox, "none");
  EXPECT_EQ(verdict("    return a - b\n").status, "failed");
  EXPECT_EQ(verdict("    __import__('os')._exit(0)\n").detail, "early_exit");
  context.time_scale = 0.1;
  EXPECT_EQ(verdict("    while True: pass\n").status, "timeout");
  ::setenv("PATH", path.c_str(), 1);
}

TEST(NoSandbox, ProgramsSeeAnEnvironmentOfTheirOwn) {
  const auto sandbox =
      Sandbox::open({.allow_unsafe = true, .read_only_folders = {}}, Sandbox::Kind::kNone);
  const auto job = sandbox->open_job();
  BoxRequest request = shell("exec /usr/bin/env");
  request.environment = {{"ASKED_FOR", "yes"}};
  ::setenv("EVALRUN_TEST_SECRET", "1", 1);
  const BoxResult r = sandbox->run(*job, request);
  ::unsetenv("EVALRUN_TEST_SECRET");
  EXPECT_EQ(r.end, End::kExited) << r.problem;
  EXPECT_NE(r.out.find("PATH=/usr/bin\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("HOME=" + sandbox->job_path(*job) + "\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("LANG=C.UTF-8\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("ASKED_FOR=yes\n"), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("EVALRUN_TEST_SECRET"), std::string::npos) << r.out;
}

}  // namespace
}  // namespace evalrun::tests
