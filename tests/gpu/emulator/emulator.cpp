// What the device says of itself, its faults, and launches. Its memory: memory.cpp; streams, events
// and graphs: streams.cpp; threads: fibres.cpp.
#include "tests/gpu/emulator/include/emulator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/gpu/emulator/fibres.h"
#include "tests/gpu/emulator/runtime.h"

namespace emulator {
namespace {

// Of a multiprocessor, as of compute capability 9.0.
constexpr size_t kSharedOfMultiprocessor = size_t{228} << 10, kSharedOfBlock = size_t{1} << 10,
                 kThreadsOfMultiprocessor = 2048, kBlocksOfMultiprocessor = 32;
constexpr unsigned kMostOfCluster = 8;  // blocks, on every GPU that has clusters

// A whole number from the environment, `otherwise` when it is not set; `rest` takes what follows
// it.
uint64_t number_of(const char* name, uint64_t otherwise, std::string* rest = nullptr) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const uint64_t n = std::strtoull(text, &end, 10);
  if (end == text || (rest == nullptr && *end != '\0')) {
    std::fprintf(stderr, "emulator: %s=%s: expected a whole number\n", name, text);
    std::abort();
  }
  if (rest != nullptr) *rest = end;
  return n;
}

}  // namespace

void State::read_environment() {
  memory = number_of("CUDA_EMULATOR_MEMORY", size_t{1} << 30);
  capability = static_cast<int>(number_of("CUDA_EMULATOR_CAPABILITY", 80));
  multiprocessors = static_cast<int>(number_of("CUDA_EMULATOR_MULTIPROCESSORS", 16));
  std::string rest;
  fail_in = static_cast<int>(number_of("CUDA_EMULATOR_FAIL", UINT64_MAX, &rest));
  fault = cudaErrorIllegalAddress, sticky = rest == ":sticky", stuck = false;
  if (!rest.empty() && !sticky) {
    std::fprintf(stderr,
                 "emulator: CUDA_EMULATOR_FAIL: '%s' after the number; expected "
                 "nothing or :sticky\n",
                 rest.c_str());
    std::abort();
  }
}
// Never destroyed: what is freed last is still watched, and is no leak.
State& state() {
  static State* s = [] {
    auto* fresh = new State;
    fresh->read_environment();
    return fresh;
  }();
  return *s;
}

cudaError_t turn() {
  State& s = state();
  if (s.stuck) return s.fault;
  if (s.fail_in < 0 || s.fail_in-- > 0) return cudaSuccess;
  s.stuck = s.sticky;
  if (s.stuck)  // a device that failed for good runs nothing more
    for (Stream* stream : all_streams()) stream->queue.clear();
  return s.fault;
}
uint64_t seed_of_environment() { return number_of("CUDA_EMULATOR_SEED", 1); }
void reset_from_environment() {
  set_schedule_seed(seed_of_environment());
  state().read_environment();
}
void set_device_count(int n) { state().devices = n; }
void set_device_memory(size_t bytes) { state().memory = bytes; }
void set_device_capability(int capability) { state().capability = capability; }
void set_device_multiprocessors(int n) { state().multiprocessors = n; }
size_t live_device_bytes() { return state().used; }
void fail_after(int n, cudaError_t error, bool sticky) {
  state().fail_in = n, state().fault = error, state().sticky = sticky, state().stuck = false;
}
bool clear_fault() {
  state().stuck = false;
  return std::exchange(state().fail_in, -1) >= 0;
}
long kernel_launches() { return state().kernels; }
long graph_launches() { return state().graphs; }
long waits() { return state().waits; }

