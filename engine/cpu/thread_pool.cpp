// The caller starts a region by advancing its number, for which all workers wait. Inside they meet
// at barriers (engine/cpu/barrier.h), and at its end the caller waits for all of them.
#include "engine/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/cpu/barrier.h"
#include "engine/cpu/cores.h"
#include "engine/cpu/dormitory.h"

namespace evalrun::engine::cpu {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::microseconds;

// At a barrier the others are a few microseconds away, after a large product tens of them. Else
// their core has been taken.
constexpr microseconds kBarrierSpin{100};
// Between two forwards lies the work of a method and the loop: some microseconds under greedy
// decoding, up to a few hundred where distributions over the vocabulary are needed. Waking a
// sleeper takes tens to hundreds of microseconds in a virtual machine, so a worker spins about as
// long as the sleep would cost and then gives the core to others.
constexpr microseconds kIdleSpin{100};
constexpr microseconds kMoveInterval{100'000};  // of the calling thread, at most so often

bool pinning_wanted(int n_threads, const CpuOrder& order) {
  const char* pin = std::getenv("EVALRUN_PIN");
  if (pin != nullptr && std::string_view(pin) == "0") return false;
  const size_t n = order.cpus.size();
  return static_cast<size_t>(n_threads) <= n && cpu_quota() >= static_cast<double>(n);
}

// Where a team's threads are.
struct TeamPlan {
  bool room = false;      // a CPU for each of them
  std::vector<int> cpus;  // [thread], empty when they are not pinned
  Places places;
};

TeamPlan plan_team(int n, const Places* made_up) {
  const CpuOrder order = cpu_order();
  TeamPlan plan;
  EVALRUN_CHECK(made_up == nullptr || made_up->node.size() == static_cast<size_t>(n),
                "places of {} threads for {}", made_up->node.size(), n);
  plan.room = static_cast<size_t>(n) <= order.cpus.size();
  if (pinning_wanted(n, order)) plan.cpus.assign(order.cpus.begin(), order.cpus.begin() + n);
  plan.places = made_up != nullptr  ? *made_up
                : plan.cpus.empty() ? one_place(n)
                                    : places_of(plan.cpus, "/sys/devices/system");
  return plan;
}

// Number of the running thread in its team; 0 for callers.
thread_local int thread_index = 0;

}  // namespace

class ThreadTeam {
 public:
  ThreadTeam(int n, TeamPlan plan)
      : plan_(std::move(plan)),
        // More threads than CPUs: whoever spins keeps another from working.
        idle_spin_(plan_.room ? kIdleSpin : microseconds{0}),
        barrier_spin_(plan_.room ? kBarrierSpin : microseconds{0}),
        barrier_(plan_barrier(meeting_groups(plan_.places)), dormitory_, barrier_spin_) {
    workers_.reserve(static_cast<size_t>(n - 1));
    try {
      for (int t = 1; t < n; ++t) workers_.emplace_back([this, t] { work(t); });
    } catch (...) {
      dismiss();
      throw;
    }
  }
  ~ThreadTeam() { dismiss(); }

  bool pinned() const { return !plan_.cpus.empty(); }
  const Places& places() const { return plan_.places; }

  void start(void (*call)(const void*, int), const void* object) {
    // Pools that share the team take turns.
    while (busy_.exchange(true)) dormitory_.wait([this] { return !busy_.load(); }, barrier_spin_);
    if (pinned()) leave_worker_cpu();
    callers_index_ = std::exchange(thread_index, 0);
    call_ = call;
    object_ = object;
    region_.store(region_.load(std::memory_order_relaxed) + 1);
    dormitory_.wake();
  }

  void finish() {
    barrier_.end(0);
    thread_index = callers_index_;
    busy_.store(false);
    dormitory_.wake();
  }

  void barrier() { barrier_.meet(thread_index); }

