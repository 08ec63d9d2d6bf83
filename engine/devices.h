// What this machine can compute on: devices by name, as --device takes them ("cpu", "cuda:N", and
// "cuda" for "cuda:0"), instruction sets, cores, formats of the KV cache.
#pragma once
#include <string>
#include <vector>

#include "engine/cuda/runtime/devices.h"

namespace evalrun::engine {

inline constexpr int kLeastComputeMajor = 8;  // compute capability 8.0: bfloat16, async copies

// Instruction-set paths this machine can run, best first; "reference" is always last. All give the
// same bits.
std::vector<std::string> available_isas();
// Those with bits of their own, faster (SessionOptions::one_isa).
std::vector<std::string> one_isa_paths();
// Physical cores this process may use (affinity mask and cgroup quota): the default thread count.
int allowed_cores();
// "f32", "bf16", "int8".
std::vector<std::string> kv_dtypes();
// A byte each and a scale per position and head: what a GPU has beside the type of its weights.
bool kv_in_bytes(const std::string& kv_dtype);

bool is_gpu(const std::string& device);  // a CUDA device by its name, there or not

// Names that can be used, "cpu" first. The one with a list is for tests.
std::vector<std::string> available_devices();
std::vector<std::string> available_devices(const cuda::DeviceList& gpus);

// Why no GPU can be used, and what to do about it; `why` is empty when one can.
struct GpuObstacle {
  std::string why, remedy;
};
GpuObstacle gpu_obstacle(const cuda::DeviceList& gpus);
// "" = usable; else "its compute capability 7.5 is below 8.0".
std::string unusable_because(const cuda::Device& gpu);

// Throws usage_error for a name nobody knows and for a device that cannot be used: why not, what
// can be used, the remedy. Looks at GPUs only when a GPU is named.
void check_device(const std::string& device);
// The GPU of that name, with the same errors.
const cuda::Device& find_gpu(const std::string& device, const cuda::DeviceList& gpus);

}  // namespace evalrun::engine
