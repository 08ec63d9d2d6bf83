#include "engine/devices.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "engine/base/error.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cuda/runtime/product_path.h"

namespace evalrun::engine {
namespace {

constexpr std::string_view kCuda = "cuda", kNumbered = "cuda:";

// N of "cuda:N", 0 of "cuda".
std::optional<int> gpu_index(std::string_view device) {
  if (device == kCuda) return 0;
  if (!device.starts_with(kNumbered)) return std::nullopt;
  const std::string_view digits = device.substr(kNumbered.size());
  int index = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc{} || end != digits.data() + digits.size() || index < 0)
    return std::nullopt;
  return index;
}

std::string usable_names(const cuda::DeviceList& gpus) {
  return fmt::format("devices here: {}", fmt::join(available_devices(gpus), ", "));
}

base::Error refused(const std::string& device, const std::string& why, const std::string& remedy,
                    const cuda::DeviceList& gpus) {
  return base::usage_error(fmt::format("device '{}' cannot be used: {}", device, why),
                           usable_names(gpus) + (remedy.empty() ? std::string() : "; " + remedy));
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const cpu::Kernels& k : cpu::available_kernels()) names.push_back(k.name);
  names.push_back("reference");
  return names;
}

std::vector<std::string> one_isa_paths() {
  std::vector<std::string> names;
  for (const cpu::Kernels& k : cpu::available_kernels())
    if (cpu::one_isa_kernels(k.name) != nullptr) names.push_back(k.name);
  return names;
}

std::vector<std::string> kv_dtypes() { return {"f32", "bf16", "int8", "fp8", "int4"}; }
bool kv_in_bytes(const std::string& kv_dtype) { return kv_dtype == "int8" || kv_dtype == "fp8"; }

bool is_gpu(const std::string& device) { return gpu_index(device).has_value(); }

std::vector<std::string> available_devices() { return available_devices(cuda::list_devices()); }

std::vector<std::string> available_devices(const cuda::DeviceList& gpus) {
  std::vector<std::string> names = {"cpu"};
  for (const cuda::Device& gpu : gpus.devices) {
    if (!unusable_because(gpu).empty()) continue;
    if (gpu.index == 0) names.emplace_back(kCuda);
    names.push_back(fmt::format("{}{}", kNumbered, gpu.index));
  }
  return names;
}

std::string unusable_because(const cuda::Device& gpu) {
  if (gpu.compute_major >= kLeastComputeMajor) return {};
  return fmt::format("its compute capability {}.{} is below {}.0", gpu.compute_major,
                     gpu.compute_minor, kLeastComputeMajor);
}

GpuObstacle gpu_obstacle(const cuda::DeviceList& gpus) {
  if (std::any_of(gpus.devices.begin(), gpus.devices.end(),
                  [](const cuda::Device& gpu) { return unusable_because(gpu).empty(); }))
    return {};
  if (!gpus.compiled_in)
    return {"this build has no CUDA",
            "install the CUDA Toolkit 12 or newer and configure again: cmake --preset cuda"};
  if (gpus.driver_version.empty())
    return {"there is no NVIDIA driver (libcuda.so.1)",
            "install the driver; a container needs it passed in (docker run --gpus all)"};
  if (gpus.old_driver)
    return {fmt::format("the driver runs CUDA up to {}, this build needs {}", gpus.driver_version,
                        gpus.runtime_version),
            fmt::format("update the driver, or build with a toolkit of CUDA {} or older",
                        gpus.driver_version)};
  if (!gpus.error.empty())
    return {"CUDA says: " + gpus.error, "see whether nvidia-smi works on this machine"};
  if (gpus.devices.empty())
    return {"the driver sees no GPU", "see nvidia-smi and CUDA_VISIBLE_DEVICES"};
  std::string names;
  for (const cuda::Device& gpu : gpus.devices)
    names += fmt::format("{}{}{}: {}, {}", names.empty() ? "" : "; ", kNumbered, gpu.index,
                         gpu.name, unusable_because(gpu));
  return {names, "the kernels need Ampere or newer"};
}

const cuda::Device& find_gpu(const std::string& device, const cuda::DeviceList& gpus) {
  const std::optional<int> index = gpu_index(device);
  if (!index)
    throw base::usage_error(fmt::format("unknown device '{}'", device), usable_names(gpus));
  const auto found = std::find_if(gpus.devices.begin(), gpus.devices.end(),
                                  [&](const cuda::Device& gpu) { return gpu.index == *index; });
  if (found != gpus.devices.end()) {
    const std::string why = unusable_because(*found);
    const std::string path = cuda::path_refused(found->compute_major, found->compute_minor);
    if (why.empty() && path.empty()) return *found;
    if (why.empty())
      throw refused(device, found->name + ": " + path, std::string(cuda::kPathRemedy), gpus);
    throw refused(device, found->name + ": " + why, "the kernels need Ampere or newer", gpus);
  }
  const GpuObstacle obstacle = gpu_obstacle(gpus);
  if (!obstacle.why.empty()) throw refused(device, obstacle.why, obstacle.remedy, gpus);
  throw refused(device, "there is no such GPU", "", gpus);
}

void check_device(const std::string& device) {
  if (device == "cpu") return;
  (void)find_gpu(device, cuda::list_devices());
}

}  // namespace evalrun::engine
