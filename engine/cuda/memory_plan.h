// What a session will take of a GPU's memory, before any of it is allocated. Tested against what
// sessions take (CudaBackend.TheMemoryPlanIsWhatIsTaken).
#pragma once
#include <cstddef>
#include <string>

#include "engine/cuda/kernels/answers.h"
#include "engine/cuda/kernels/step_record.h"
#include "engine/session.h"

namespace evalrun::engine::cuda {

// Backend::prefill_chunk(). The CPU's 256 rows are 256 operations a byte of bfloat16 weights, about
// what an H100 computes while it reads one, and have fewer output tiles than it has
// multiprocessors.
constexpr int kPromptChunk = 1024;

// The largest shapes that are planned for: a prefill chunk after a full context, and a step of 64
// rows with all logits and as many answers, 16 of them rejection_tests. A session makes room for
// both when it is created, so that what others find free is free, and nothing is allocated in a
// timed step up to this size.
struct PlannedShapes {
  StepShape prefill, step;
  AnswerShape answers;  // of the step
};
PlannedShapes planned_shapes(const ModelConfig& config, int max_tokens, bool bf16);

struct MemoryPlan {
  size_t weights = 0;  // not on the device yet, and the largest of them as it is uploaded
  size_t caches = 0;
  // Of the planned shapes, whichever takes more of each. Larger steps, low-rank updates and kept
  // distributions come on top.
  size_t buffers = 0;
  // Allocations are rounded up to 2 MiB; code is loaded at its first launch, graphs take some.
  size_t driver = size_t{64} << 20;
  size_t total() const { return weights + caches + buffers + driver; }
};
// `missing_weights`: DeviceModel::missing_bytes().
MemoryPlan plan_memory(const Model& model, const SessionOptions& options, int head_stride,
                       size_t missing_weights);
// Of a model by its shape alone, with nothing on the device yet.
MemoryPlan plan_memory(const ModelConfig& config, WeightFormat format,
                       const SessionOptions& options);

// Of "cuda:N".
int device_index(const std::string& device);

// Throws data_error with what is needed, what is free, and a remedy.
void check_memory(const MemoryPlan& plan, const Model& model, const SessionOptions& options);

}  // namespace evalrun::engine::cuda
