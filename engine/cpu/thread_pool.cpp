// How threads meet. Each thread has a counter on a cache line of its own that only it writes: "so
// many rounds reached". A barrier is ceil(log2 n) rounds (dissemination: in round k a thread waits
// for the one 2^k places before it), so that each step is one transfer of a cache line in one
// direction and no line is written by two. At the end of a region the caller waits for all workers,
// and they wait for nobody.
//
// Waiting spins, then gives the core away, then sleeps in the kernel. Whoever advances a counter
// must know whether somebody sleeps: the counter is stored, then the number of sleepers read; the
// sleeper announces itself, then reads the counter. All four in the one order of seq_cst, so that
// one of the two sees the other. Without sleepers nothing enters the kernel.
#include "engine/cpu/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cpu/cores.h"

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
constexpr int kYields = 50;
constexpr microseconds kMoveInterval{100'000};  // of the calling thread, at most so often

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is a plain word");
void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  // Returns early for many reasons (EAGAIN, EINTR); every caller looks again at what it waits for.
  syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

// Sleeping and waking for any number of conditions.
class Dormitory {
 public:
  // Returns when done() does. done() must read with seq_cst what others store with seq_cst before
  // they call wake().
  template <typename Done>
  void wait(const Done& done, microseconds spin) {
    if (done()) return;
    if (spin.count() > 0) {
      const auto end = SteadyClock::now() + spin;
      do {
        for (int i = 0; i < 32; ++i) {
          pause_cpu();
          if (done()) return;
        }
      } while (SteadyClock::now() < end);
    }
    for (int i = 0; i < kYields; ++i) {
      std::this_thread::yield();
      if (done()) return;
    }
    while (true) {
      sleepers_.fetch_add(1);
      const uint32_t bell = bell_.load();
      const bool ready = done();
      if (!ready) futex(bell_, FUTEX_WAIT_PRIVATE, bell);
      sleepers_.fetch_sub(1);
      if (ready) return;
    }
  }
  void wake() {
    if (sleepers_.load() == 0) return;
    bell_.fetch_add(1);
    futex(bell_, FUTEX_WAKE_PRIVATE, INT_MAX);
  }

 private:
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> bell_{0};
};

bool pinning_wanted(int n_threads, const CpuOrder& order) {
  const char* pin = std::getenv("EVALRUN_PIN");
  if (pin != nullptr && std::string_view(pin) == "0") return false;
  const size_t n = order.cpus.size();
  return static_cast<size_t>(n_threads) <= n && cpu_quota() >= static_cast<double>(n);
}

// Number of the running thread in its team; 0 for callers.
thread_local int thread_index = 0;

}  // namespace

class ThreadTeam {
 public:
  explicit ThreadTeam(int n) : n_(n), marks_(static_cast<size_t>(n)) {
    const CpuOrder order = cpu_order();
    pinned_ = pinning_wanted(n, order);
    // More threads than CPUs: whoever spins keeps another from working.
    const bool room = static_cast<size_t>(n) <= order.cpus.size();
    barrier_spin_ = room ? kBarrierSpin : microseconds{0};
    idle_spin_ = room ? kIdleSpin : microseconds{0};
    if (pinned_) cpus_.assign(order.cpus.begin(), order.cpus.begin() + n);
    workers_.reserve(static_cast<size_t>(n - 1));
    try {
      for (int t = 1; t < n; ++t) workers_.emplace_back([this, t] { work(t); });
    } catch (...) {
      dismiss();
      throw;
    }
  }
  ~ThreadTeam() { dismiss(); }

  bool pinned() const { return pinned_; }

  void start(void (*call)(const void*, int), const void* object) {
    // Pools that share the team take turns.
    while (busy_.exchange(true)) dormitory_.wait([this] { return !busy_.load(); }, barrier_spin_);
    if (pinned_) leave_worker_cpu();
    callers_index_ = std::exchange(thread_index, 0);
    call_ = call;
    object_ = object;
    region_.store(region_.load(std::memory_order_relaxed) + 1);
    dormitory_.wake();
  }

  void finish() {
    const uint32_t target = advance(0);
    for (int t = 1; t < n_; ++t) await(t, target);
    thread_index = callers_index_;
    busy_.store(false);
    dormitory_.wake();
  }

