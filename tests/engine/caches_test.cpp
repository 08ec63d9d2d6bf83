// Caches of made-up machines.
#include "engine/cpu/caches.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/temp_folder.h"

namespace evalrun::engine::cpu {
namespace {

class Caches : public ::testing::Test {
 protected:
  void cache(int cpu, int index, int level, const std::string& type, const std::string& size,
             const std::string& sharers) const {
    const std::string at =
        "cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
    sys_.write(at + "level", std::to_string(level) + "\n");
    sys_.write(at + "type", type + "\n");
    sys_.write(at + "size", size + "\n");
    if (!sharers.empty()) sys_.write(at + "shared_cpu_list", sharers + "\n");
  }
  // First level, second level of its own, third level shared.
  void core(int cpu, const std::string& siblings, const std::string& cluster) const {
    cache(cpu, 0, 1, "Data", "32K", siblings);
    cache(cpu, 1, 1, "Instruction", "32K", siblings);
    cache(cpu, 2, 2, "Unified", "1024K", siblings);
    cache(cpu, 3, 3, "Unified", "32M", cluster);
  }
  int64_t bytes(const std::vector<int>& cpus) const { return cache_bytes(cpus, sys_.path()); }
  const tests::TempFolder sys_;
};

constexpr int64_t kMiB = int64_t{1} << 20;

TEST_F(Caches, EachCountsOnce) {
  core(0, "0-1", "0-3"), core(1, "0-1", "0-3");  // two threads of a core
  core(2, "2-3", "0-3"), core(3, "2-3", "0-3");
  core(4, "4-5", "4-7");  // of another cluster
  EXPECT_EQ(bytes({0}), 33 * kMiB);
  EXPECT_EQ(bytes({0, 1}), 33 * kMiB);
  EXPECT_EQ(bytes({0, 1, 2, 3}), 34 * kMiB);
  EXPECT_EQ(bytes({0, 4}), 66 * kMiB);
}

TEST_F(Caches, WhatTheKernelDoesNotSay) {
  EXPECT_EQ(bytes({0, 1}), 0) << "nothing at all";
  cache(0, 0, 2, "Unified", "512K", "");
  cache(1, 0, 2, "Unified", "512K", "");
  EXPECT_EQ(bytes({0, 1}), kMiB) << "without sharers each has its own";
  cache(2, 0, 2, "Unified", "", "2");
  cache(3, 0, 2, "Unified", "lots", "3");
  EXPECT_EQ(bytes({2, 3}), 0);
  cache(4, 0, 3, "Unified", "2048", "4");
  EXPECT_EQ(bytes({4}), 2048) << "plain bytes";
}

TEST_F(Caches, OfThisMachineAreSomeSize) {
  EXPECT_GE(cache_bytes(), int64_t{1} << 17);
  EXPECT_LE(cache_bytes(), int64_t{1} << 37);
}

}  // namespace
}  // namespace evalrun::engine::cpu
