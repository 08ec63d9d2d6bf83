// The memory that a forward computes in. It only grows, so that a steady state allocates nothing.
#pragma once
#include <vector>

#include "engine/cuda/answer_buffers.h"
#include "engine/cuda/device_session.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/runtime/memory.h"

namespace evalrun::engine::cuda {

class StepBuffers {
 public:
  explicit StepBuffers(DeviceSession& session) : session_(session) {}

  // What else than its shape decides how much a forward takes.
  struct Extras {
    size_t embedding_values = 0, residual_values = 0;
    int kept = 0;  // rows of earlier forwards that stay
    const DeviceLowRank* low_rank = nullptr;
  };
  // Every buffer of a forward of this shape, the rows' keys and values included. True when
  // something moved, which makes all graphs stale. Where memory runs out on the way, the next call
  // says so.
  bool make_room(const StepShape& shape, const AnswerShape& answers, const Extras& extras);
  size_t device_bytes() const;

  // Page-locked: what is copied to the device, and what comes from it.
  PinnedBuffer record_host, embeddings_host, logits_host, hidden_host, residual_host;
  DeviceBuffer record, embeddings;
  DeviceBuffer x;     // residual stream
  DeviceBuffer e;     // embeddings beside it, in models with paired input
  DeviceBuffer sums;  // of a product, all outputs of a device matrix
  DeviceBuffer dense_sums, unpacked;
  DeviceBuffer q, partial;
  DeviceBuffer inner, outer;  // of low-rank updates: A x, and its inputs in A's format
  DeviceBuffer logits, hidden;
  AnswerBuffers answers;
  ProductWorkspace workspace;
  // Inputs of products.
  InputRows layer_in, o_in, down_in, head_in;

 private:
  std::vector<const DeviceBuffer*> buffers() const;
  void ensure_layer_inputs(int rows);
  void ensure_low_rank(const DeviceLowRank& low_rank, int rows);
  void ensure_outputs(const StepShape& shape, const AnswerShape& answers);
  void ensure_workspace(WeightStorage storage, int width, int rows);
  template <typename Kind>
  void ensure(Buffer<Kind>& buffer, size_t bytes) {
    if (buffer.ensure(bytes)) moved_ = true;
  }
  template <typename Kind>
  void ensure_floats(Buffer<Kind>& buffer, size_t n) {
    ensure(buffer, n * sizeof(float));
  }
  InputRows input_rows(DeviceBuffer& buffer, int rows, int width, bool bf16);

  DeviceSession& session_;
  DeviceBuffer layer_in_, o_in_, down_in_, head_in_;
  bool moved_ = false;
};

}  // namespace evalrun::engine::cuda
