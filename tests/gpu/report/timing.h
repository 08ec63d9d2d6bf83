// Times on the device, taken by events at the launches of the backend (LaunchObserver).
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/runtime/check.h"
#include "engine/cuda/runtime/memory.h"

namespace evalrun::engine::gpu_report {

// Reads `bytes`, a multiple of 16, once. `sink` is one word that is hardly ever written.
void queue_read_all(const void* from, size_t bytes, unsigned* sink, cudaStream_t stream);

// Median with the interval that holds the distribution's median in 95 % of cases (order
// statistics; needs no distribution). values not empty.
struct Summary {
  double median = 0, lo = 0, hi = 0;
  int n = 0;
};
Summary summarise(std::vector<double> values);

class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  void record(cudaStream_t stream) const;
  double ms_since(const Event& earlier) const;  // both have happened

 private:
  cudaEvent_t handle_ = nullptr;
};

// Copies from one large piece of device memory to another, and reads of it: what a device can move,
// and something to keep it busy with while the host queues what is to be timed after it, so that no
// gap between launches is counted. That something reads: lines that a copy wrote would be written
// back while the timed work runs.
class Copies {
 public:
  // Copies for `warm_s` seconds before it measures: an idle device has low clocks.
  Copies(size_t bytes, double warm_s);
  // Bytes read and written per second, best of ten copies.
  double bytes_per_second() const { return bytes_per_second_; }
  // Bytes read per second by a kernel that does nothing else, best of ten: what products are near
  // at best. Above the former, as memory need not turn round between reading and writing.
  double read_bytes_per_second() const { return read_bytes_per_second_; }
  size_t bytes() const { return from_.bytes(); }
  // About this many milliseconds of work; nothing of what was in the caches is left there.
  void queue(double ms, cudaStream_t stream) const;

 private:
  void queue_one(cudaStream_t stream) const;
  void queue_read(cudaStream_t stream) const;
  template <typename Queue>
  double best_ms(const Queue& queue, cudaStream_t stream) const;
  cuda::DeviceBuffer from_, to_;
  double bytes_per_second_ = 0, read_bytes_per_second_ = 0;
};

// Times of whole graphs: from when the device reaches the graph to when it has finished it.
class GraphTimer final : public cuda::LaunchObserver {
 public:
  explicit GraphTimer(const Copies& copies) : copies_(copies) {}
  void before(const char* kernel, cudaStream_t stream) override;
  void after(const char* kernel, cudaStream_t stream) override;
  // Of the graph launched since the last call, which must be one, and done.
  double take_ms();

 private:
  const Copies& copies_;
  Event begin_, end_;
  int graphs_ = 0;
};

// Products of n x n x n bfloat16 by cuBLAS on random numbers, the best of ten; 0 without cuBLAS.
struct DensePeak {
  int n = 0;
  double flops_per_second = 0;
};
DensePeak dense_peak(int n);

// What two events take with nothing between them: counted once in the time of every kernel.
double empty_span_us(const Copies& copies);

// Times of single kernels, summed by name.
class KernelTimer final : public cuda::LaunchObserver {
 public:
  struct Total {
    int launches = 0;
    double ms = 0;
  };
  // The device is kept busy for `busy_ms` before the first kernel of each step.
  KernelTimer(const Copies& copies, double busy_ms) : copies_(copies), busy_ms_(busy_ms) {}
  void before(const char* kernel, cudaStream_t stream) override;
  void after(const char* kernel, cudaStream_t stream) override;
  // What was launched since the last call, which must be done.
  std::map<std::string, Total> take();

 private:
  struct Span {
    Event begin, end;
    std::string kernel;
  };
  const Copies& copies_;
  double busy_ms_;
  std::vector<Span> spans_;  // events are used again
  size_t used_ = 0;
};

// Watches the launches of this process while it lives.
class Watching {
 public:
  explicit Watching(cuda::LaunchObserver& observer) { cuda::launch_observer() = &observer; }
  ~Watching() { cuda::launch_observer() = nullptr; }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;
};

}  // namespace evalrun::engine::gpu_report
