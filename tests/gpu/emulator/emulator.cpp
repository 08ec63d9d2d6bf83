// The device's memory, streams, graphs and faults. Its threads: fibres.cpp.
#include "tests/gpu/emulator/include/emulator.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/gpu/emulator/accesses.h"
#include "tests/gpu/emulator/fibres.h"

namespace emulator {

using Work = std::function<void()>;

struct Stream {
  std::vector<Work> queue;
  Graph* capture = nullptr;
};
struct Event {
  // What is queued may outlive the event.
  std::shared_ptr<double> ms = std::make_shared<double>(0);
};
struct Graph {
  std::vector<Work> work;
};
struct GraphExec {
  std::vector<Work> work;
};

namespace {

constexpr size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xA5;
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

struct State {
  int devices = 1, capability = 80, multiprocessors = 16;
  size_t memory = size_t{1} << 30, used = 0;
  std::map<unsigned char*, size_t> device;              // start after the guard -> bytes
  std::deque<std::pair<unsigned char*, size_t>> freed;  // given back, watched for late writes
  size_t freed_bytes = 0;
  std::map<unsigned char*, size_t> pinned;
  std::map<const void*, int> shared_allowed;
  Stream legacy;
  std::set<Stream*> streams;
  int fail_in = -1;  // calls until one fails; below 0: none does
  cudaError_t fault = cudaSuccess;
  bool sticky = false, stuck = false;
  long kernels = 0, graphs = 0, waits = 0;

