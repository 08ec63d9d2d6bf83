// Room for answers (answers.h) on both sides, and what they mean to the host.
#pragma once
#include <span>
#include <vector>

#include "engine/cuda/kernels/answers.h"
#include "engine/cuda/runtime/memory.h"
#include "engine/sampling.h"

namespace evalrun::engine::cuda {

class AnswerBuffers {
 public:
  // Room for the logits, too: queue() finds them there. True when something moved.
  bool make_room(const AnswerShape& shape);
  float* logits() const { return logits_.as<float>(); }
  // Queues the kernels and the copy to the host.
  void queue(const AnswerShape& shape, const AnswerInputs& inputs, cudaStream_t stream);

  // Of the last queue(), once the stream was waited for. Throws data_error where a logit is no
  // number, and for draws and masses where no logit is finite, or one is infinite.
  void read(const AnswerShape& shape, int row, std::vector<TokenLogit>& best) const;
  double log_sum(const AnswerShape& shape, int row) const;
  int32_t drawn(const AnswerShape& shape, int row) const;
  // Of rows with a task: the child that passed, -1 = none; the drawn token's mass; its draws in
  // turn, -1 = nothing was left.
  int passed(const AnswerShape& shape, int row) const;
  uint64_t drawn_mass(const AnswerShape& shape, int row) const;
  int32_t drawn_token(const AnswerShape& shape, int row, int i) const;

  std::vector<const DeviceBuffer*> buffers() const { return {&logits_, &workspace_, &result_}; }

 private:
  const uint64_t* row_of(const AnswerShape& shape, int row) const {
    return host_.as<uint64_t>() + static_cast<size_t>(row) * static_cast<size_t>(shape.stride());
  }
  float finite_best(const AnswerShape& shape, int row) const;
  DeviceBuffer logits_, workspace_, result_;
  PinnedBuffer host_;
};

}  // namespace evalrun::engine::cuda
