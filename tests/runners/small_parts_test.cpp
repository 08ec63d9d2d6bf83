// Warm-up rule, progress lines, interruption, environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "engine/devices.h"
#include "engine/session.h"
#include "runners/machine/build_info.h"
#include "runners/machine/environment.h"
#include "runners/machine/machine_clock.h"
#include "runners/measure/interrupt.h"
#include "runners/measure/progress.h"
#include "runners/measure/warmup.h"
#include "tests/runners/fakes.h"

namespace evalrun::runners {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SteadyState, SettlesWhenMediansOfFiveStopMoving) {
  SteadyState steady;
  for (int64_t ns : {1000, 900, 800, 700, 600, 500, 500, 500, 500}) {
    steady.add(ns);
    EXPECT_FALSE(steady.settled());
  }
  steady.add(500);  // medians 800 and 500
  EXPECT_FALSE(steady.settled());
  for (int i = 0; i < 2; ++i) steady.add(500);  // the window before is 800 700 600 500 500
  EXPECT_FALSE(steady.settled());
  steady.add(500);  // 700 600 500 500 500
  EXPECT_TRUE(steady.settled());
}

TEST(SteadyState, OneOutlierDoesNotMoveAMedian) {
  SteadyState steady;
  for (int i = 0; i < 9; ++i) steady.add(500);
  steady.add(50'000);
  EXPECT_TRUE(steady.settled());
}

TEST(SteadyState, OnePerCentIsTheBorder) {
  for (const auto& [last, settled] : {std::pair{1010, true}, std::pair{1011, false}}) {
    SteadyState steady;
    for (int i = 0; i < 5; ++i) steady.add(1000);
    for (int i = 0; i < 5; ++i) steady.add(last);
    EXPECT_EQ(steady.settled(), settled) << last;
  }
}

TEST(MachineClock, IsTheDifferenceOfTwoReadings) {
  MachineCounters before, after;
  before.cores = after.cores = 4;
  before.wall_ns = 1000, after.wall_ns = 1500;
  before.busy_ns = 300, after.busy_ns = 1300;
  before.steal_ns = 7, after.steal_ns = 47;
  before.own_ns = 100, after.own_ns = 900;
  before.preempted = 3, after.preempted = 5;
  const auto clock = clock_between(before, after);
  ASSERT_TRUE(clock);
  EXPECT_EQ(clock->available_ns, 2000);
  EXPECT_EQ(clock->own_ns, 800);
  EXPECT_EQ(clock->others_ns, 200);
  EXPECT_EQ(clock->steal_ns, 40);
  EXPECT_EQ(clock->preempted, 2);
  EXPECT_FALSE(clock->device_mhz);
  // Ticks counted too few of what we know exactly.
  after.busy_ns = 900;
  EXPECT_EQ(clock_between(before, after)->others_ns, 0);
  // Nothing readable, or the cores changed in between.
  EXPECT_FALSE(clock_between({}, after));
  before.cores = 3;
  EXPECT_FALSE(clock_between(before, after));
}

TEST(MachineClock, ReadsThisMachine) {
  const MachineCounters before = read_machine_counters();
  if (before.cores == 0) GTEST_SKIP() << "no /proc/stat here";
  EXPECT_EQ(before.cores, engine::allowed_cores());
  volatile double sink = 0;
  MachineCounters after = before;
  while (after.own_ns - before.own_ns < 30'000'000) {
    for (int i = 0; i < 1'000'000; ++i) sink = sink + i;
    after = read_machine_counters();
  }
  const auto clock = clock_between(before, after);
  ASSERT_TRUE(clock);
  EXPECT_GE(clock->available_ns, clock->own_ns) << "one thread on at least one core";
  EXPECT_LE(clock->others_ns + clock->steal_ns, 2 * clock->available_ns);
  if (const auto mhz = processor_mhz()) {
    EXPECT_GT(*mhz, 100);
    EXPECT_LT(*mhz, 20'000);
  }
}

TEST(Environment, NamesTheProcessor) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t at = text.find("model name");
  ASSERT_NE(at, text.npos);
  const size_t begin = text.find(": ", at) + 2;
  EXPECT_EQ(capture_environment().at("cpu"), text.substr(begin, text.find('\n', begin) - begin));
}

// What a sink wrote to its file.
class ProgressFile {
 public:
  ProgressFile() : file_(std::tmpfile()) {}
  ~ProgressFile() { std::fclose(file_); }
  std::FILE* get() { return file_; }
  std::string text() {
    std::rewind(file_);
    std::string text;
    for (int c; (c = std::fgetc(file_)) != EOF;) text += static_cast<char>(c);
    return text;
  }

 private:
  std::FILE* file_;
};

TEST(Progress, ALogGetsALineEveryTenSecondsAndTheLast) {
  tests::FakeClock clock;
  ProgressFile file;
  ConsoleProgress progress(file.get(), /*is_terminal=*/false, clock);
  progress.begin(30, 10);
  for (int i = 0; i < 30; ++i) {
    clock.now += 1'000'000'000;
    progress.generation_done("ar", "p" + std::to_string(i), i == 4);
  }
  progress.end();
  EXPECT_EQ(file.text(),
            "30 generations to measure, 10 already stored\n"
            "[20/40] 10 s elapsed, 20 s left, 1 FAILED  p9  ar\n"
            "[30/40] 20 s elapsed, 10 s left, 1 FAILED  p19  ar\n"
            "[40/40] 30 s elapsed, 0 s left, 1 FAILED  p29  ar\n");
}

TEST(Progress, ALineIsInTheFileAtOnce) {
  tests::FakeClock clock;
  ProgressFile file;
  ConsoleProgress progress(file.get(), /*is_terminal=*/false, clock);
  progress.begin(30, 10);
  struct stat written {};
  ASSERT_EQ(::fstat(::fileno(file.get()), &written), 0);
  EXPECT_EQ(static_cast<size_t>(written.st_size),
            std::string("30 generations to measure, 10 already stored\n").size())
      << "a log is read while the run goes on";
}

TEST(Progress, ASecondRunCountsFromItsOwnBeginning) {
  tests::FakeClock clock;
  ProgressFile file;
  ConsoleProgress progress(file.get(), /*is_terminal=*/false, clock);
  for (const int stored : {0, 1}) {
    progress.begin(1, stored);
    clock.now += 1'000'000'000;
    progress.generation_done("ar", "p", stored == 0);
    progress.end();
  }
  EXPECT_EQ(file.text(),
            "1 generations to measure\n"
            "[1/1] 1 s elapsed, 0 s left, 1 FAILED  p  ar\n"
            "1 generations to measure, 1 already stored\n"
            "[2/2] 1 s elapsed, 0 s left  p  ar\n");
}

TEST(Progress, ATerminalGetsOneLineRewritten) {
  tests::FakeClock clock;
  ProgressFile file;
  ConsoleProgress progress(file.get(), /*is_terminal=*/true, clock);
  progress.begin(2, 0);
  for (int i = 0; i < 2; ++i) {
    clock.now += 1'000'000'000;
    progress.generation_done("ar", "p", false);
  }
  progress.end();
  const std::string text = file.text();
  EXPECT_THAT(text, HasSubstr("\r[1/2] 1 s elapsed, 1 s left  p  ar"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST(Interrupt, TheFirstSignalAsksAndTheGuardRestores) {
  struct sigaction before = {}, after = {};
  sigaction(SIGINT, nullptr, &before);
  {
    const InterruptGuard guard;
    EXPECT_FALSE(InterruptGuard::requested());
    std::raise(SIGINT);
    EXPECT_TRUE(InterruptGuard::requested());
  }
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  const InterruptGuard fresh;
  EXPECT_FALSE(InterruptGuard::requested());
}

TEST(Interrupt, TheSecondSignalLeavesAtOnce) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        std::raise(SIGTERM);
        std::raise(SIGTERM);
        std::abort();  // not reached
      },
      ::testing::ExitedWithCode(130), "press Ctrl-C again");
}

TEST(Environment, SaysWhatTheMachineIs) {
  ::setenv("EVALRUN_TEST_VARIABLE", "7", 1);
  const auto e = capture_environment();
  ::unsetenv("EVALRUN_TEST_VARIABLE");
  EXPECT_EQ(e.at("env.EVALRUN_TEST_VARIABLE"), "7");
  EXPECT_EQ(e.at("cores_allowed"), std::to_string(engine::allowed_cores()));
  EXPECT_GE(std::stoi(e.at("numa_nodes")), 1);
  EXPECT_GT(std::stoll(e.at("memory_bytes")), 1 << 20);
  EXPECT_EQ(e.at("commit"), build_info().commit);
  EXPECT_EQ(e.at("build"), build_info().id);
  for (const auto& [name, value] : e) EXPECT_FALSE(value.empty()) << name;
}

TEST(Environment, ABuildTheCommitDoesNotIdentifyCarriesAHash) {
  const BuildInfo& build = build_info();
  const bool identified = build.commit != "unknown" && !build.commit.ends_with("-dirty");
  if (identified)
    EXPECT_EQ(build.id, build.commit);
  else
    EXPECT_EQ(build.id.size(), build.commit.size() + 17);
}

TEST(Environment, OnlyVariablesThatMoveFiguresCount) {
  const auto names = {"EVALRUN_HOME", "EVALRUN_ISA", "EVALRUN_CACHE_MAX", "EVALRUN_KERNEL"};
  for (const char* name : names) ::setenv(name, "x", 1);
  const auto variables = figure_variables();
  for (const char* name : names) ::unsetenv(name);
  EXPECT_TRUE(variables.contains("EVALRUN_KERNEL"));
  for (const char* name : {"EVALRUN_HOME", "EVALRUN_ISA", "EVALRUN_CACHE_MAX"})
    EXPECT_FALSE(variables.contains(name)) << name;
}

TEST(Environment, PeakMemoryFollowsAllocations) {
  reset_peak_memory();
  const int64_t before = peak_memory_bytes();
  constexpr size_t kBytes = 64 << 20;
  std::vector<char> block(kBytes, 1);
  EXPECT_GE(peak_memory_bytes(), before + static_cast<int64_t>(kBytes) / 2) << block[17];
}

TEST(Environment, TimesOfDayAreUtc) {
  EXPECT_THAT(utc_now(), ::testing::MatchesRegex("....-..-..T..:..:..Z"));
}

}  // namespace
}  // namespace evalrun::runners