  void read_environment() {
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
};
// Never destroyed: what is freed last is still watched, and is no leak.
State& state() {
  static State* s = [] {
    auto* fresh = new State;
    fresh->read_environment();
    return fresh;
  }();
  return *s;
}

// First thing of every call: is it this one's turn to fail?
cudaError_t turn() {
  State& s = state();
  if (s.stuck) return s.fault;
  if (s.fail_in < 0 || s.fail_in-- > 0) return cudaSuccess;
  s.stuck = s.sticky;
  return s.fault;
}
#define EMULATED_CALL() \
  if (const cudaError_t fault = turn(); fault != cudaSuccess) return fault

Stream& stream_of(Stream* s) { return s == nullptr ? state().legacy : *s; }

bool any_capture() {
  for (const Stream* s : state().streams)
    if (s->capture != nullptr) return true;
  return false;
}

void check_guards(unsigned char* p, size_t bytes) {
  for (size_t i = 0; i < kGuard; ++i) {
    const bool front = p[-1 - static_cast<ptrdiff_t>(i)] != kGuardByte,
               behind = p[bytes + i] != kGuardByte;
    if (front || behind) {
      std::fprintf(stderr, "emulator: written %zu bytes %s %zu bytes of device memory\n", i + 1,
                   front ? "in front of" : "behind", bytes);
      std::abort();
    }
  }
}

constexpr size_t kMostWatched = size_t{1} << 20;

void check_freed(const unsigned char* p, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (p[i] != kGuardByte) {
      std::fprintf(stderr, "emulator: %zu bytes of device memory written after they were freed\n",
                   bytes);
      std::abort();
    }
}
// Given back in full only when others have come after it.
void retire(unsigned char* p, size_t bytes) {
  std::memset(p, kGuardByte, bytes);
  state().freed.emplace_back(p, bytes);
  state().freed_bytes += bytes;
  while (state().freed_bytes > kMostWatched) {
    const auto [oldest, size] = state().freed.front();
    check_freed(oldest, size);
    std::free(oldest - kGuard);
    state().freed_bytes -= size;
    state().freed.pop_front();
  }
}

void run(Stream& s) {
  // Work may not queue more work.
  std::vector<Work> queue = std::move(s.queue);
  s.queue.clear();
  if (state().stuck) return;  // a device that failed runs nothing more
  accesses::all_grids_ended();
  for (const Work& work : queue) work();
  if (queue.empty()) return;
  for (const auto& [p, bytes] : state().device) check_guards(p, bytes);
  for (const auto& [p, bytes] : state().freed) check_freed(p, bytes);
}

void queue(Stream* stream, Work work) {
  Stream& s = stream_of(stream);
  (s.capture != nullptr ? s.capture->work : s.queue).push_back(std::move(work));
}

bool is_pinned(const void* p) {
  const auto* at = static_cast<const unsigned char*>(p);
  auto it = state().pinned.upper_bound(const_cast<unsigned char*>(at));
  if (it == state().pinned.begin()) return false;
  --it;
  return at < it->first + it->second;
}

void copy_lines(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                size_t height) {
  for (size_t i = 0; i < height; ++i)
    std::memmove(static_cast<unsigned char*>(to) + i * to_pitch,
                 static_cast<const unsigned char*>(from) + i * from_pitch, width);
}

}  // namespace

accesses::Range accesses::device_block(const void* p) {
  auto* at = static_cast<unsigned char*>(const_cast<void*>(p));
  auto it = state().device.upper_bound(at);
  if (it == state().device.begin()) return {};
  --it;
  // What lies just past its end belongs to its guard, and to no other.
  return at < it->first + it->second + kGuard ? Range{it->first, it->second} : Range{};
}

void queue_work(Stream* stream, Work work) { queue(stream, std::move(work)); }

uint64_t seed_of_environment() { return number_of("CUDA_EMULATOR_SEED", 1); }
void reset_from_environment() {
  set_schedule_seed(seed_of_environment());
  state().read_environment();
}
void set_device_count(int n) { state().devices = n; }
void set_device_memory(size_t bytes) { state().memory = bytes; }
void set_device_capability(int capability) { state().capability = capability; }
size_t live_device_bytes() { return state().used; }
void fail_after(int n, cudaError_t error, bool sticky) {
  state().fail_in = n, state().fault = error, state().sticky = sticky, state().stuck = false;
}
void clear_fault() { state().fail_in = -1, state().stuck = false; }
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

cudaError_t queue_kernel(const cudaLaunchConfig_t& c, const void* kernel, Work body) {
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
  bool overlaps = false;
  uint32_t cluster = 1;
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    const cudaLaunchAttribute& a = c.attrs[i];
    if (a.id == cudaLaunchAttributeProgrammaticStreamSerialization)
      overlaps = overlaps || a.val.programmaticStreamSerializationAllowed != 0;
    if (a.id != cudaLaunchAttributeClusterDimension) continue;
    const auto& d = a.val.clusterDim;  // along x, which is all that our kernels ask for
    if (d.x == 0 || d.x > kMostOfCluster || d.y != 1 || d.z != 1 || c.gridDim.x % d.x != 0)
      return cudaErrorInvalidClusterSize;
    cluster = d.x;
  }
  if (stream_of(c.stream).capture == nullptr) ++state().kernels;
  queue(c.stream, [kernel, grid = c.gridDim, block = c.blockDim, cluster,
                   shared = c.dynamicSmemBytes, overlaps, b = std::move(body)] {
    run_grid(kernel, grid, block, cluster, shared, overlaps, b);
  });
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
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
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

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  EMULATED_CALL();
  *total = state().memory;
  *free = state().memory > state().used ? state().memory - state().used : 0;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** p, size_t bytes) {
  EMULATED_CALL();
  if (emulator::any_capture()) return cudaErrorStreamCaptureUnsupported;
  if (state().used + bytes > state().memory) return cudaErrorMemoryAllocation;
  using emulator::kGuard;
  auto* base =
      static_cast<unsigned char*>(std::aligned_alloc(256, (bytes + 2 * kGuard + 255) / 256 * 256));
  std::memset(base, emulator::kGuardByte, bytes + 2 * kGuard);
  std::memset(base + kGuard, 0xFF, bytes);
  state().device[base + kGuard] = bytes;
  state().used += bytes;
  *p = base + kGuard;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  EMULATED_CALL();
  if (p == nullptr) return cudaSuccess;
  for (emulator::Stream* s : state().streams) emulator::run(*s);  // waits for the device
  emulator::run(state().legacy);
  const auto it = state().device.find(static_cast<unsigned char*>(p));
  if (it == state().device.end()) return cudaErrorInvalidValue;
  emulator::check_guards(it->first, it->second);
  state().used -= it->second;
  emulator::retire(it->first, it->second);
  state().device.erase(it);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
  EMULATED_CALL();
  *p = std::malloc(bytes);
  state().pinned[static_cast<unsigned char*>(*p)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) {
  EMULATED_CALL();
  state().pinned.erase(static_cast<unsigned char*>(p));
  std::free(p);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  EMULATED_CALL();
  const bool capturing = emulator::stream_of(stream).capture != nullptr;
  if (kind == cudaMemcpyHostToDevice && !emulator::is_pinned(from)) {
    // Pageable memory is read at the call.
    if (capturing) return cudaErrorStreamCaptureUnsupported;
    std::vector<unsigned char> copy(width * height);
    emulator::copy_lines(copy.data(), width, from, from_pitch, width, height);
    emulator::queue(stream, [=, held = std::move(copy)] {
      emulator::copy_lines(to, to_pitch, held.data(), width, width, height);
    });
    return cudaSuccess;
  }
  emulator::queue(stream,
                  [=] { emulator::copy_lines(to, to_pitch, from, from_pitch, width, height); });
  if (kind == cudaMemcpyDeviceToHost && !emulator::is_pinned(to)) {
    if (capturing) return cudaErrorStreamCaptureUnsupported;
    emulator::run(emulator::stream_of(stream));
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  const cudaError_t e =
      cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
  // To the device it returns as soon as the source has been read.
  if (e == cudaSuccess && kind != cudaMemcpyHostToDevice) emulator::run(state().legacy);
  return e;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpy2D(to, bytes, from, bytes, bytes, 1, kind);
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  EMULATED_CALL();
  emulator::queue(stream, [=] { std::memset(p, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  return cudaMemsetAsync(p, value, bytes, nullptr);  // does not wait, as the real one
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  EMULATED_CALL();
  *stream = new emulator::Stream;
  state().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  emulator::run(*stream);
  state().streams.erase(stream);
  delete stream;
  return turn();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  EMULATED_CALL();
  if (emulator::stream_of(stream).capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  ++state().waits;
  emulator::run(emulator::stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  EMULATED_CALL();
  if (emulator::any_capture()) return cudaErrorStreamCaptureUnsupported;
  ++state().waits;
  for (emulator::Stream* s : state().streams) emulator::run(*s);
  emulator::run(state().legacy);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  EMULATED_CALL();
  *event = new emulator::Event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return turn();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  EMULATED_CALL();
  emulator::queue(stream, [ms = event->ms] {
    *ms = std::chrono::duration<double, std::milli>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count();
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  EMULATED_CALL();
  *ms = static_cast<float>(*end->ms - *begin->ms);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  EMULATED_CALL();
  if (stream == nullptr || stream->capture != nullptr) return cudaErrorInvalidValue;
  stream->capture = new emulator::Graph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = std::exchange(stream->capture, nullptr);
  const cudaError_t fault = turn();
  if (fault != cudaSuccess) delete std::exchange(*graph, nullptr);  // then there is none
  return fault;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  EMULATED_CALL();
  *ready = new emulator::GraphExec{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  EMULATED_CALL();
  ++state().graphs;
  for (const emulator::Work& work : graph->work) emulator::queue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
