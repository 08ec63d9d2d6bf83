// What NVML, the driver's management library, says about a GPU: clocks, power, heat, energy. It is
// loaded at run time (libnvidia-ml.so.1), in builds without CUDA, too. Whatever is missing - the
// library, a function an older driver lacks, a value this GPU does not have - is absent, never an
// error. Source: NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace evalrun::engine::cuda {

// At one moment. Cheap: some tens of microseconds.
struct GpuSample {
  std::optional<double> sm_mhz = {};
  std::optional<double> temperature_c = {};
  std::optional<double> power_w = {};     // averaged by the driver, over a second on newer GPUs
  std::optional<int64_t> energy_mj = {};  // since the driver was loaded
  std::optional<uint64_t> reasons = {};   // why clocks are below their maximum, as bits; see below
};

// What stays, and memory as it is now.
struct GpuFacts {
  std::string name, driver_version;  // "" = not available
  std::optional<double> sm_mhz_max, memory_mhz, memory_mhz_max, power_limit_w;
  std::optional<int64_t> memory_used_bytes, memory_free_bytes;
  std::optional<bool> ecc, persistence;
};

// "power cap, heat (software)"; "" = full speed. Idle is a reason as well.
std::string words_of_reasons(uint64_t reasons);
// Is something in the way of a measurement: power, heat or the hardware's emergency brake?
bool is_slowed(uint64_t reasons);

class Nvml {
 public:
  // Loads and starts `library`; available() is false when that fails.
  explicit Nvml(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  // The machine's, loaded once. Tests name another library in EVALRUN_NVML ("" = none).
  static const Nvml& of_this_machine();

  bool available() const { return started_; }
  // Of the GPU with this PCI bus id ("0000:41:00.0"); nullopt when NVML does not know it.
  std::optional<GpuSample> sample(const std::string& pci_bus_id) const;
  std::optional<GpuFacts> facts(const std::string& pci_bus_id) const;
  // Of all GPUs of the machine, whether CUDA can use them or not.
  std::vector<GpuFacts> all() const;

 private:
  using Handle = void*;  // nvmlDevice_t
  template <typename... Arguments>
  bool call(const char* function, Arguments... arguments) const;
  // The last argument of the function is where it puts a Value.
  template <typename T, typename Value = unsigned, typename... Arguments>
  std::optional<T> value_of(const char* function, Arguments... arguments) const;
  std::optional<Handle> handle_of(const std::string& pci_bus_id) const;
  GpuFacts facts_of(Handle gpu) const;

  void* library_ = nullptr;
  bool started_ = false;
};

}  // namespace evalrun::engine::cuda
