#include "runners/machine/gpu_state.h"

#include <fmt/format.h>

#include "engine/cuda/runtime/product_path.h"
#include "engine/devices.h"

namespace evalrun::runners {

using engine::cuda::GpuFacts;
using engine::cuda::GpuSample;
using engine::cuda::Nvml;

std::map<std::string, std::string> describe_gpu(const engine::cuda::Device& gpu,
                                                const engine::cuda::DeviceList& list,
                                                const std::optional<GpuFacts>& facts) {
  std::map<std::string, std::string> e;
  e["gpu"] = gpu.name;
  e["gpu_compute"] = fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor);
  e["gpu_memory_bytes"] = std::to_string(gpu.memory_bytes);
  e["gpu_ecc"] = gpu.ecc ? "on" : "off";
  e["cuda_driver"] = list.driver_version;
  e["cuda_runtime"] = list.runtime_version;
  if (!facts) return e;
  if (!facts->driver_version.empty()) e["gpu_driver"] = facts->driver_version;
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) e[name] = fmt::format("{:.0f}", *value);
  };
  add("gpu_sm_mhz_max", facts->sm_mhz_max);
  add("gpu_memory_mhz_max", facts->memory_mhz_max);
  add("gpu_power_limit_w", facts->power_limit_w);
  if (facts->persistence) e["gpu_persistence"] = *facts->persistence ? "on" : "off";
  return e;
}

std::map<std::string, std::string> gpu_environment(const std::string& device) {
  if (!engine::is_gpu(device)) return {};
  const engine::cuda::DeviceList& list = engine::cuda::list_devices();
  const engine::cuda::Device& gpu = engine::find_gpu(device, list);
  auto e = describe_gpu(gpu, list, Nvml::of_this_machine().facts(gpu.pci_bus_id));
  e["cuda_path"] = std::string(engine::cuda::name_of(engine::cuda::product_path()));
  e["cublas"] = engine::cuda::cublas_version();  // What prefills, but in f32 and without a KV
                                                 // cache. "none": other bits there, and slower.
  return e;
}

std::optional<GpuSample> sample_gpu(const std::string& device) {
  if (!engine::is_gpu(device)) return std::nullopt;
  const engine::cuda::Device& gpu = engine::find_gpu(device, engine::cuda::list_devices());
  return Nvml::of_this_machine().sample(gpu.pci_bus_id);
}

results::GpuBusy busy_between(const engine::DeviceTime& before, const engine::DeviceTime& after) {
  const auto ns = [&](engine::DevicePhase p) { return after[p] - before[p]; };
  using enum engine::DevicePhase;
  return {ns(kPrefill), ns(kDraftPrefill), ns(kDraft),
          ns(kVerify),  ns(kCommit),       after.graph_misses - before.graph_misses};
}

std::optional<results::GpuRecord> gpu_between(const std::optional<GpuSample>& before,
                                              const std::optional<GpuSample>& after,
                                              const std::optional<results::GpuBusy>& busy) {
  const bool sampled = before && after;
  if (!sampled && !busy) return std::nullopt;
  results::GpuRecord g;
  g.busy = busy;
  if (!sampled) return g;
  g.temperature_c = after->temperature_c;
  g.power_w = after->power_w;
  if (before->energy_mj && after->energy_mj) g.energy_mj = *after->energy_mj - *before->energy_mj;
  g.slowed_by = engine::cuda::words_of_reasons(after->reasons.value_or(0));
  return g;
}

}  // namespace evalrun::runners
