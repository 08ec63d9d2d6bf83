// A persistent pool for one parallel region at a time: every thread runs the same function and
// meets the others at barriers. Waiting spins briefly, then yields, then sleeps, so that a core
// taken away by another process makes a step slower but never stuck.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace evalrun::engine::cpu {

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int size() const { return n_threads_; }

  // Runs f(thread) on all threads, the caller being thread 0; returns when all are done. f must not
  // throw. Allocates nothing.
  template <typename F>
  void run(const F& f) {
    if (n_threads_ == 1) {
      f(0);
      return;
    }
    call_ = [](const void* g, int t) { (*static_cast<const F*>(g))(t); };
    object_ = &f;
    start();
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
  void start();
  void finish();
  void worker(int thread);

  int n_threads_;
  std::vector<std::thread> threads_;
  void (*call_)(const void*, int) = nullptr;
  const void* object_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace evalrun::engine::cpu
