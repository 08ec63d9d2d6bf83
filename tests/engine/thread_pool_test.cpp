#include "engine/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace evalrun::engine::cpu {
namespace {

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

TEST(ThreadPool, BarriersOrderPhases) {
  ThreadPool pool(4);
  std::vector<int> first(4), second(4);
  for (int round = 1; round <= 500; ++round) {
    pool.run([&](int t) {
      first[static_cast<size_t>(t)] = round;
      pool.barrier();
      int sum = 0;
      for (const int x : first) sum += x;  // everyone has written
      second[static_cast<size_t>(t)] = sum;
      pool.barrier();
    });
    for (const int x : second) ASSERT_EQ(x, 4 * round);
  }
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

}  // namespace
}  // namespace evalrun::engine::cpu
