// Queues a forward up to the stream before the final norm: the copy of its record and rows, the
// embedding, the layers. It waits for nothing and reads nothing back.
#pragma once
#include <vector>

#include "engine/cuda/device_session.h"
#include "engine/cuda/forward_step.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/kernels/row_ops.h"
#include "engine/cuda/step_buffers.h"

namespace evalrun::engine::cuda {

class LayerQueue {
 public:
  LayerQueue(DeviceSession& session, StepBuffers& buffers) : session_(session), b_(buffers) {}

  // False when the last layer's keys and values are all that is wanted, and nothing may follow.
  bool queue(const ForwardStep& step);

 private:
  void copy_inputs();
  void attention_block(int l);
  void rotate(int l);
  void attend(int l);
  AttentionArguments attention_of(int l) const;
  void all_layers();
  void mlp_block(int l);
  void keep_residual(int l);
  bool skipped(const std::vector<bool> SkipSet::*set, int l) const;
  bool ends_at(int l) const { return step_->shape().kv_only && l == session_.c.n_layers - 1; }

  void norm(const float* weights, const float* x, const InputRows& to, int at);
  InputRows input_of(const JointMatrix& m) const;
  void product(const DeviceMatrix& m, const InputRows& in, const Epilogue& e);
  void product_to_sums(const JointMatrix& m, const InputRows& in, const float* bias);
  void product_to_residual(const JointMatrix& m, const InputRows& in, int l, int group,
                           const float* bias);
  UpdateJob update_of(int l, int which, const InputRows& in, const JointMatrix& m,
                      const float* bias);

  DeviceSession& session_;
  StepBuffers& b_;

  // Of the forward that is queued.
  const ForwardStep* step_ = nullptr;
  const StepRow* rows_ = nullptr;
  const StepHeader* header_ = nullptr;
  const int32_t* visible_ = nullptr;
  const AttentionItem *items_ = nullptr, *items_windowed_ = nullptr;
};

}  // namespace evalrun::engine::cuda
