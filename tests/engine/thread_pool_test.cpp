#include "engine/cpu/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/cpu/cores.h"
#include "engine/devices.h"
#include "engine/session.h"
#include "tests/engine/made_up_places.h"
#include "tests/temp_folder.h"

namespace evalrun::engine::cpu {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::ElementsAre;

TEST(ThreadPool, SharesCoverEverythingOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (const int n : {0, 1, 2, 5, 36, 1001}) {
      int next = 0;
      for (int t = 0; t < threads; ++t) {
        const auto [begin, end] = pool.share(n, t);
        EXPECT_EQ(begin, next);
        next = end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

// Every thread writes plain memory before a barrier and reads all of it after it: wrong sums, or a
// report of the thread sanitizer, if a barrier lets anyone through too early.
void expect_ordered_phases(int threads, int rounds, const Places* made_up = nullptr) {
  ThreadPool pool(threads, made_up);
  std::vector<int> first(static_cast<size_t>(threads)), second(static_cast<size_t>(threads));
  for (int round = 1; round <= rounds; ++round) {
    pool.run([&](int t) {
      first[static_cast<size_t>(t)] = round;
      pool.barrier();
      int sum = 0;
      for (const int x : first) sum += x;  // everyone has written
      second[static_cast<size_t>(t)] = sum;
      pool.barrier();
      first[static_cast<size_t>(t)] = -1;  // everyone has read
    });
    for (const int x : second) ASSERT_EQ(x, threads * round) << threads << " threads";
  }
}

TEST(ThreadPool, BarriersOrderPhases) {
  for (const int threads : {1, 2, 3, 4, 5, 7, 8}) expect_ordered_phases(threads, 300);
}

// Where teams meet by nodes first (tests/engine/barrier_test.cpp has more of their shapes).
TEST(ThreadPool, BarriersOrderPhasesOnSeveralNodes) {
  for (const std::vector<int>& nodes :
       std::vector<std::vector<int>>{{0, 1}, {0, 0, 1, 1}, {0, 0, 0, 1, 1, 2}}) {
    const Places places = testing::made_up_places(nodes);
    const int threads = static_cast<int>(nodes.size());
    expect_ordered_phases(threads, 200, &places);
    EXPECT_EQ(ThreadPool(threads, &places).places().node, nodes);
  }
  EXPECT_EQ(ThreadPool(1).places().nodes().size(), 1u);
  EXPECT_EQ(ThreadPool(static_cast<int>(cpu_order().cpus.size()) + 1).places().nodes().size(), 1u)
      << "threads that are not pinned have no node";
}

TEST(ThreadPool, MoreThreadsThanCoresFinish) {
  expect_ordered_phases(2 * allowed_cores() + 6, 100);
  EXPECT_FALSE(ThreadPool(static_cast<int>(cpu_order().cpus.size()) + 1).pinned());
}

TEST(ThreadPool, GoesOnWhenCoresAreTaken) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> load;
  for (int i = 0; i < 4; ++i)
    load.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  ThreadPool pool(4);
  std::atomic<int> done{0};
  for (int round = 0; round < 50; ++round)
    pool.run([&](int) {
      for (int b = 0; b < 4; ++b) pool.barrier();
      done.fetch_add(1);
    });
  stop = true;
  for (auto& t : load) t.join();
  EXPECT_EQ(done.load(), 200);
}

// Workers fall asleep between regions, threads at barriers while one is late.
TEST(ThreadPool, SleepersWake) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> done{0};
    pool.run([&](int t) {
      if (t == round % 3) std::this_thread::sleep_for(milliseconds(2));
      pool.barrier();
      done.fetch_add(1);
    });
    EXPECT_EQ(done.load(), 3);
    std::this_thread::sleep_for(milliseconds(round % 4));
  }
}

TEST(ThreadPool, EndsWhileIdleOrAsleep) {
  for (const int pause : {0, 5}) {
    for (int round = 0; round < 20; ++round) {
      ThreadPool pool(3);
      if (round % 2 == 0) pool.run([](int) {});
      std::this_thread::sleep_for(milliseconds(round < 5 ? pause : 0));
    }
  }
}

// A target and a draft model: one team when the sizes agree, two otherwise.
TEST(ThreadPool, PoolsTakeTurns) {
  for (const int other : {2, 3}) {
    ThreadPool a(2);
    auto b = std::make_unique<ThreadPool>(other);
    std::vector<int> calls(5);
    for (int round = 0; round < 200; ++round) {
      a.run([&](int t) {
        calls[static_cast<size_t>(t)] += 1;
        a.barrier();
      });
      b->run([&](int t) {
        calls[static_cast<size_t>(t) + 2] += 1;
        b->barrier();
      });
    }
    b.reset();
    a.run([&](int t) { calls[static_cast<size_t>(t)] += 1; });
    EXPECT_EQ(calls, (std::vector<int>{201, 201, 200, 200, other == 3 ? 200 : 0}));
  }
}

// Sessions in several threads: regions of a shared team exclude each other.
TEST(ThreadPool, CallersInSeveralThreadsExcludeEachOther) {
  int inside = 0;  // plain memory: the sanitizer sees two callers at once
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c)
    callers.emplace_back([&inside] {
      ThreadPool pool(2);
      for (int round = 0; round < 200; ++round)
        pool.run([&](int t) {
          if (t == 0) ++inside;
          pool.barrier();
          if (t == 1) ++inside;
        });
    });
  for (auto& t : callers) t.join();
  EXPECT_EQ(inside, 3 * 200 * 2);
}

