// How the threads of a team meet.
//
// Threads of a group gather at their leader, the first of them, by a binary tree. Leaders meet
// among themselves by dissemination: ceil(log2 n) rounds, in round k one waits for the leader 2^k
// places before it. Each leader then releases its group by one store that all of it reads. So lines
// cross from group to group in the leaders' rounds only. Where every thread is a group of its own,
// this is dissemination among all. docs/cpu.md counts both.
//
// Every thread has counters that only it writes, on cache lines of their own: each step is one
// transfer of a line in one direction, and no line is written by two. Counters may wrap around.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cpu/dormitory.h"
#include "engine/cpu/places.h"

namespace evalrun::engine::cpu {

// Who waits for whom.
struct BarrierPlan {
  struct Seat {
    std::vector<int> children;  // in the tree of its group: it waits for them
    int leader = 0;             // of its group; of a leader: itself
    std::vector<int> partners;  // of a leader: in round k it waits for partners[k]
  };
  std::vector<Seat> seats;  // [thread]
};
// group: [thread], equal for threads of one group.
BarrierPlan plan_barrier(std::span<const int> group);

// [thread]: the groups in which threads at such places meet first. NUMA nodes where there are
// several; else the last-level caches of more than kFewThreads threads; else each thread alone.
std::vector<int> meeting_groups(const Places& places);
inline constexpr size_t kFewThreads = 4;

class Barrier {
 public:
  // `spin`: how long a thread spins before it gives its core away. `dormitory` must outlive this.
  // `rounds`: what the counters begin at, for tests.
  Barrier(BarrierPlan plan, Dormitory& dormitory, std::chrono::microseconds spin,
          uint32_t rounds = 0);

  // By every thread, with its number. All that was written before by any of them can be read after.
  void meet(int thread);
  // The same for thread 0 alone. The others wait only for those who gather at them.
  void end(int thread);

 private:
  // Written by one thread alone.
  struct Marks {
    alignas(64) std::atomic<uint32_t> gathered{0};  // meetings that it and those below it came to
    alignas(64) std::atomic<uint32_t> rounds{0};    // of dissemination, that it has reached
    alignas(64) std::atomic<uint32_t> released{0};  // meetings that its group may leave
  };

  Marks& marks(int thread) { return marks_[static_cast<size_t>(thread)]; }
  const BarrierPlan::Seat& seat(int thread) const {
    return plan_.seats[static_cast<size_t>(thread)];
  }
  // Waits for those who gather at the thread; the number of the meeting.
  uint32_t gather(int thread);
  void publish(std::atomic<uint32_t>& mark, uint32_t value);
  void await(const std::atomic<uint32_t>& mark, uint32_t value);

  const BarrierPlan plan_;
  Dormitory& dormitory_;
  const std::chrono::microseconds spin_;
  std::vector<Marks> marks_;  // [thread]
};

}  // namespace evalrun::engine::cpu
