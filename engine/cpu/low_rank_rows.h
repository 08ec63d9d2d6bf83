// Low-rank updates of the rows of a forward that are flagged (ForwardRequest::low_rank), by the
// kernels of any matrix: y += B (scale * A x). One object per thread.
#pragma once
#include <initializer_list>

#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/prepared_rows.h"
#include "engine/cpu/thread_pool.h"
#include "engine/forward_plan.h"
#include "engine/model/low_rank.h"

namespace evalrun::engine::cpu {

class LowRankRows {
 public:
  struct Job {
    const LowRankFactor* factor;  // empty = nothing
    Rows* y;
  };
  // Of matrices with the same input x [rows, width], for the flagged rows of a share; neighbours at
  // once, so that factors are read once for them.
  void add(const Kernels& kernels, const ForwardPlan& plan, ThreadPool::Range share,
           std::initializer_list<Job> jobs, Rows& x) {
    const auto flagged = [&](int i) { return plan.rows()[static_cast<size_t>(i)].low_rank; };
    for (int first = share.begin; first < share.end; ++first) {
      if (!flagged(first)) continue;
      int last = first + 1;
      while (last < share.end && flagged(last)) ++last;
      const WeightMatrix* prepared = nullptr;  // whose input in_ holds
      for (const Job& job : jobs) {
        if (job.factor->empty()) continue;
        const WeightMatrix& a = job.factor->a;
        if (prepared == nullptr || prepared->storage() != a.storage()) {
          in_.ensure(kernels, a.storage(), static_cast<size_t>(last - first), a.in());
          for (int i = first; i < last; ++i)
            in_.set(static_cast<size_t>(i - first), a, x.row(static_cast<size_t>(i)));
        }
        prepared = &a;
        multiply(kernels, *job.factor, last - first, *job.y, first);
      }
      first = last;
    }
  }
  size_t bytes() const { return in_.bytes() + middle_.bytes() + inner_.bytes() + delta_.bytes(); }

 private:
  void multiply(const Kernels& kernels, const LowRankFactor& f, int rows, Rows& y, int first) {
    inner_.ensure(static_cast<size_t>(rows), static_cast<size_t>(f.rank()));
    product(kernels, f.a, in_, rows, inner_);
    middle_.ensure(kernels, f.b.storage(), static_cast<size_t>(rows), f.rank());
    for (int i = 0; i < rows; ++i) {
      float* inner = inner_.row(static_cast<size_t>(i));
      for (int r = 0; r < f.rank(); ++r) inner[r] = inner[r] * f.scale;
      middle_.set(static_cast<size_t>(i), f.b, inner);
    }
    delta_.ensure(static_cast<size_t>(rows), static_cast<size_t>(f.b.out()));
    product(kernels, f.b, middle_, rows, delta_);
    for (int i = 0; i < rows; ++i)
      kernels.add(y.row(static_cast<size_t>(first + i)), delta_.row(static_cast<size_t>(i)),
                  f.b.out());
  }
  static void product(const Kernels& kernels, const WeightMatrix& w, const PreparedRows& in,
                      int rows, Rows& y) {
    cpu::multiply(kernels, w.storage(),
                  {in.view(w), rows, w.panel(0), w.panel_bytes(), w.panels(), w.in(), w.out(),
                   y.row(0), y.ld(), kernels.one_stream});
  }

  PreparedRows in_, middle_;
  Rows inner_, delta_;
};

}  // namespace evalrun::engine::cpu
