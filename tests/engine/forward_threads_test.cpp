// How the panels of a product are shared out among threads.
#include "engine/cpu/forward_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace evalrun::engine::cpu {
namespace {

constexpr size_t kLong = size_t{1} << 30, kShort = 64;  // bytes of a product

// How often each panel was computed, in the products of one region.
class Panels : public ::testing::TestWithParam<int> {
 protected:
  Panels() : threads_(*find_kernels("portable"), GetParam(), false) {}

  void expect_once(const std::vector<int>& products, size_t bytes, int rows) {
    std::vector<std::vector<std::atomic<int>>> times;
    for (const int panels : products) times.emplace_back(static_cast<size_t>(panels));
    threads_.begin(rows, false);
    threads_.pool().run([&](int thread) {
      for (auto& product : times) {
        threads_.for_panels(static_cast<int>(product.size()), bytes, rows, thread,
                            [&](int begin, int end) {
                              EXPECT_LT(begin, end);
                              for (int p = begin; p < end; ++p)
                                product[static_cast<size_t>(p)].fetch_add(1);
                            });
        threads_.barrier(thread);
      }
    });
    for (size_t i = 0; i < times.size(); ++i)
      for (size_t p = 0; p < times[i].size(); ++p)
        ASSERT_EQ(times[i][p].load(), 1) << "product " << i << ", panel " << p;
  }

  ForwardThreads threads_;
};

TEST_P(Panels, AreComputedOnceEach) {
  const std::vector<int> products = {1, 2, 7, 8, 16, 63, 64, 65, 255, 1000, 3, 500};
  for (int region = 0; region < 50; ++region) {
    expect_once(products, kLong, 1);
    expect_once(products, kShort, 1);
    expect_once(products, kLong, 64);
    expect_once(products, kLong, 4);
  }
}

// The thread that is behind finds strips of its share done by its neighbour.
TEST_P(Panels, OfALongProductGoToWhoeverIsFree) {
  constexpr int kPanels = 1000;
  std::atomic<int> mine{0};
  std::atomic<bool> others_done{false};
  threads_.begin(1, false);
  threads_.pool().run([&](int thread) {
    bool first = true;
    threads_.for_panels(kPanels, kLong, 1, thread, [&](int begin, int end) {
      if (thread != 0) return;
      mine += end - begin;
      // The head of the share takes until all others have come to their end.
      while (first && threads_.size() > 1 && !others_done.load()) std::this_thread::yield();
      first = false;
    });
    // The last thread takes from the tail of the first.
    if (thread + 1 == threads_.size()) others_done = true;
    threads_.barrier(thread);
  });
  if (threads_.size() == 1) {  // it has no neighbour
    EXPECT_EQ(mine.load(), kPanels);
    return;
  }
  // All of its own tail was gone. With more than two threads it may still have helped the second.
  const int share = kPanels / threads_.size(), head = share - share / 8;
  EXPECT_GE(mine.load(), head);
  EXPECT_LE(mine.load(), head + (threads_.size() > 2 ? share / 8 + 1 : 0));
}

TEST_P(Panels, PartsOfARowPhaseAreSharesOrForEachThreadAll) {
  for (const int n : {0, 1, 2, 7, 48}) {
    threads_.begin(1, true);
    for (int t = 0; t < threads_.size(); ++t) {
      EXPECT_EQ(threads_.part(n, t).begin, 0);
      EXPECT_EQ(threads_.part(n, t).end, n);
    }
    threads_.begin(1, false);
    int next = 0;
    for (int t = 0; t < threads_.size(); ++t) {
      EXPECT_EQ(threads_.part(n, t).begin, next);
      next = threads_.part(n, t).end;
    }
    EXPECT_EQ(next, n);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, Panels, ::testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace evalrun::engine::cpu