 private:
  void work(int thread) {
    thread_index = thread;
    if (pinned()) {
      cpu_set_t mask;
      CPU_ZERO(&mask);
      CPU_SET(static_cast<size_t>(plan_.cpus[static_cast<size_t>(thread)]), &mask);
      // A refusal (the CPU went offline) leaves the thread where it is, which is slower at most.
      pthread_setaffinity_np(pthread_self(), sizeof(mask), &mask);
    }
    uint32_t seen = 0;
    while (true) {
      dormitory_.wait([&] { return region_.load() != seen; }, idle_spin_);
      seen = region_.load();
      if (stop_.load()) return;
      call_(object_, thread);
      barrier_.end(thread);
    }
  }

  // Nobody but the owner of the last pool is left, so that no region runs.
  void dismiss() {
    stop_.store(true);
    region_.store(region_.load() + 1);
    dormitory_.wake();
    for (std::thread& t : workers_) t.join();
  }

  // Moves the caller to the CPU kept free for it. The kernel does so by itself, but may take some
  // milliseconds of two threads on one CPU. Not again soon: if the CPU is busy with another
  // process, the kernel has its reasons for moving the caller away.
  void leave_worker_cpu() {
    const int here = sched_getcpu();
    if (std::find(plan_.cpus.begin() + 1, plan_.cpus.end(), here) == plan_.cpus.end()) return;
    const auto now = SteadyClock::now();
    if (moved_ != SteadyClock::time_point{} && now - moved_ < kMoveInterval) return;
    moved_ = now;
    cpu_set_t own, first;
    CPU_ZERO(&first);
    CPU_SET(static_cast<size_t>(plan_.cpus[0]), &first);
    if (sched_getaffinity(0, sizeof(own), &own) != 0 ||
        !CPU_ISSET(static_cast<size_t>(plan_.cpus[0]), &own))
      return;
    if (sched_setaffinity(0, sizeof(first), &first) == 0) sched_setaffinity(0, sizeof(own), &own);
  }

  const TeamPlan plan_;
  const microseconds idle_spin_, barrier_spin_;
  Dormitory dormitory_;
  Barrier barrier_;
  std::vector<std::thread> workers_;
  // Written by the caller while it holds busy_.
  void (*call_)(const void*, int) = nullptr;
  const void* object_ = nullptr;
  int callers_index_ = 0;
  SteadyClock::time_point moved_{};
  alignas(64) std::atomic<uint32_t> region_{0};
  alignas(64) std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
};

namespace {

// The team of this size, shared by the pools that live. Apart for a process made by fork(), which
// inherits the memory of its parent's teams but none of their threads; and at made-up places.
std::shared_ptr<ThreadTeam> team_of(int n_threads, const Places* made_up) {
  if (made_up != nullptr)
    return std::make_shared<ThreadTeam>(n_threads, plan_team(n_threads, made_up));
  static std::mutex mutex;
  static std::map<std::pair<pid_t, int>, std::weak_ptr<ThreadTeam>> teams;
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<ThreadTeam>& known = teams[{getpid(), n_threads}];
  std::shared_ptr<ThreadTeam> team = known.lock();
  if (team == nullptr)
    known = team = std::make_shared<ThreadTeam>(n_threads, plan_team(n_threads, nullptr));
  return team;
}

}  // namespace

ThreadPool::ThreadPool(int n_threads, const Places* made_up) : n_threads_(std::max(1, n_threads)) {
  if (n_threads_ > 1) team_ = team_of(n_threads_, made_up);
}
ThreadPool::~ThreadPool() = default;

bool ThreadPool::pinned() const { return team_ != nullptr && team_->pinned(); }
Places ThreadPool::places() const { return team_ == nullptr ? one_place(1) : team_->places(); }
void ThreadPool::start(void (*call)(const void*, int), const void* object) {
  team_->start(call, object);
}
void ThreadPool::finish() { team_->finish(); }
void ThreadPool::barrier() {
  if (n_threads_ > 1) team_->barrier();
}

}  // namespace evalrun::engine::cpu