// Two pools of different size, one region inside the other: each thread finds its own number again.
TEST(ThreadPool, RegionsOfOtherPoolsNest) {
  ThreadPool outer(2), inner(3);
  std::atomic<int> done{0};
  outer.run([&](int t) {
    if (t == 1)
      inner.run([&](int) {
        inner.barrier();
        done.fetch_add(1);
      });
    outer.barrier();
  });
  EXPECT_EQ(done.load(), 3);
}

TEST(ThreadPool, LeavesTheCallersAffinityAlone) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  {
    ThreadPool pool(2);
    for (int round = 0; round < 100; ++round) pool.run([](int) {});
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

// ---- In a process of its own --------------------------------------------------------------------

std::vector<int> own_cpus() {
  cpu_set_t mask;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return cpus;
  for (int c = 0; c < CPU_SETSIZE; ++c)
    if (CPU_ISSET(static_cast<size_t>(c), &mask)) cpus.push_back(c);
  return cpus;
}

bool allow(const std::vector<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int c : cpus) CPU_SET(static_cast<size_t>(c), &mask);
  return sched_setaffinity(0, sizeof(mask), &mask) == 0;
}

// Runs f in a child; its exit code. The child is killed after `limit`, which counts as -1.
template <typename F>
int in_child(const F& f, std::chrono::seconds limit = std::chrono::seconds(120)) {
  const pid_t child = fork();
  if (child == 0) _exit(f());
  const auto end = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

TEST(ThreadPlacement, ThreadsFollowTheAffinityMask) {
  const std::vector<int> cpus = own_cpus();
  for (const size_t n : {size_t{1}, size_t{2}}) {
    if (cpus.size() < n) GTEST_SKIP() << "needs " << n << " CPUs";
    const std::vector<int> few(cpus.end() - static_cast<std::ptrdiff_t>(n), cpus.end());
    EXPECT_EQ(in_child([&] {
                if (!allow(few)) return 1;
                if (cpu_order().cpus.size() != n) return 2;
                const int threads = allowed_cores();
                if (threads < 1 || threads > static_cast<int>(n)) return 3;
                ThreadPool pool(2);
                if (pool.pinned() && n < 2) return 4;
                std::atomic<int> wrong{0};
                pool.run([&](int) {
                  if (std::find(few.begin(), few.end(), sched_getcpu()) == few.end()) ++wrong;
                });
                return wrong == 0 ? 0 : 5;
              }),
              0)
        << n;
  }
}

TEST(ThreadPlacement, WorkersArePinnedInOrderUnlessTurnedOff) {
  const CpuOrder order = cpu_order();
  if (order.cpus.size() < 2 || cpu_quota() < static_cast<double>(order.cpus.size()))
    GTEST_SKIP() << "nothing is pinned on one CPU or under a quota";
  const auto worker_may_run_on = [] {
    ThreadPool pool(2);
    std::vector<int> mask;
    pool.run([&](int t) {
      if (t == 1) mask = own_cpus();
    });
    return mask;
  };
  EXPECT_EQ(in_child([&] {
              unsetenv("EVALRUN_PIN");
              return worker_may_run_on() == std::vector<int>{order.cpus[1]} ? 0 : 1;
            }),
            0);
  EXPECT_EQ(in_child([&] {
              setenv("EVALRUN_PIN", "0", 1);
              return worker_may_run_on() == own_cpus() ? 0 : 1;
            }),
            0);
}

// Another process on the CPU a worker is pinned to: slow, never stuck.
TEST(ThreadPlacement, FinishesBesideAProcessOnTheSameCpu) {
  const CpuOrder order = cpu_order();
  if (order.cpus.size() < 2) GTEST_SKIP() << "needs two CPUs";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t rival = fork();
  if (rival == 0) {
    allow({order.cpus[1]});
    alarm(200);  // should the test be killed
    if (write(ready[1], "!", 1) != 1) _exit(1);
    volatile uint64_t n = 0;
    while (true) n = n + 1;
  }
  char sign = 0;
  ASSERT_EQ(read(ready[0], &sign, 1), 1);
  close(ready[0]), close(ready[1]);
  EXPECT_EQ(in_child([&] {
              ThreadPool pool(2);
              int64_t done[2] = {};
              for (int round = 0; round < 200; ++round)
                pool.run([&](int t) {
                  for (int b = 0; b < 20; ++b) {
                    ++done[t];
                    pool.barrier();
                  }
                });
              return done[0] == 4000 && done[1] == 4000 ? 0 : 1;
            }),
            0);
  kill(rival, SIGKILL);
  waitpid(rival, nullptr, 0);
}

// ---- Topology, read from made-up trees ----------------------------------------------------------

class Cores : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& line) const {
    folder_.write(file, line + "\n");
  }
  void cpu(int number, int package, const std::string& siblings) {
    const std::string topology = "cpu" + std::to_string(number) + "/topology/";
    write(topology + "physical_package_id", std::to_string(package));
    write(topology + "thread_siblings_list", siblings);
  }
  const tests::TempFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(Cores, PhysicalCoresComeFirstPackageByPackage) {
  // Two packages of two cores with two hardware threads, numbered as Linux does on servers.
  for (const int c : {0, 1, 2, 3})
    for (const int sibling : {c, c + 4})
      cpu(sibling, c % 2, std::to_string(c) + "," + std::to_string(c + 4));
  const CpuOrder all = cpu_order(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}, root_);
  EXPECT_THAT(all.cpus, ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_EQ(all.n_cores, 4);
  EXPECT_EQ(default_threads(all, 100.0), 4);
  // A mask with one whole core and the second thread of another.
  const CpuOrder some = cpu_order(std::vector<int>{4, 0, 6}, root_);
  EXPECT_THAT(some.cpus, ElementsAre(0, 6, 4));
  EXPECT_EQ(some.n_cores, 2);
}

