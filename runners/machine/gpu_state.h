// The GPU a run is measured on: what it is, and what it did during a generation. Empty on the CPU
// and where the driver does not tell (engine/cuda/runtime/nvml.h).
#pragma once
#include <map>
#include <optional>
#include <string>

#include "engine/cuda/runtime/devices.h"
#include "engine/cuda/runtime/nvml.h"
#include "engine/device_time.h"
#include "results/records.h"

namespace evalrun::runners {

// For the environment of a run on `device`: gpu, gpu_compute, gpu_memory_bytes, gpu_driver,
// cuda_driver, cuda_runtime, cuda_path (which kernels multiply), cublas, gpu_sm_mhz_max,
// gpu_memory_mhz_max, gpu_power_limit_w, gpu_ecc, gpu_persistence. Empty for "cpu"; usage_error for
// a device that cannot be used.
std::map<std::string, std::string> gpu_environment(const std::string& device);
// The same for a given machine.
std::map<std::string, std::string> describe_gpu(const engine::cuda::Device& gpu,
                                                const engine::cuda::DeviceList& list,
                                                const std::optional<engine::cuda::GpuFacts>& facts);

// nullopt on the CPU, and where NVML is silent.
std::optional<engine::cuda::GpuSample> sample_gpu(const std::string& device);
// From readings of engine::device_time() at both ends of a generation.
results::GpuBusy busy_between(const engine::DeviceTime& before, const engine::DeviceTime& after);
// From samples at both ends of a generation; nullopt without them (either) and without `busy`.
std::optional<results::GpuRecord> gpu_between(const std::optional<engine::cuda::GpuSample>& before,
                                              const std::optional<engine::cuda::GpuSample>& after,
                                              const std::optional<results::GpuBusy>& busy);

}  // namespace evalrun::runners
