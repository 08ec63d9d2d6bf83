// The forward under way: what was asked, and how the device is told.
#pragma once
#include "engine/cuda/device_distributions.h"
#include "engine/cuda/device_model.h"
#include "engine/cuda/kernels/answers.h"
#include "engine/cuda/kernels/step_record.h"
#include "engine/rows.h"

namespace evalrun::engine::cuda {

struct ForwardStep {
  const ForwardRequest* request = nullptr;
  StepRecord record;
  AnswerShape answers;
  const DeviceLowRank* low_rank = nullptr;
  const DeviceDistributions* dists = nullptr;  // of tasks, if there are any

  const StepShape& shape() const { return record.shape(); }
  // Of the host's rows: none where they are on the device already.
  size_t embedding_bytes() const {
    const InputView& e = request->embeddings;
    if (e.data == nullptr || e.computed) return 0;
    return static_cast<size_t>(e.rows) * static_cast<size_t>(e.cols) * sizeof(float);
  }
};

}  // namespace evalrun::engine::cuda
