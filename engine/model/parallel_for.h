// Independent pieces of work on several threads, for loading; sessions have a pool of their own.
#pragma once
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace evalrun::engine {

// Runs work(i) for i in 0..n-1 on several threads; rethrows the error of the lowest i that failed.
template <typename Work>
void parallel_for(int n_threads, size_t n, const Work& work) {
  std::atomic<size_t> next{0}, failed{n};
  std::exception_ptr error;
  std::mutex mutex;
  const auto run = [&] {
    for (size_t i = next++; i < n && i < failed; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < n_threads; ++t) threads.emplace_back(run);
  run();
  for (std::thread& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace evalrun::engine
