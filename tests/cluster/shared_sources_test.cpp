// Who measures what of a shared run: queues, and the talk of several processes, here threads with
// sockets between them.
#include <gmock/gmock.h>

#include <algorithm>
#include <future>
#include <latch>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "engine/base/error.h"
#include "runners/cluster/device_processes.h"
#include "runners/cluster/dispenser.h"
#include "runners/cluster/prompt_sources.h"
#include "runners/cluster/socket_messages.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Dispenser, OwnQueueInOrderAndThenTheBackOfTheLongest) {
  Dispenser dispenser({{0, 1, 2}, {3, 4, 5, 6, 7}, {8}});
  EXPECT_EQ(dispenser.left(), 9);
  EXPECT_THAT(dispenser.take(2), ElementsAre(8));
  EXPECT_EQ(dispenser.stolen(), 0);
  // Half of 3 .. 7, rounded up, from the back, in its order.
  EXPECT_THAT(dispenser.take(2), ElementsAre(5));
  EXPECT_THAT(dispenser.take(2), ElementsAre(6));
  EXPECT_EQ(dispenser.stolen(), 3);
  EXPECT_THAT(dispenser.take(1), ElementsAre(3));
  EXPECT_THAT(dispenser.take(0), ElementsAre(0));
}

TEST(Dispenser, ManyAtOnceOnlyWhileThereAreMany) {
  std::vector<int> all(100);
  std::iota(all.begin(), all.end(), 0);
  Dispenser dispenser({all, {}});
  EXPECT_THAT(dispenser.take(0), ElementsAre(0, 1, 2, 3));
  std::set<int> seen = {0, 1, 2, 3};
  std::vector<int> taken;
  for (int worker = 0; !(taken = dispenser.take(worker)).empty(); worker = 1 - worker)
    for (const int unit : taken) EXPECT_TRUE(seen.insert(unit).second) << unit << " twice";
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_THAT(dispenser.take(0), IsEmpty());
}

TEST(Dispenser, WhatIsGivenBackComesFirst) {
  Dispenser dispenser({{0, 1}, {2}});
  EXPECT_THAT(dispenser.take(1), ElementsAre(2));
  dispenser.give_back({2});
  EXPECT_EQ(dispenser.left(), 3);
  EXPECT_THAT(dispenser.take(0), ElementsAre(2));
}

// Units of very unequal length: with stealing the last worker is done soon after the first.
TEST(Dispenser, BalancesUnequalUnits) {
  constexpr int kWorkers = 4, kUnits = 80;
  const auto cost = [](int unit) { return unit < kUnits / kWorkers ? 20.0 : 1.0; };
  std::vector<std::vector<int>> queues(kWorkers);
  for (int unit = 0; unit < kUnits; ++unit)
    queues[static_cast<size_t>(unit / (kUnits / kWorkers))].push_back(unit);
  Dispenser dispenser(queues);
  std::vector<double> busy(kWorkers, 0);
  for (;;) {
    const auto next = std::min_element(busy.begin(), busy.end()) - busy.begin();
    const std::vector<int> units = dispenser.take(static_cast<int>(next));
    if (units.empty()) break;
    for (const int unit : units) busy[static_cast<size_t>(next)] += cost(unit);
  }
  const double all = 20 * 20 + 60;
  // Fixed shards: 400. All evenly: 115. A unit at the end costs 20 at most.
  EXPECT_LE(*std::max_element(busy.begin(), busy.end()), all / kWorkers + 2 * 20);
}

std::vector<std::vector<int>> units_of_two(int n) {
  std::vector<std::vector<int>> units;
  for (int i = 0; i < n; ++i) units.push_back({2 * i, 2 * i + 1});
  return units;
}

