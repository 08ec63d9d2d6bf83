#include "engine/cpu/thread_pool.h"

#include <algorithm>

namespace evalrun::engine::cpu {
namespace {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins about 20 us, then gives the core away, then sleeps in the kernel until the value changes.
void wait_while(std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < 500; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_cpu();
  }
  for (int i = 0; i < 200; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) : n_threads_(std::max(1, n_threads)) {
  for (int t = 1; t < n_threads_; ++t) threads_.emplace_back([this, t] { worker(t); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::start() {
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

void ThreadPool::finish() { barrier(); }

void ThreadPool::barrier() {
  if (n_threads_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
  } else {
    wait_while(phase_, phase);
  }
}

void ThreadPool::worker(int thread) {
  uint32_t seen = 0;
  while (true) {
    wait_while(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    call_(object_, thread);
    barrier();
  }
}

}  // namespace evalrun::engine::cpu
