// What a session will take of a GPU's memory, before any of it is allocated. Tested against what
// sessions take (CudaBackend.TheMemoryPlanIsEnough).
#pragma once
#include <cstddef>

#include "engine/session.h"

namespace evalrun::engine::cuda {

struct MemoryPlan {
  size_t weights = 0;  // not on the device yet, and the largest of them as it is uploaded
  size_t caches = 0;
  // Of a prefill chunk behind a full context, or a step of 64 rows with all logits and as many
  // answers, whichever takes more of each. Larger steps and low-rank updates come on top.
  size_t buffers = 0;
  // Allocations are rounded up to 2 MiB; code is loaded at its first launch, graphs take some.
  size_t driver = size_t{64} << 20;
  size_t total() const { return weights + caches + buffers + driver; }
};
// `missing_weights`: DeviceModel::missing_bytes().
MemoryPlan plan_memory(const Model& model, const SessionOptions& options, int head_stride,
                       size_t missing_weights);

// Throws data_error with what is needed, what is free, and a remedy.
void check_memory(const MemoryPlan& plan, const Model& model, const SessionOptions& options);

}  // namespace evalrun::engine::cuda