TEST_F(Cores, NeighbouringSiblings) {
  for (const int c : {0, 2})
    for (const int sibling : {c, c + 1})
      cpu(sibling, 0, std::to_string(c) + "-" + std::to_string(c + 1));
  EXPECT_THAT(cpu_order(std::vector<int>{0, 1, 2, 3}, root_).cpus, ElementsAre(0, 2, 1, 3));
  // Only the threads of one core: then both count.
  const CpuOrder one = cpu_order(std::vector<int>{2, 3}, root_);
  EXPECT_EQ(one.n_cores, 1);
  EXPECT_EQ(default_threads(one, std::numeric_limits<double>::infinity()), 2);
}

TEST_F(Cores, WithoutTopologyEveryCpuIsACore) {
  write("cpu1/topology/thread_siblings_list", "what?");
  const CpuOrder order = cpu_order(std::vector<int>{3, 1, 2}, root_);
  EXPECT_THAT(order.cpus, ElementsAre(1, 2, 3));
  EXPECT_EQ(order.n_cores, 3);
}

TEST_F(Cores, TheSmallestQuotaOfAllGroupsCounts) {
  const auto quota = [&] { return cpu_quota(root_, root_ / "self"); };
  constexpr double kNone = std::numeric_limits<double>::infinity();
  EXPECT_EQ(quota(), kNone);
  write("cpu.max", "max 100000");
  EXPECT_EQ(quota(), kNone);
  write("a/cpu.max", "350000 100000");
  write("a/b/cpu.max", "400000 100000");
  EXPECT_EQ(quota(), kNone) << "groups of others";
  write("self", "0::/a/b");
  EXPECT_EQ(quota(), 3.5);
  write("cpu/slice/cpu.cfs_quota_us", "-1");
  write("cpu/slice/cpu.cfs_period_us", "100000");
  write("self", "0::/a/b\n5:cpu,cpuacct:/slice");
  EXPECT_EQ(quota(), 3.5);
  write("cpu/slice/cpu.cfs_quota_us", "150000");
  EXPECT_EQ(quota(), 1.5);
  write("cpu.max", "50000 100000");
  EXPECT_EQ(quota(), 0.5);
  CpuOrder order;
  order.cpus = {0, 1, 2, 3}, order.n_cores = 4;
  EXPECT_EQ(default_threads(order, 0.5), 1);
  EXPECT_EQ(default_threads(order, 2.9), 2);
  EXPECT_EQ(default_threads(order, 9.0), 4);
}

TEST(AllowedCores, IsWithinWhatTheProcessMayUse) {
  EXPECT_GE(allowed_cores(), 1);
  EXPECT_LE(allowed_cores(), static_cast<int>(own_cpus().size()));
}

}  // namespace
}  // namespace evalrun::engine::cpu
