// Distributions that drafts were drawn from, kept on a device as masses by target id (answers.h).
#pragma once
#include <span>

#include "engine/cuda/kernels/answers.h"
#include "engine/cuda/runtime/memory.h"
#include "engine/session.h"

namespace evalrun::engine::cuda {

class DeviceDistributions final : public DistributionStore {
 public:
  DeviceDistributions(int device, int slots, int vocab, std::span<const int32_t> ids);
  ~DeviceDistributions() override;
  DistributionMemory memory() const;
  int on() const { return device_; }
  uint64_t id() const { return id_; }  // no other store's, ever

 private:
  const int device_;
  const uint64_t id_;
  DeviceBuffer mass_, total_, ids_;
};

// The store as this device's; InternalError when it is not.
const DeviceDistributions& dists_on(const DistributionStore& store, int device);

}  // namespace evalrun::engine::cuda