cudaError_t allow_shared(const void* kernel, int bytes) {
  EMULATED_CALL();
  if (bytes > 227 * 1024) return cudaErrorInvalidValue;
  state().shared_allowed[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t active_clusters(int* n, const cudaLaunchConfig_t& c) {
  EMULATED_CALL();
  *n = state().multiprocessors;
  for (unsigned i = 0; i < c.numAttrs; ++i)
    if (c.attrs[i].id == cudaLaunchAttributeClusterDimension)
      *n /= static_cast<int>(c.attrs[i].val.clusterDim.x);
  return cudaSuccess;
}

cudaError_t active_blocks(int* n, size_t threads, size_t shared_bytes) {
  EMULATED_CALL();
  *n = static_cast<int>(std::min({kThreadsOfMultiprocessor / ((threads + 31) / 32 * 32),
                                  kSharedOfMultiprocessor / (shared_bytes + kSharedOfBlock),
                                  kBlocksOfMultiprocessor}));
  return cudaSuccess;
}

cudaError_t queue_kernel(const cudaLaunchConfig_t& c, const void* kernel,
                         std::function<void()> body, const void* arguments, size_t bytes) {
  EMULATED_CALL();
  const size_t threads = size_t{c.blockDim.x} * c.blockDim.y * c.blockDim.z;
  if (threads == 0 || threads > 1024 || c.gridDim.x == 0 || c.gridDim.y == 0 || c.gridDim.z == 0 ||
      c.gridDim.y > 65535 || c.gridDim.z > 65535)
    return cudaErrorInvalidConfiguration;
  const auto allowed = state().shared_allowed.find(kernel);
  const size_t most = allowed == state().shared_allowed.end()
                          ? size_t{48} << 10
                          : std::max(size_t{48} << 10, static_cast<size_t>(allowed->second));
  if (c.dynamicSmemBytes > most) return cudaErrorInvalidValue;
  bool overlaps = false, cooperative = false;
  uint32_t cluster = 1;
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    const cudaLaunchAttribute& a = c.attrs[i];
    if (a.id == cudaLaunchAttributeProgrammaticStreamSerialization)
      overlaps = overlaps || a.val.programmaticStreamSerializationAllowed != 0;
    if (a.id == cudaLaunchAttributeCooperative) cooperative = a.val.cooperative != 0;
    if (a.id != cudaLaunchAttributeClusterDimension) continue;
    const auto& d = a.val.clusterDim;  // along x, which is all that our kernels ask for
    if (d.x == 0 || d.x > kMostOfCluster || d.y != 1 || d.z != 1 || c.gridDim.x % d.x != 0)
      return cudaErrorInvalidClusterSize;
    cluster = d.x;
  }
  if (cooperative) {
    // What both at once would mean, nothing here asks for.
    if (overlaps || cluster > 1) return cudaErrorInvalidValue;
    int together = 0;
    if (const cudaError_t e = active_blocks(&together, threads, c.dynamicSmemBytes);
        e != cudaSuccess)
      return e;
    if (size_t{c.gridDim.x} * c.gridDim.y * c.gridDim.z >
        static_cast<size_t>(together) * static_cast<size_t>(state().multiprocessors))
      return cudaErrorCooperativeLaunchTooLarge;
  }
  const bool captured = stream_of(c.stream).capture != nullptr;
  const Together together = cooperative   ? Together::kGrid
                            : cluster > 1 ? Together::kCluster
                                          : Together::kBlock;
  Work work;
  work.kernel = kernel, work.uses = pointed_at(arguments, bytes);
  work.run = [kernel, grid = c.gridDim, block = c.blockDim, together, cluster,
              shared = c.dynamicSmemBytes, overlaps, b = std::move(body)] {
    run_grid(kernel, grid, block, together, cluster, shared, overlaps, b);
  };
  RETURN_ERROR(queue(c.stream, std::move(work)));
  state().kernels += captured ? 0 : 1;
  return cudaSuccess;
}

}  // namespace emulator

using emulator::state;
using emulator::turn;

const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorCooperativeLaunchTooLarge:
      return "cudaErrorCooperativeLaunchTooLarge";
    case cudaErrorIllegalState:
      return "cudaErrorIllegalState";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge:
      return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched:
      return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit:
      return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureWrongThread:
      return "cudaErrorStreamCaptureWrongThread";
    default:
      break;
  }
  return "unknown";
}
const char* cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : "emulated"; }
cudaError_t cudaGetLastError() { return turn(); }

cudaError_t cudaGetDeviceCount(int* count) {
  EMULATED_CALL();
  *count = state().devices;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int device) {
  EMULATED_CALL();
  return device >= 0 && device < state().devices ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return turn();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  EMULATED_CALL();
  if (device < 0 || device >= state().devices) return cudaErrorInvalidDevice;
  *p = {};
  std::snprintf(p->name, sizeof p->name, "emulated device");
  p->totalGlobalMem = state().memory;
  p->major = state().capability / 10, p->minor = state().capability % 10;
  p->multiProcessorCount = state().multiprocessors;
  p->sharedMemPerBlockOptin = 227 * 1024;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int) {
  std::snprintf(id, static_cast<size_t>(length),
                "0000:41:00.0");  // which the stand-in for NVML knows
  return turn();
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return turn();
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return turn();
}