TEST(SharedSources, EveryPromptOnce) {
  constexpr int kUnits = 30, kProcesses = 3;
  std::vector<std::vector<int>> queues(kProcesses);
  for (int unit = 0; unit < kUnits; ++unit)
    queues[static_cast<size_t>(unit % kProcesses)].push_back(unit);
  const auto peers = make_socket_peers(kProcesses);
  const auto first = open_sockets(peers[0]);
  Coordinator coordinator(*first, units_of_two(kUnits), "key", Dispenser(queues));
  std::vector<std::vector<int>> measured(kProcesses);
  std::vector<std::thread> workers;
  std::latch all_have_some(kProcesses - 1);  // or the first one would be done before they ask
  for (size_t rank = 1; rank < kProcesses; ++rank)
    workers.emplace_back([&, rank] {
      const auto messages = open_sockets(peers[rank]);
      Worker worker(*messages, units_of_two(kUnits), "key");
      EXPECT_TRUE(worker.has_any());
      all_have_some.count_down();
      for (std::vector<int> prompts; !(prompts = worker.next()).empty();)
        measured[rank].insert(measured[rank].end(), prompts.begin(), prompts.end());
      worker.done(rank == 1);
    });
  coordinator.wait_for_plans();
  all_have_some.wait();
  for (std::vector<int> prompts; !(prompts = coordinator.next()).empty();)
    measured[0].insert(measured[0].end(), prompts.begin(), prompts.end());
  const Coordinator::Ends ends = coordinator.wait_for_all();
  coordinator.let_go();
  for (std::thread& worker : workers) worker.join();
  EXPECT_THAT(ends.gone, IsEmpty());
  EXPECT_THAT(ends.stopped, ElementsAre(2));
  std::vector<int> all;
  for (const std::vector<int>& of : measured) all.insert(all.end(), of.begin(), of.end());
  std::sort(all.begin(), all.end());
  std::vector<int> expected(2 * kUnits);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST(SharedSources, WhatADeadProcessHadInHandGoesToAnother) {
  const auto peers = make_socket_peers(2);
  const auto first = open_sockets(peers[0]);
  Coordinator coordinator(*first, units_of_two(3), "key", Dispenser({{0}, {1, 2}}));
  std::thread dies([&] {
    const auto messages = open_sockets(peers[1]);
    Worker worker(*messages, units_of_two(3), "key");
    EXPECT_THAT(worker.next(), ElementsAre(2, 3));
  });  // and with it its socket, without a word
  coordinator.wait_for_plans();
  dies.join();
  const Coordinator::Ends ends = coordinator.wait_for_all();
  EXPECT_THAT(ends.gone, ElementsAre(1));
  std::set<int> rest;
  for (std::vector<int> prompts; !(prompts = coordinator.next()).empty();)
    rest.insert(prompts.begin(), prompts.end());
  EXPECT_THAT(rest, ElementsAre(0, 1, 2, 3, 4, 5));
}

// The first process had nothing to do, and is asked again when the other one has died.
TEST(SharedSources, NothingAtFirstAndThenWhatWasGivenBack) {
  const auto peers = make_socket_peers(2);
  const auto first = open_sockets(peers[0]);
  Coordinator coordinator(*first, units_of_two(1), "key", Dispenser({{}, {0}}));
  std::promise<void> taken, seen;
  std::thread dies([&] {
    const auto messages = open_sockets(peers[1]);
    Worker worker(*messages, units_of_two(1), "key");
    EXPECT_TRUE(worker.has_any());
    taken.set_value();
    seen.get_future().wait();
  });
  coordinator.wait_for_plans();
  taken.get_future().wait();
  EXPECT_FALSE(coordinator.has_any());
  seen.set_value();
  dies.join();
  EXPECT_THAT(coordinator.wait_for_all().gone, ElementsAre(1));
  EXPECT_TRUE(coordinator.has_any());
  EXPECT_THAT(coordinator.next(), ElementsAre(0, 1));
}

TEST(SharedSources, AnotherPlanIsRefused) {
  const auto peers = make_socket_peers(2);
  const auto first = open_sockets(peers[0]);
  Coordinator coordinator(*first, units_of_two(1), "key", Dispenser({{0}, {}}));
  std::thread other([&] {
    const auto messages = open_sockets(peers[1]);
    try {
      Worker worker(*messages, units_of_two(1), "other");
      ADD_FAILURE();
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kUsage);
      EXPECT_THAT(e.message(), HasSubstr("has another plan"));
    }
  });
  other.join();
  EXPECT_THROW(coordinator.wait_for_plans(), base::Error) << "it ended before it began";
}

