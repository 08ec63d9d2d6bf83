// The end of a forward: final norm, output matrix and answers are queued; once the queue has run,
// what came back is read.
#pragma once
#include <vector>

#include "engine/answers.h"
#include "engine/cuda/device_session.h"
#include "engine/cuda/forward_step.h"
#include "engine/cuda/step_buffers.h"
#include "engine/forward_plan.h"
#include "engine/results.h"

namespace evalrun::engine::cuda {

// Of the answers that rows of this step want, their n_best largest logits among them.
AnswerShape answer_shape(const StepShape& shape, const ForwardRequest& request, int n_best,
                         int n_logits);

class AnswerReader {
 public:
  AnswerReader(DeviceSession& session, StepBuffers& buffers) : session_(session), b_(buffers) {}

  // After the layers (LayerQueue::queue).
  void queue(const ForwardStep& step);
  // Everything in `result` but its source; logits only where has_logits() says so.
  void read(const ForwardStep& step, const ForwardPlan& plan, ForwardResult& result,
            Answers& answers);

  // Whether all rows of logits were sent unasked.
  static bool sends_logits(const StepShape& shape);
  bool has_logits(int slot) const { return fetched_[static_cast<size_t>(slot)]; }
  // The head's product is the last that is queued, and is not overwritten before the next forward.
  void queue_logits(int slot);
  void logits_came(int slot) { fetched_[static_cast<size_t>(slot)] = true; }

 private:
  void queue_hidden(const ForwardStep& step);
  void queue_answers(const ForwardStep& step);
  void queue_head(const int32_t* index, int rows, float* logits);
  const int32_t* list(size_t at) const;  // in the record
  NormJob final_norm(const int32_t* index) const;
  void to_host(const PinnedBuffer& to, const DeviceBuffer& from, size_t first, size_t values);
  void read_answer(const ForwardStep& step, int i, int32_t row, Answers& answers);

  DeviceSession& session_;
  StepBuffers& b_;
  std::vector<MatrixView> residual_views_;
  std::vector<TokenLogit> best_;
  std::vector<bool> fetched_;  // rows of logits_host
};

}  // namespace evalrun::engine::cuda
