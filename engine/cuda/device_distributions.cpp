#include "engine/cuda/device_distributions.h"

#include <atomic>

#include "engine/base/error.h"

namespace evalrun::engine::cuda {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

}  // namespace

DeviceDistributions::DeviceDistributions(int device, int slots, int vocab,
                                         std::span<const int32_t> ids)
    : DistributionStore(fmt::format("cuda:{}", device), slots, vocab, ids),
      device_(device),
      id_(next_id()) {
  EVALRUN_CUDA(cudaSetDevice(device_));
  const auto n = static_cast<size_t>(slots);
  // Cleared: a token that is nobody's output never gets a mass.
  mass_.ensure(n * static_cast<size_t>(vocab) * sizeof(uint64_t));
  total_.ensure(n * sizeof(uint64_t));
  if (!ids.empty()) {
    ids_.ensure(ids.size_bytes());
    ids_.upload(ids.data(), ids.size_bytes());
  }
}

DeviceDistributions::~DeviceDistributions() { (void)cudaSetDevice(device_); }

DistributionMemory DeviceDistributions::memory() const {
  return {mass_.as<uint64_t>(), total_.as<uint64_t>(), ids_.as<int32_t>(), vocab()};
}

const DeviceDistributions& dists_on(const DistributionStore& store, int device) {
  const auto* dists = dynamic_cast<const DeviceDistributions*>(&store);
  EVALRUN_CHECK(dists != nullptr && dists->on() == device, "distributions on {}, not on cuda:{}",
                store.device(), device);
  return *dists;
}

}  // namespace evalrun::engine::cuda
