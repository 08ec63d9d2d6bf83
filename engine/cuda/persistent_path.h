// The layers of a step by one kernel (kernels/all_layers.h), with EVALRUN_CUDA_PATH=persistent:
// which models and which steps go that way. All others take the launches of layer_queue.cpp, with
// the same bits.
#pragma once
#include <string_view>

#include "engine/cuda/device_model.h"
#include "engine/cuda/forward_step.h"
#include "engine/cuda/kernels/all_layers.h"
#include "engine/cuda/kernels/key_values.h"
#include "engine/cuda/runtime/memory.h"

namespace evalrun::engine::cuda {

class PersistentPath {
 public:
  // On the current device. Takes no memory where the model never goes this way; where it was asked
  // for, the first such model of a process is said to stderr.
  PersistentPath(const ModelConfig& config, const DeviceModel& weights, KvType type,
                 int head_stride);

  // Known before anything of the step is queued: a step of few rows that brings keys and values of
  // its own, in whole layers, and asks for nothing from between them.
  bool takes(const ForwardStep& step) const;
  // What job says of the step, layer 0's keys and values among it, with the rest filled in.
  void queue(LayersJob job, cudaStream_t stream) const;

 private:
  // What of the model has no place there; empty: nothing.
  static std::string_view refused(const ModelConfig& config, const DeviceModel& weights,
                                  KvType type, int head_stride);
  const ModelConfig& c_;
  HeadItems heads_;  // without tiles: no step goes this way
  WeightStorage storage_ = WeightStorage::kBf16;
  int multiprocessors_ = 0;
  DeviceBuffer layers_, count_;
};

}  // namespace evalrun::engine::cuda
