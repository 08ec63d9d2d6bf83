// The threads of one forward: who does which rows and outputs, where they meet, where time goes.
//
// A row phase costs less than a barrier when there are few rows. Then every thread does all rows
// for itself, in a space of its own (Workspace), and the barrier after the phase is left out.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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
  // `made_up`: of ThreadPool.
  ForwardThreads(const Kernels& kernels, int n_threads, bool measure,
                 const Places* made_up = nullptr)
      : kernels_(kernels),
        pool_(n_threads, made_up),
        measure_(measure),
        tails_(static_cast<size_t>(pool_.size())),
        before_(static_cast<size_t>(pool_.size())) {}

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
  // What a thread does of n things in a row phase.
  ThreadPool::Range part(int n, int thread) const {
    return own_ ? ThreadPool::Range{0, n} : pool_.share(n, thread);
  }
  // Row ranges are the same in every row phase of a forward.
  template <typename F>
  void for_rows(int thread, const F& f) const {
    const auto [begin, end] = part(rows_, thread);
    for (int i = begin; i < end; ++i) f(static_cast<size_t>(i));
  }

  // Calls f(begin, end) for the panels, of `panels` with `bytes` in all, that this thread computes
  // for `rows` rows. That is its share; of a long product with few rows it is most of the share,
  // and then strips of what is left of it and of its neighbour's, taken by whoever is free: two
  // equal halves read from memory do not end together, and the wait would show. All threads of a
  // region come here in turn, with a barrier between.
  template <typename F>
  void for_panels(int panels, size_t bytes, int rows, int thread, const F& f) {
    const auto [begin, end] = pool_.share(panels, thread);
    if (size() == 1 || rows > kStripRows || bytes < kStripBytes * static_cast<size_t>(size())) {
      if (begin < end) f(begin, end);
      return;
    }
    if (begin < tail_of(panels, thread).begin) f(begin, tail_of(panels, thread).begin);
    Before& before = before_[static_cast<size_t>(thread)];
    take_strips(panels, thread, before.own, f);
    take_strips(panels, thread + 1 == size() ? 0 : thread + 1, before.neighbours, f);
  }

  // Each thread computes its part of all panels of the jobs.
  void multiply(std::span<const MatrixJob> jobs, const InputRows& in, int rows, int thread);
  void multiply_panels(const WeightMatrix& w, int first, int count, const InputRows& in, int rows,
                       float* y, int ldy) const;

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr int kStripRows = 4;  // more rows are bound by arithmetic
  // Of a share that is long enough: a strip costs an atomic addition, perhaps on another's line.
  static constexpr size_t kStripBytes = size_t{1} << 20;
  static constexpr int kStripPanels = 6;
  // How many strips of a thread's tail were taken so far, the vain tries after the last one
  // included.
  struct alignas(64) Tail {
    std::atomic<uint32_t> taken{0};
  };
  // The same before this product, of a thread's own tail and of its neighbour's. The thread and the
  // one before it each find a tail empty once per product, so both know without asking.
  struct alignas(64) Before {
    uint32_t own = 0, neighbours = 0;
  };

  // The last eighth of a thread's share.
  ThreadPool::Range tail_of(int panels, int thread) const {
    const auto [begin, end] = pool_.share(panels, thread);
    return {end - (end - begin) / 8, end};
  }
  template <typename F>
  void take_strips(int panels, int owner, uint32_t& before, const F& f) {
    const auto [begin, end] = tail_of(panels, owner);
    const int strips = (end - begin + kStripPanels - 1) / kStripPanels;
    std::atomic<uint32_t>& taken = tails_[static_cast<size_t>(owner)].taken;
    for (int i;
         (i = static_cast<int>(taken.fetch_add(1, std::memory_order_relaxed) - before)) < strips;) {
      const int first = begin + i * kStripPanels;
      f(first, std::min(first + kStripPanels, end));
    }
    before += static_cast<uint32_t>(strips) + 2;
  }

  const Kernels& kernels_;
  ThreadPool pool_;
  const bool measure_;
  int rows_ = 0;
  bool own_ = false;
  PhaseTimes times_;
  Clock::time_point mark_;
  std::vector<Tail> tails_;
  std::vector<Before> before_;
};

}  // namespace evalrun::engine::cpu
