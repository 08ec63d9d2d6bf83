#include "engine/cuda/runtime/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

namespace evalrun::engine::cuda {
namespace {

// The part of NVML's interface that is used here.
constexpr int kSuccess = 0;                // NVML_SUCCESS
constexpr unsigned kSm = 1, kMemory = 2;   // nvmlClockType_t
constexpr unsigned kTemperatureOfDie = 0;  // NVML_TEMPERATURE_GPU
constexpr unsigned kTextSize = 96;         // NVML_DEVICE_NAME_V2_BUFFER_SIZE, the longest asked for
struct Memory {                            // nvmlMemory_t, bytes
  unsigned long long total = 0, free = 0, used = 0;
};

struct Reason {
  uint64_t bit;
  const char* words;
  bool slows;  // below what was asked for
};
constexpr Reason kReasons[] = {
    // nvmlClocksEventReason...
    {0x001, "idle", false},           {0x002, "clocks set by the user", false},
    {0x004, "power cap", true},       {0x008, "hardware slowdown", true},
    {0x010, "sync boost", false},     {0x020, "heat (software)", true},
    {0x040, "heat (hardware)", true}, {0x080, "power brake", true},
    {0x100, "display clocks", false},
};

std::optional<double> thousandth(const std::optional<double>& value) {
  return value ? std::optional(*value / 1000) : std::nullopt;
}

}  // namespace

std::string words_of_reasons(uint64_t reasons) {
  std::string words;
  const auto add = [&](const std::string& more) { words += (words.empty() ? "" : ", ") + more; };
  for (const Reason& reason : kReasons) {
    if ((reasons & reason.bit) != 0) add(reason.words);
    reasons &= ~reason.bit;
  }
  if (reasons != 0) add(fmt::format("reason 0x{:x}", reasons));
  return words;
}

bool is_slowed(uint64_t reasons) {
  for (const Reason& reason : kReasons)
    if (reason.slows && (reasons & reason.bit) != 0) return true;
  return false;
}

// False when there is no such function or it does not succeed.
template <typename... Arguments>
bool Nvml::call(const char* function, Arguments... arguments) const {
  if (library_ == nullptr) return false;
  using Function = int (*)(Arguments...);
  const auto f = reinterpret_cast<Function>(::dlsym(library_, function));
  return f != nullptr && f(arguments...) == kSuccess;
}

template <typename T, typename Value, typename... Arguments>
std::optional<T> Nvml::value_of(const char* function, Arguments... arguments) const {
  Value value{};
  if (!call(function, arguments..., &value)) return std::nullopt;
  return static_cast<T>(value);
}

Nvml::Nvml(const std::string& library) {
  if (library.empty()) return;
  library_ = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  started_ = call("nvmlInit_v2");
}

Nvml::~Nvml() {
  if (started_) call("nvmlShutdown");
  if (library_ != nullptr) ::dlclose(library_);
}

const Nvml& Nvml::of_this_machine() {
  static const Nvml nvml([] {
    const char* other = std::getenv("EVALRUN_NVML");
    return std::string(other != nullptr ? other : "libnvidia-ml.so.1");
  }());
  return nvml;
}

std::optional<Nvml::Handle> Nvml::handle_of(const std::string& pci_bus_id) const {
  Handle gpu = nullptr;
  if (!started_ || !call("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &gpu))
    return std::nullopt;
  return gpu;
}

std::optional<GpuSample> Nvml::sample(const std::string& pci_bus_id) const {
  const std::optional<Handle> gpu = handle_of(pci_bus_id);
  if (!gpu) return std::nullopt;
  GpuSample s;
  s.sm_mhz = value_of<double>("nvmlDeviceGetClockInfo", *gpu, kSm);
  s.temperature_c = value_of<double>("nvmlDeviceGetTemperature", *gpu, kTemperatureOfDie);
  s.power_w = thousandth(value_of<double>("nvmlDeviceGetPowerUsage", *gpu));
  s.energy_mj = value_of<int64_t, unsigned long long>("nvmlDeviceGetTotalEnergyConsumption", *gpu);
  // Older drivers know the older name only.
  for (const char* name :
       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"})
    if (!s.reasons) s.reasons = value_of<uint64_t, unsigned long long>(name, *gpu);
  return s;
}

GpuFacts Nvml::facts_of(Handle gpu) const {
  GpuFacts f;
  char text[kTextSize] = "";
  if (call("nvmlDeviceGetName", gpu, std::data(text), kTextSize)) f.name = text;
  if (call("nvmlSystemGetDriverVersion", std::data(text), kTextSize)) f.driver_version = text;
  f.sm_mhz_max = value_of<double>("nvmlDeviceGetMaxClockInfo", gpu, kSm);
  f.memory_mhz = value_of<double>("nvmlDeviceGetClockInfo", gpu, kMemory);
  f.memory_mhz_max = value_of<double>("nvmlDeviceGetMaxClockInfo", gpu, kMemory);
  f.power_limit_w = thousandth(value_of<double>("nvmlDeviceGetEnforcedPowerLimit", gpu));
  f.persistence = value_of<bool>("nvmlDeviceGetPersistenceMode", gpu);
  unsigned ecc = 0, ecc_pending = 0;
  if (call("nvmlDeviceGetEccMode", gpu, &ecc, &ecc_pending)) f.ecc = ecc != 0;
  if (Memory memory; call("nvmlDeviceGetMemoryInfo", gpu, &memory)) {
    f.memory_used_bytes = static_cast<int64_t>(memory.used);
    f.memory_free_bytes = static_cast<int64_t>(memory.free);
  }
  return f;
}

std::optional<GpuFacts> Nvml::facts(const std::string& pci_bus_id) const {
  const std::optional<Handle> gpu = handle_of(pci_bus_id);
  return gpu ? std::optional(facts_of(*gpu)) : std::nullopt;
}

std::vector<GpuFacts> Nvml::all() const {
  std::vector<GpuFacts> found;
  unsigned count = 0;
  if (!started_ || !call("nvmlDeviceGetCount_v2", &count)) return found;
  for (unsigned i = 0; i < count; ++i)
    if (Handle gpu = nullptr; call("nvmlDeviceGetHandleByIndex_v2", i, &gpu))
      found.push_back(facts_of(gpu));
  return found;
}

}  // namespace evalrun::engine::cuda
