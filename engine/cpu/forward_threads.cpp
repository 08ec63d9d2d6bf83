#include "engine/cpu/forward_threads.h"

#include "engine/cpu/kernels/arith.h"

namespace evalrun::engine::cpu {

void ForwardThreads::begin(int rows, bool own) {
  rows_ = rows, own_ = own;
  if (measure_) times_ = {}, mark_ = Clock::now();
}

void ForwardThreads::mark(int thread, double PhaseTimes::*phase) {
  if (!measure_ || thread != 0) return;
  const auto now = Clock::now();
  times_.*phase += std::chrono::duration<double, std::milli>(now - mark_).count();
  mark_ = now;
}

void ForwardThreads::multiply(std::span<const MatrixJob> jobs, const InputRows& in, int rows,
                              int thread) {
  int total = 0;
  size_t bytes = 0;
  for (const MatrixJob& j : jobs) total += j.w->panels(), bytes += j.w->size();
  for_panels(total, bytes, rows, thread, [&](int begin, int end) {
    int first = 0;
    for (const MatrixJob& j : jobs) {
      const int lo = std::max(begin - first, 0), hi = std::min(end - first, j.w->panels());
      if (lo < hi) multiply_panels(*j.w, lo, hi - lo, in, rows, j.y + lo * kLanes, j.ldy);
      first += j.w->panels();
    }
  });
}

void ForwardThreads::multiply_panels(const WeightMatrix& w, int first, int count,
                                     const InputRows& in, int rows, float* y, int ldy) const {
  cpu::multiply(kernels_, w.storage(),
                {in, rows, w.panel(first), w.panel_bytes(), count, w.in(), w.out() - first * kLanes,
                 y, ldy, kernels_.one_stream});
}

}  // namespace evalrun::engine::cpu
