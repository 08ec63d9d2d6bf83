// The threads of one forward: who does which rows and outputs, where they meet, where time goes.
//
// A row phase costs less than a barrier when there are few rows. Then every thread does all rows
// for itself, in a space of its own (Workspace), and the barrier after the phase is left out.
#pragma once
#include <chrono>
#include <cstddef>
#include <span>

#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/thread_pool.h"
#include "engine/results.h"

namespace evalrun::engine::cpu {

// y = w x
struct MatrixJob {
  const WeightMatrix* w;
  float* y;
  int ldy;
};

class ForwardThreads {
 public:
  ForwardThreads(const Kernels& kernels, int n_threads, bool measure)
      : kernels_(kernels), pool_(n_threads), measure_(measure) {}

  const Kernels& kernels() const { return kernels_; }
  ThreadPool& pool() { return pool_; }
  int size() const { return pool_.size(); }
  PhaseTimes times() const { return times_; }

  // Of a forward of `rows`. `own`: threads have all rows each for themselves.
  void begin(int rows, bool own);
  int rows() const { return rows_; }
  bool own() const { return own_; }
  size_t space(int thread) const { return own_ ? static_cast<size_t>(thread) : 0; }

  // Books the time since the last call on a phase; of the first thread only.
  void mark(int thread, double PhaseTimes::*phase);
  void barrier(int thread) {
    pool_.barrier();
    mark(thread, &PhaseTimes::waits);
  }
  // After a row phase: other threads need the rows, unless every thread has them.
  void row_barrier(int thread) {
    if (!own_) barrier(thread);
  }
  ThreadPool::Range share(int n, int thread) const { return pool_.share(n, thread); }
  // Row ranges are the same in every row phase of a forward.
  template <typename F>
  void for_rows(int thread, const F& f) const {
    const auto [begin, end] = own_ ? ThreadPool::Range{0, rows_} : pool_.share(rows_, thread);
    for (int i = begin; i < end; ++i) f(static_cast<size_t>(i));
  }

  // Each thread computes its share of all panels of the jobs.
  void multiply(std::span<const MatrixJob> jobs, const InputRows& in, int rows, int thread) const;
  void multiply_panels(const WeightMatrix& w, int first, int count, const InputRows& in, int rows,
                       float* y, int ldy) const;

 private:
  using Clock = std::chrono::steady_clock;

  const Kernels& kernels_;
  ThreadPool pool_;
  const bool measure_;
  int rows_ = 0;
  bool own_ = false;
  PhaseTimes times_;
  Clock::time_point mark_;
};

}  // namespace evalrun::engine::cpu
