// NUMA nodes and last-level caches, read from made-up trees; memory of nodes, as far as this
// machine has them.
#include "engine/cpu/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/cpu/cores.h"
#include "engine/cpu/node_memory.h"
#include "engine/model/weight_matrix.h"
#include "tests/temp_folder.h"

namespace evalrun::engine::cpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CpuList, IsReadAsTheKernelWritesIt) {
  EXPECT_THAT(cpus_in_list("0"), ElementsAre(0));
  EXPECT_THAT(cpus_in_list("0-3,8,10-11"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(cpus_in_list("5\n"), ElementsAre(5));
  EXPECT_THAT(cpus_in_list(""), IsEmpty());
  // What it never writes ends the list.
  EXPECT_THAT(cpus_in_list("none"), IsEmpty());
  EXPECT_THAT(cpus_in_list("1,x,3"), ElementsAre(1));
  EXPECT_THAT(cpus_in_list("1,3-2"), ElementsAre(1));
  EXPECT_THAT(cpus_in_list("1,4-"), ElementsAre(1));
  EXPECT_THAT(cpus_in_list("0-4000000000"), IsEmpty());
  EXPECT_THAT(cpus_in_list("0-99999999"), IsEmpty());
}

class PlacesInATree : public ::testing::Test {
 protected:
  void node(const std::string& name, const std::string& cpus) const {
    folder_.write("node/" + name + "/cpulist", cpus + "\n");
  }
  void cache(int cpu, int index, int level, const std::string& sharers) const {
    const std::string at = "cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index);
    folder_.write(at + "/level", std::to_string(level) + "\n");
    folder_.write(at + "/shared_cpu_list", sharers + "\n");
  }
  Places of(const std::vector<int>& cpus) const { return places_of(cpus, folder_.path()); }
  const tests::TempFolder folder_;
};

TEST_F(PlacesInATree, NodesAndLastLevelCaches) {
  node("node0", "0-1,4-5"), node("node1", "2-3"), node("node10", "6");
  node("node7", "");  // memory alone
  folder_.write("node/possible", "0-10\n");
  for (const int cpu : {0, 1, 2, 3, 4, 5}) {
    cache(cpu, 0, 1, std::to_string(cpu));
    cache(cpu, 1, 2, std::to_string(cpu));
    cache(cpu, 2, 3, cpu < 2 ? "0-1" : cpu < 4 ? "2-3" : "4-5");
  }
  const Places places = of({2, 3, 0, 4, 1, 6});
  EXPECT_THAT(places.node, ElementsAre(1, 1, 0, 0, 0, 10));
  EXPECT_THAT(places.cluster, ElementsAre(0, 0, 1, 2, 1, 3));
  EXPECT_THAT(places.nodes(), ElementsAre(1, 0, 10));
  EXPECT_FALSE(places.made_up());
}

TEST_F(PlacesInATree, ACacheThatNodesShareCountsForEach) {
  node("node0", "0"), node("node1", "1");
  for (const int cpu : {0, 1}) cache(cpu, 0, 3, "0-1");
  EXPECT_THAT(of({0, 1}).cluster, ElementsAre(0, 1));
}

TEST_F(PlacesInATree, WhatTheTreeDoesNotSayIsOnePlace) {
  const Places places = of({3, 1});
  EXPECT_THAT(places.node, ElementsAre(0, 0));
  EXPECT_THAT(places.cluster, ElementsAre(0, 0));
  EXPECT_EQ(one_place(2).node, places.node);
  EXPECT_EQ(one_place(2).cluster, places.cluster);
}

TEST(PlacesHere, EveryCpuIsSomewhere) {
  const CpuOrder order = cpu_order();
  const Places places = places_of(order.cpus, "/sys/devices/system");
  EXPECT_EQ(places.node.size(), order.cpus.size());
  EXPECT_EQ(places.cluster.size(), order.cpus.size());
}

// ---- Memory -------------------------------------------------------------------------------------

TEST_F(PlacesInATree, FreeBytesOfANode) {
  folder_.write("node/node3/meminfo",
                "Node 3 MemTotal:       15689932 kB\n"
                "Node 3 MemFree:        1000 kB\n"
                "Node 3 Active(file):   7 kB\n"
                "Node 3 Inactive(file): 24 kB\n"
                "Node 3 HugePages_Free:     5\n"
                "Node 3 MemUsed:        9 kB\n");
  EXPECT_EQ(free_bytes_of_node(3, folder_.path()), 1024 * 1024);
  EXPECT_EQ(free_bytes_of_node(4, folder_.path()), 0);
}

// The node of a page, by the kernel's word; -1 where it gives none.
int node_of(const std::byte* address) {
  int node = -1;
  return syscall(SYS_get_mempolicy, &node, nullptr, 0UL, address,
                 static_cast<unsigned long>(MPOL_F_NODE | MPOL_F_ADDR)) == 0
             ? node
             : -1;
}

TEST(NodeMemory, PagesAreMovedOrARefusalIsSaid) {
  const WeightMatrix w(1500, 1000);  // 6 MB: more than one batch, and edges within pages
  const int node = node_of(w.panel(0));
  if (node < 0) GTEST_SKIP() << "the kernel does not say where pages are";
  const int nodes[] = {node, node};
  EXPECT_EQ(move_pages_to(w.bytes(), {nodes, 1}), move_pages_to(w.bytes(), nodes));
  EXPECT_EQ(node_of(w.panel(w.panels() - 1)), node);
  const int nowhere = 1 << 20;
  EXPECT_NE(move_pages_to(w.bytes(), {&nowhere, 1}), "");
  EXPECT_EQ(node_of(w.panel(0)), node);
  EXPECT_EQ(move_pages_to(w.bytes().first(10), {&nowhere, 1}), "") << "no whole page";
}

int policy_of_this_thread() {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) == 0 ? mode : -1;
}

TEST(NodeMemory, PagesComeInTurnsForAWhile) {
  const std::vector<int> nodes = places_of(cpu_order().cpus, "/sys/devices/system").nodes();
  const int before = policy_of_this_thread();
  if (before < 0) GTEST_SKIP() << "the kernel does not tell policies";
  {
    const PagesInTurns one({nodes.data(), 1});
    EXPECT_EQ(policy_of_this_thread(), before);
    const std::vector<int> two{nodes.front(), nodes.back()};
    const PagesInTurns turns(two);
    const int now = policy_of_this_thread();
    EXPECT_TRUE(now == MPOL_INTERLEAVE || now == before) << now;  // the latter: refused
  }
  EXPECT_EQ(policy_of_this_thread(), before);
}

}  // namespace
}  // namespace evalrun::engine::cpu
