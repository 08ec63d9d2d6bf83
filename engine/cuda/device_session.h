// What one session has on its device for as long as it lives: a queue, the model, keys and values.
// The parts of a forward (StepBuffers, LayerQueue, AnswerReader) work on it.
#pragma once
#include <memory>

#include "engine/cuda/dense.h"
#include "engine/cuda/device_model.h"
#include "engine/cuda/kernels/row_ops.h"
#include "engine/cuda/kernels/step_record.h"
#include "engine/cuda/kv_memory.h"
#include "engine/cuda/persistent_path.h"
#include "engine/cuda/runtime/phase_events.h"
#include "engine/cuda/runtime/queue.h"
#include "engine/model/model.h"
#include "engine/session.h"

namespace evalrun::engine::cuda {

struct DeviceSession {
  // Throws usage_error when the kernels cannot take the model's heads and data_error when the
  // device's memory is too small.
  DeviceSession(const Model& model, const SessionOptions& options, int device);

  cudaStream_t stream() const { return queue.stream(); }
  size_t value_bytes() const { return bf16 ? 2 : 4; }
  // Chunks of a prompt, where there is work for cuBLAS. Depends on the chunk alone, so every method
  // prefills by the same calls.
  bool dense_chunk(const StepShape& s) const;
  // What was queued since the last mark belongs to `phase`.
  void mark(double PhaseTimes::*phase) {
    if (measure) events.mark(phase, stream());
  }

  const ModelConfig& c;
  const int device;
  const bool bf16;  // inputs and queries; float32 with f32 weights
  const bool measure;
  Queue queue;
  const int head_stride;
  const std::unique_ptr<Dense> dense;  // nullptr: prefill goes through the kernels of decoding
  const DeviceModel weights;
  const PersistentPath persistent;
  KvMemory kv;
  PhaseEvents events;  // when `measure`
};

}  // namespace evalrun::engine::cuda
