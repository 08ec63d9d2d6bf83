#include "engine/cuda/device_laws.h"

#include <atomic>

#include "engine/base/error.h"

namespace evalrun::engine::cuda {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

}  // namespace

DeviceLaws::DeviceLaws(int device, int slots, int vocab, std::span<const int32_t> ids)
    : LawStore(fmt::format("cuda:{}", device), slots, vocab, ids), device_(device), id_(next_id()) {
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

DeviceLaws::~DeviceLaws() { (void)cudaSetDevice(device_); }

LawMemory DeviceLaws::memory() const {
  return {mass_.as<uint64_t>(), total_.as<uint64_t>(), ids_.as<int32_t>(), vocab()};
}

const DeviceLaws& laws_on(const LawStore& store, int device) {
  const auto* laws = dynamic_cast<const DeviceLaws*>(&store);
  EVALRUN_CHECK(laws != nullptr && laws->on() == device, "laws on {}, not on cuda:{}",
                store.device(), device);
  return *laws;
}

}  // namespace evalrun::engine::cuda
