#include "engine/cpu/barrier.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

namespace evalrun::engine::cpu {

BarrierPlan plan_barrier(std::span<const int> group) {
  BarrierPlan plan;
  plan.seats.resize(group.size());
  std::map<int, std::vector<int>> members;
  for (size_t t = 0; t < group.size(); ++t) members[group[t]].push_back(static_cast<int>(t));
  std::vector<int> leaders;
  for (const auto& [number, threads] : members) {
    const size_t n = threads.size();
    leaders.push_back(threads.front());
    for (size_t i = 0; i < n; ++i) {
      BarrierPlan::Seat& seat = plan.seats[static_cast<size_t>(threads[i])];
      seat.leader = threads.front();
      for (size_t step = 1; i + step < n && (i & step) == 0; step *= 2)
        seat.children.push_back(threads[i + step]);
    }
  }
  // In the order of threads: neighbours meet in the first rounds.
  std::sort(leaders.begin(), leaders.end());
  const size_t n = leaders.size();
  for (size_t distance = 1; distance < n; distance *= 2)
    for (size_t i = 0; i < n; ++i)
      plan.seats[static_cast<size_t>(leaders[i])].partners.push_back(
          leaders[(i + n - distance) % n]);
  return plan;
}

std::vector<int> meeting_groups(const Places& places) {
  const auto differ = [](const std::vector<int>& of) {
    return std::adjacent_find(of.begin(), of.end(), std::not_equal_to<>()) != of.end();
  };
  if (differ(places.node)) return places.node;
  if (places.node.size() > kFewThreads && differ(places.cluster)) return places.cluster;
  std::vector<int> alone(places.node.size());
  std::iota(alone.begin(), alone.end(), 0);
  return alone;
}

Barrier::Barrier(BarrierPlan plan, Dormitory& dormitory, std::chrono::microseconds spin,
                 uint32_t rounds)
    : plan_(std::move(plan)), dormitory_(dormitory), spin_(spin), marks_(plan_.seats.size()) {
  for (Marks& m : marks_) m.gathered = rounds, m.rounds = rounds, m.released = rounds;
}

void Barrier::meet(int thread) {
  Marks& own = marks(thread);
  const uint32_t meeting = gather(thread);
  if (seat(thread).leader != thread) {
    publish(own.gathered, meeting);
    return await(marks(seat(thread).leader).released, meeting);
  }
  own.gathered.store(meeting, std::memory_order_relaxed);  // of leaders, end() alone looks at it
  for (const int partner : seat(thread).partners) {
    const uint32_t round = own.rounds.load(std::memory_order_relaxed) + 1;
    publish(own.rounds, round);
    await(marks(partner).rounds, round);
  }
  if (!seat(thread).children.empty()) publish(own.released, meeting);
}

void Barrier::end(int thread) {
  const uint32_t meeting = gather(thread);
  publish(marks(thread).gathered, meeting);
  if (thread != 0) return;
  for (size_t t = 1; t < marks_.size(); ++t)
    if (plan_.seats[t].leader == static_cast<int>(t)) await(marks_[t].gathered, meeting);
}

uint32_t Barrier::gather(int thread) {
  const uint32_t meeting = marks(thread).gathered.load(std::memory_order_relaxed) + 1;
  for (const int child : seat(thread).children) await(marks(child).gathered, meeting);
  return meeting;
}

void Barrier::publish(std::atomic<uint32_t>& mark, uint32_t value) {
  mark.store(value);
  dormitory_.wake();
}

void Barrier::await(const std::atomic<uint32_t>& mark, uint32_t value) {
  // Signed distance: the counters may wrap around.
  dormitory_.wait([&] { return static_cast<int32_t>(mark.load() - value) >= 0; }, spin_);
}

}  // namespace evalrun::engine::cpu
