// Waiting for other threads: spins briefly, then gives the core away, then sleeps in the kernel.
//
// Whoever lets others go on stores with seq_cst and then calls wake(), which reads the number of
// sleepers; a sleeper announces itself, then reads what it waits for. All four in the one order of
// seq_cst, so that one of the two sees the other. Without sleepers nothing enters the kernel.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace evalrun::engine::cpu {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// For any number of threads and conditions.
class Dormitory {
 public:
  // Returns when done() does. done() must read with seq_cst what others store with seq_cst before
  // they call wake().
  template <typename Done>
  void wait(const Done& done, std::chrono::microseconds spin) {
    if (done()) return;
    if (spin.count() > 0) {
      const auto end = std::chrono::steady_clock::now() + spin;
      do {
        for (int i = 0; i < 32; ++i) {
          pause_cpu();
          if (done()) return;
        }
      } while (std::chrono::steady_clock::now() < end);
    }
    for (int i = 0; i < kYields; ++i) {
      std::this_thread::yield();
      if (done()) return;
    }
    while (true) {
      sleepers_.fetch_add(1);
      const uint32_t bell = bell_.load();
      const bool ready = done();
      if (!ready) sleep(bell);
      sleepers_.fetch_sub(1);
      if (ready) return;
    }
  }
  void wake() {
    if (sleepers_.load() != 0) ring();
  }

 private:
  static constexpr int kYields = 50;
  void sleep(uint32_t bell);  // until the next ring, or earlier
  void ring();

  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> bell_{0};
};

}  // namespace evalrun::engine::cpu
