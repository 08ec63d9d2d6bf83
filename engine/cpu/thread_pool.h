// A persistent team of threads for one parallel region at a time: every thread runs the same
// function and meets the others at barriers. Waiting spins briefly, then yields, then sleeps, so
// that a core taken away by another process makes a step slower but never stuck. On idle cores a
// region with its barriers makes no system call, allocates nothing and takes no lock.
//
// Pools of the same size share one team of threads (a target and a draft model decode in turns, on
// the same cores), which lives as long as one of them. Regions of such pools exclude each other;
// f must not start a region of a pool of the same size.
//
// Placement: worker t is pinned to the t-th CPU of cpu_order() (engine/cpu/cores.h) while the team
// lives. The calling thread is not pinned: it belongs to whoever embeds the engine. When a region
// finds it on a worker's CPU it is moved once to the first CPU of the order, which is kept free for
// it, and its own affinity mask is given back at once. Nothing is pinned with EVALRUN_PIN=0, with
// more threads than CPUs, or under a CPU quota below the CPUs allowed, where a fixed place would
// only add to the throttling.
#pragma once
#include <cstdint>
#include <memory>

#include "engine/cpu/places.h"

namespace evalrun::engine::cpu {

class ThreadTeam;

class ThreadPool {
 public:
  // `made_up`, for tests: places of the threads, one each, instead of those that they have.
  explicit ThreadPool(int n_threads, const Places* made_up = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int size() const { return n_threads_; }
  bool pinned() const;
  // Of the threads: one place where they are not pinned.
  Places places() const;

  // Runs f(thread) on all threads, the caller being thread 0; returns when all are done. f must not
  // throw.
  template <typename F>
  void run(const F& f) {
    if (n_threads_ == 1) {
      f(0);
      return;
    }
    start([](const void* g, int t) { (*static_cast<const F*>(g))(t); }, &f);
    f(0);
    finish();
  }
  // Inside run(): all threads wait for each other.
  void barrier();

  // Half-open share of n items for one thread: contiguous and as even as possible.
  struct Range {
    int begin, end;
  };
  Range share(int n, int thread) const {
    const int64_t t = thread, all = n_threads_;
    return {static_cast<int>(n * t / all), static_cast<int>(n * (t + 1) / all)};
  }

 private:
  void start(void (*call)(const void*, int), const void* object);
  void finish();

  int n_threads_;
  std::shared_ptr<ThreadTeam> team_;  // null for one thread
};

}  // namespace evalrun::engine::cpu