  void barrier() {
    const int me = thread_index;
    for (int distance = 1; distance < n_; distance *= 2) {
      const uint32_t target = advance(me);
      await(me >= distance ? me - distance : me - distance + n_, target);
    }
  }

 private:
  // Rounds a thread has reached. Written by it alone.
  struct alignas(64) Mark {
    std::atomic<uint32_t> rounds{0};
  };

  uint32_t advance(int thread) {
    std::atomic<uint32_t>& rounds = marks_[static_cast<size_t>(thread)].rounds;
    const uint32_t next = rounds.load(std::memory_order_relaxed) + 1;
    rounds.store(next);
    dormitory_.wake();
    return next;
  }

  void await(int thread, uint32_t target) {
    const std::atomic<uint32_t>& rounds = marks_[static_cast<size_t>(thread)].rounds;
    // Signed distance: the counters may wrap around.
    dormitory_.wait([&] { return static_cast<int32_t>(rounds.load() - target) >= 0; },
                    barrier_spin_);
  }

  void work(int thread) {
    thread_index = thread;
    if (pinned_) {
      cpu_set_t mask;
      CPU_ZERO(&mask);
      CPU_SET(static_cast<size_t>(cpus_[static_cast<size_t>(thread)]), &mask);
      // A refusal (the CPU went offline) leaves the thread where it is, which is slower at most.
      pthread_setaffinity_np(pthread_self(), sizeof(mask), &mask);
    }
    uint32_t seen = 0;
    while (true) {
      dormitory_.wait([&] { return region_.load() != seen; }, idle_spin_);
      seen = region_.load();
      if (stop_.load()) return;
      call_(object_, thread);
      advance(thread);
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
    if (std::find(cpus_.begin() + 1, cpus_.end(), here) == cpus_.end()) return;
    const auto now = SteadyClock::now();
    if (moved_ != SteadyClock::time_point{} && now - moved_ < kMoveInterval) return;
    moved_ = now;
    cpu_set_t own, first;
    CPU_ZERO(&first);
    CPU_SET(static_cast<size_t>(cpus_[0]), &first);
    if (sched_getaffinity(0, sizeof(own), &own) != 0 ||
        !CPU_ISSET(static_cast<size_t>(cpus_[0]), &own))
      return;
    if (sched_setaffinity(0, sizeof(first), &first) == 0) sched_setaffinity(0, sizeof(own), &own);
  }

  const int n_;
  bool pinned_ = false;
  microseconds barrier_spin_{}, idle_spin_{};
  std::vector<int> cpus_;  // [n] when pinned
  std::vector<Mark> marks_;
  std::vector<std::thread> workers_;
  // Written by the caller while it holds busy_.
  void (*call_)(const void*, int) = nullptr;
  const void* object_ = nullptr;
  int callers_index_ = 0;
  SteadyClock::time_point moved_{};
  alignas(64) std::atomic<uint32_t> region_{0};
  alignas(64) std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
  Dormitory dormitory_;
};

namespace {

// The team of this size, shared by the pools that live. Apart for a process made by fork(), which
// inherits the memory of its parent's teams but none of their threads.
std::shared_ptr<ThreadTeam> team_of(int n_threads) {
  static std::mutex mutex;
  static std::map<std::pair<pid_t, int>, std::weak_ptr<ThreadTeam>> teams;
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<ThreadTeam>& known = teams[{getpid(), n_threads}];
  std::shared_ptr<ThreadTeam> team = known.lock();
  if (team == nullptr) known = team = std::make_shared<ThreadTeam>(n_threads);
  return team;
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) : n_threads_(std::max(1, n_threads)) {
  if (n_threads_ > 1) team_ = team_of(n_threads_);
}
ThreadPool::~ThreadPool() = default;

bool ThreadPool::pinned() const { return team_ != nullptr && team_->pinned(); }
void ThreadPool::start(void (*call)(const void*, int), const void* object) {
  team_->start(call, object);
}
void ThreadPool::finish() { team_->finish(); }
void ThreadPool::barrier() {
  if (n_threads_ > 1) team_->barrier();
}

}  // namespace evalrun::engine::cpu
