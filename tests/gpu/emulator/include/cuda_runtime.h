// Stands for the toolkit's header in sources compiled for the emulator (emulator.h). Only what
// engine/cuda uses, and what it might next: cudaFreeAsync, waits between streams.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

#define CUDART_VERSION 13000

#include "tests/gpu/emulator/include/emulated_hopper.h"

namespace emulator {
void store_whole(void* to, const void* from, size_t bytes);
}
// A vector is stored as one where accesses are looked at; the compiler would store its parts.
#if defined(CUDA_EMULATOR_HOOKS)
#define EMULATED_STORE(type)                           \
  type& operator=(const type& other) {                 \
    emulator::store_whole(this, &other, sizeof other); \
    return *this;                                      \
  }
#else
#define EMULATED_STORE(type)
#endif
struct alignas(8) uint2 {
  uint32_t x, y;
  EMULATED_STORE(uint2)
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
  EMULATED_STORE(uint4)
};
struct alignas(8) float2 {
  float x, y;
  EMULATED_STORE(float2)
};
struct alignas(16) float4 {
  float x, y, z, w;
  EMULATED_STORE(float4)
};
struct uint3 {
  uint32_t x, y, z;
};
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct dim3 {
  uint32_t x, y, z;
  constexpr dim3(uint32_t a = 1, uint32_t b = 1, uint32_t c = 1) : x(a), y(b), z(c) {}
};

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
  cudaErrorInvalidClusterSize = 912,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;

namespace emulator {
struct Stream;
struct Event;
struct Graph;
struct GraphExec;
}  // namespace emulator
using cudaStream_t = emulator::Stream*;
using cudaEvent_t = emulator::Event*;
using cudaGraph_t = emulator::Graph*;
using cudaGraphExec_t = emulator::GraphExec*;

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor;
  int multiProcessorCount;
  int l2CacheSize;
  int pciDomainID, pciBusID, pciDeviceID;
  int ECCEnabled;
  size_t sharedMemPerBlockOptin;
};
enum cudaLaunchAttributeID {
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  union {
    int programmaticStreamSerializationAllowed;
    int cooperative;
    struct {
      unsigned x, y, z;
    } clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** p, size_t bytes);
cudaError_t cudaFree(void* p);
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream);
cudaError_t cudaMallocHost(void** p, size_t bytes);
cudaError_t cudaFreeHost(void* p);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* p, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);

// Of the thread that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace emulator {

extern int g_thread;  // its number in the block

unsigned char* shared_memory();
void sync_threads();
// What lanes of a warp do together; each gives a word and gets one.
enum class Collective { kSync, kShuffle, kBallot, kMma, kTranspose };
uint64_t meet(Collective what, uint64_t word, int from_lane);
void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
inline uint32_t movmatrix_m8n8_trans_b16(uint32_t word) {
  return static_cast<uint32_t>(meet(Collective::kTranspose, word, 0));
}
// cp.async: `given` of the bytes, zeros after them. A copy happens at once or when its group is
// waited for, at random.
void copy_async(void* shared, const void* global, int bytes, int given);
void commit_copies();
void wait_copies(int but_last_groups);

// griddepcontrol.wait: of a launch that may overlap with the one before it, every thread comes
// here, and before it looks at nothing that kernels have written and writes nothing.
void wait_for_previous();

void fence();
uint64_t atomic_add(void* at, uint64_t value, size_t bytes);
// A loop that reads a word until one of the bits of `mask` is another than in `before`
// (ld.acquire.gpu, whose fence is the caller's). Of a launch whose blocks all run at once, by a
// thread of one of them.
void wait_for_change(const unsigned* at, unsigned mask, unsigned before);
// Where a launch's arguments are; its code begins here.
void kernel_arguments(const void* p, size_t bytes);
void read_only_load(void* to, const void* p, size_t bytes);  // ld.global.nc

// Of a library: what it is called, and the arrays it is given.
cudaError_t queue_work(cudaStream_t stream, const std::function<void()>& run, const char* what,
                       std::initializer_list<const void*> arrays);
// Stand for cuBLAS (engine/cuda/dense.cpp), with its column-major matrices.
int cublas_property(int which, int* value);
int cublas_create(void** handle);
int cublas_destroy(void* handle);
int cublas_set_stream(void* handle, cudaStream_t stream);
int cublas_set_workspace(void* handle, void* workspace, size_t bytes);
int cublas_gemm(void* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha,
                const void* a, int a_type, int lda, const void* b, int b_type, int ldb,
                const void* beta, void* c, int c_type, int ldc, int compute, int algorithm);

template <typename T>
T shuffle(T value, int from_lane) {
  static_assert(sizeof(T) <= 8);
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  word = meet(Collective::kShuffle, word, from_lane);
  std::memcpy(&value, &word, sizeof value);
  return value;
}
inline int lane() { return g_thread % 32; }

cudaError_t allow_shared(const void* kernel, int bytes);
cudaError_t active_clusters(int* n, const cudaLaunchConfig_t& config);
cudaError_t active_blocks(int* n, size_t threads, size_t shared_bytes);
cudaError_t queue_kernel(const cudaLaunchConfig_t& config, const void* kernel,
                         std::function<void()> body, const void* arguments, size_t bytes);

}  // namespace emulator

inline unsigned char* evalrun_shared_memory() { return emulator::shared_memory(); }
inline void __syncthreads() { emulator::sync_threads(); }
inline void __syncwarp(unsigned = 0xffffffffu) {
  emulator::meet(emulator::Collective::kSync, 0, 0);
}
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return emulator::shuffle(value, from % 32);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int with) {
  return emulator::shuffle(value, emulator::lane() ^ with);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned by) {
  const int from = emulator::lane() + static_cast<int>(by);
  return emulator::shuffle(value, from < 32 ? from : emulator::lane());
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned by) {
  const int from = emulator::lane() - static_cast<int>(by);
  return emulator::shuffle(value, from >= 0 ? from : emulator::lane());
}
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline unsigned __ballot_sync(unsigned, int holds) {
  return static_cast<unsigned>(emulator::meet(emulator::Collective::kBallot, holds ? 1 : 0, 0));
}
inline void __threadfence() { emulator::fence(); }
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T>
T atomicAdd(T* at, T value) {
  static_assert(std::is_unsigned_v<T>);
  return static_cast<T>(emulator::atomic_add(at, value, sizeof value));
}
using std::max;
using std::min;

template <typename... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute, int value) {
  return emulator::allow_shared(reinterpret_cast<const void*>(kernel), value);
}
// As if a block of a cluster had a multiprocessor for itself.
template <typename... P>
cudaError_t cudaOccupancyMaxActiveClusters(int* n, void (*)(P...),
                                           const cudaLaunchConfig_t* config) {
  return emulator::active_clusters(n, *config);
}
// As many as have room in shared memory and among a multiprocessor's threads.
template <typename... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void (*)(P...), int threads,
                                                          size_t shared_bytes) {
  return emulator::active_blocks(n, static_cast<size_t>(threads), shared_bytes);
}
namespace emulator {
template <typename... P>
struct Launch {
  void (*kernel)(P...);
  std::tuple<std::decay_t<P>...> values;
  void operator()() const {
    kernel_arguments(this, sizeof *this);
    std::apply(kernel, values);
  }
};
}  // namespace emulator
// Arguments are copied now, as a launch does.
template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...),
                               A&&... arguments) {
  emulator::Launch<P...> launch{kernel, {std::forward<A>(arguments)...}};
  return emulator::queue_kernel(*config, reinterpret_cast<const void*>(kernel), launch,
                                &launch.values, sizeof launch.values);
}