TEST(SharedSources, WorkersSeeThatTheFirstIsGone) {
  const auto peers = make_socket_peers(2);
  auto first = open_sockets(peers[0]);
  const auto messages = open_sockets(peers[1]);
  first.reset();
  EXPECT_THROW(Worker(*messages, units_of_two(1), "key"), base::Error);
}

TEST(SocketPeers, ForACommandLine) {
  EXPECT_EQ(to_text({0, 3, {7, 9}}), "0/3:7,9");
  const SocketPeers peers = parse_socket_peers("2/3:8");
  EXPECT_EQ(peers.rank, 2);
  EXPECT_EQ(peers.size, 3);
  EXPECT_THAT(peers.descriptors, ElementsAre(8));
  EXPECT_THAT(parse_socket_peers(to_text({0, 1, {}})).descriptors, IsEmpty());
  for (const char* wrong : {"", "1/2", "3/3:4", "0/3:4", "1/3:4,5", "a/b:c"})
    EXPECT_THROW(parse_socket_peers(wrong), base::Error) << wrong;
}

TEST(DeviceSlots, CoresAreSharedOrNamed) {
  const std::vector<int> allowed = {0, 1, 2, 3, 4};
  EXPECT_THAT(parse_device_slots({"cpu", "cpu"}, allowed),
              ElementsAre(DeviceSlot{"cpu", {0, 1}}, DeviceSlot{"cpu", {2, 3}}));
  EXPECT_THAT(parse_device_slots({"cpu:1-2", "cpu:4"}, allowed),
              ElementsAre(DeviceSlot{"cpu", {1, 2}}, DeviceSlot{"cpu", {4}}));
  EXPECT_THAT(parse_device_slots({"cuda:0", "cuda:1"}, allowed),
              ElementsAre(DeviceSlot{"cuda:0", {}}, DeviceSlot{"cuda:1", {}}));
}

TEST(DeviceSlots, RefusesWhatWouldBeShared) {
  const auto refusal = [](const std::vector<std::string>& names) -> std::string {
    try {
      parse_device_slots(names, {0, 1});
    } catch (const base::Error& e) {
      return e.message();
    }
    return "";
  };
  EXPECT_THAT(refusal({"cuda:0", "cpu"}), HasSubstr("of two kinds"));
  EXPECT_THAT(refusal({"cuda:1", "cuda:1"}), HasSubstr("names cuda:1 twice"));
  EXPECT_THAT(refusal({"cuda", "cuda:0"}), HasSubstr("twice"));
  EXPECT_THAT(refusal({"cpu:0-1", "cpu:1"}), HasSubstr("core 1 twice"));
  EXPECT_THAT(refusal({"cpu:0-7"}), HasSubstr("core 2 of cpu:0-7"));
  EXPECT_THAT(refusal({"cpu:0", "cpu"}), HasSubstr("others have not"));
  EXPECT_THAT(refusal({"cpu", "cpu", "cpu"}), HasSubstr("3 processes, and 2 cores"));
  EXPECT_THAT(refusal({"cpu:x"}), HasSubstr("is no device"));
}

TEST(WithoutOption, BothForms) {
  EXPECT_THAT(without_option({"a", "--x", "1", "b", "--x=2", "--xy", "3"}, "--x"),
              ElementsAre("a", "b", "--xy", "3"));
}

}  // namespace
}  // namespace evalrun::runners
