// A libnvidia-ml of one GPU, for the tests of engine/cuda/runtime/nvml.h on machines without a
// driver. Its energy counter moves by 1500 mJ a call. It has no
// nvmlDeviceGetCurrentClocksEventReasons, as older drivers, and does not know its GPU's persistence
// mode.
#include <cstring>

namespace {
constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6;
int gpu;  // its address is the handle
int put(unsigned* to, unsigned value) {
  *to = value;
  return kSuccess;
}
int put(char* to, unsigned size, const char* text) {
  if (std::strlen(text) >= size) return kInvalidArgument;
  std::strcpy(to, text);
  return kSuccess;
}
}  // namespace

extern "C" {
struct Memory {
  unsigned long long total, free, used;
};
int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
int nvmlSystemGetDriverVersion(char* to, unsigned size) { return put(to, size, "530.41"); }
int nvmlDeviceGetCount_v2(unsigned* count) { return put(count, 1); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  *handle = &gpu;
  return index == 0 ? kSuccess : kInvalidArgument;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  *handle = &gpu;
  return std::strcmp(id, "0000:41:00.0") == 0 ? kSuccess : kNotFound;
}
int nvmlDeviceGetName(void* handle, char* to, unsigned size) {
  return handle == &gpu ? put(to, size, "Fake GPU 80GB") : kInvalidArgument;
}
int nvmlDeviceGetClockInfo(void*, unsigned type, unsigned* mhz) {
  return type == 1 ? put(mhz, 1410) : type == 2 ? put(mhz, 2619) : kInvalidArgument;
}
int nvmlDeviceGetMaxClockInfo(void*, unsigned type, unsigned* mhz) {
  return type == 1 ? put(mhz, 1980) : type == 2 ? put(mhz, 2619) : kInvalidArgument;
}
int nvmlDeviceGetTemperature(void*, unsigned sensor, unsigned* celsius) {
  return sensor == 0 ? put(celsius, 61) : kInvalidArgument;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return put(milliwatts, 312'500); }
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  return put(milliwatts, 700'000);
}
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  static unsigned long long total = 5'000'000'000;  // more than 32 bits hold
  *millijoules = total += 1500;
  return kSuccess;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = 0x4 | 0x20;
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {80ULL << 30, 78ULL << 30, 2ULL << 30};
  return kSuccess;
}
int nvmlDeviceGetEccMode(void*, unsigned* current, unsigned* pending) {
  return put(pending, 0), put(current, 1);
}
int nvmlDeviceGetPersistenceMode(void*, unsigned*) { return kNotSupported; }
}
