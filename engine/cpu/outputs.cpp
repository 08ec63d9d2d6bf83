#include "engine/cpu/outputs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/norm.h"
#include "engine/sampling.h"

namespace evalrun::engine::cpu {

Outputs::Outputs(const NodeWeights& weights, ForwardThreads& threads, Workspace& workspace)
    : weights_(weights),
      c_(weights.model().config()),
      kernels_(threads.kernels()),
      threads_(threads),
      w_(workspace) {}

void Outputs::begin(const ForwardPlan& plan) {
  plan_ = &plan;
  next_strip_.store(0, std::memory_order_relaxed);
}

void Outputs::run(int thread) {
  threads_.row_barrier(thread);  // the rows below may belong to other threads' ranges
  Rows& x = w_.spaces[threads_.space(thread)].x;
  const WeightMatrix& w = weights_.of(thread).head();
  const auto& hidden = plan_->hidden_rows();
  const auto& logits = plan_->logit_rows();
  const auto& top = plan_->answer_rows();
  const auto normed = [&](int32_t row, float* to) {
    norm_row(kernels_, c_, weights_.model().final_norm(), x.row(static_cast<size_t>(row)), to);
  };
  const auto h = threads_.share(static_cast<int>(hidden.size()), thread);
  for (int i = h.begin; i < h.end; ++i)
    normed(hidden[static_cast<size_t>(i)], w_.hidden.row(static_cast<size_t>(i)));
  // Rows of logits first, then those that want only the argmax.
  const int n_logits = static_cast<int>(logits.size()), n_top = static_cast<int>(top.size());
  const auto mine = threads_.share(n_logits + n_top, thread);
  for (int i = mine.begin; i < mine.end; ++i) {
    const int32_t row =
        i < n_logits ? logits[static_cast<size_t>(i)] : top[static_cast<size_t>(i - n_logits)];
    float* to = w_.normed.row(static_cast<size_t>(i));
    normed(row, to);
    w_.head_in.set(static_cast<size_t>(i), w, to);
  }
  threads_.mark(thread, &PhaseTimes::head);
  if (n_logits + n_top == 0) return;
  threads_.barrier(thread);
  if (n_logits > 0) {
    const MatrixJob job = {&w, w_.logits.row(0), w_.logits.ld()};
    threads_.multiply({&job, 1}, w_.head_in.view(w), n_logits, thread);
  }
  if (n_top > 0) find_top(thread, n_logits, n_top);
  threads_.mark(thread, &PhaseTimes::head);
}

// The argmax of rows [first, first + rows) of the prepared head inputs, strip by strip: no row of
// logits is ever written to memory.
void Outputs::find_top(int thread, int first, int rows) {
  const WeightMatrix& w = weights_.of(thread).head();
  Workspace::Best& best = w_.best[static_cast<size_t>(thread)];
  for (int i = 0; i < rows; ++i) {
    std::fill_n(best.value.row(static_cast<size_t>(i)), kLanes, -__builtin_inff());
    std::fill_n(best.block.row(static_cast<size_t>(i)), kLanes, 0.0f);
  }
  const InputRows in = w_.head_in.view(w).from(first);
  // Whoever is free takes the next strip: the head is the longest product, and the wait for the
  // slower of two equal halves would show. A thread's strips ascend, so the first of equal logits
  // stays the best.
  for (int panel; (panel = next_strip_.fetch_add(1, std::memory_order_relaxed) * w_.strip_panels) <
                  w.panels();) {
    const int count = std::min(w_.strip_panels, w.panels() - panel);
    threads_.multiply_panels(w, panel, count, in, rows, best.logits.row(0), best.logits.ld());
    const int n_out = std::min(count * kLanes, w.out() - panel * kLanes);
    for (int i = 0; i < rows; ++i) {
      const size_t r = static_cast<size_t>(i);
      float* value = best.value.row(r);
      const float* y = best.logits.row(r);
      // No later logit is greater than NaN, so it stays to be found in read_top.
      if (!kernels_.track_max(y, n_out, panel, value, best.block.row(r)) &&
          std::any_of(y, y + n_out, [](float logit) { return std::isnan(logit); }))
        value[0] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

void Outputs::read(ForwardResult& result, Answers& answers) {
  const int rows = plan_->n_rows();
  result.logits = {w_.logits.data.data(), static_cast<int>(plan_->logit_rows().size()),
                   c_.n_logits()};
  result.hidden = {w_.hidden.data.data(), static_cast<int>(plan_->hidden_rows().size()),
                   c_.d_model};
  residual_views_.clear();
  for (Rows& r : w_.residual) residual_views_.push_back({r.row(0), rows, c_.d_model});
  result.residual = residual_views_;
  read_top(answers);
}

void Outputs::read_top(Answers& answers) const {
  const auto& rows = plan_->answer_rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    float value = -__builtin_inff();
    int32_t token = -1;
    for (Workspace::Best& b : w_.best)
      for (int lane = 0; lane < kLanes; ++lane) {
        const float v = b.value.row(i)[lane];
        if (std::isnan(v)) argmax({&v, 1});  // throws, as it does for NaN wherever one stands
        const int32_t t = static_cast<int32_t>(b.block.row(i)[lane]) * kLanes + lane;
        if (token < 0 || v > value || (v == value && t < token)) value = v, token = t;
      }
    answers.set_top(rows[i], token);
  }
}

}  // namespace evalrun::engine::cpu
