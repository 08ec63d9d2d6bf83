// What the products' kernels are made of, and how they are launched (multiply.cu decides which).
#pragma once
#include <type_traits>

#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/lane_weights.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {

constexpr int kProductWarps = 8;
constexpr int kProductThreads = kProductWarps * kWarp;
static_assert(kSlices == kProductWarps);
constexpr int kChainRows = 4;  // rows of a thread in kF32
constexpr int kChainOutputs = 128;

// Rows and bytes of shared memory of a thread block, for so many rows of a packed storage.
struct BlockShape {
  int rows;
  int bytes;
};
BlockShape narrow_block(WeightStorage storage, int rows);
BlockShape wide_block(WeightStorage storage, int rows);
// Fills in how hopper_product cuts a product of so many rows; false: the inputs of a matrix of so
// many blocks have no room in it, whatever the number of rows.
bool hopper_geometry(WeightStorage storage, int tiles, int blocks, int rows, ProductGeometry& g);
// Once per device: the shared memory that they need.
void allow_narrow_products();
void allow_wide_products();
void allow_hopper_products();

// One launch each, of a product cut as product_geometry() says. chain: kF32.
void launch_narrow(const ProductArguments& a, const ProductGeometry& g, cudaStream_t stream);
void launch_wide(const ProductArguments& a, const ProductGeometry& g,
                 const ProductWorkspace& workspace, cudaStream_t stream);
void launch_hopper(const ProductArguments& a, const ProductGeometry& g, cudaStream_t stream);
void launch_chain(const ProductArguments& a, const ProductGeometry& g, cudaStream_t stream);

// Of matrices that the tensor cores multiply, on a device.
constexpr WeightStorage kPackedStorages[] = {WeightStorage::kBf16,      WeightStorage::kInt8Channel,
                                             WeightStorage::kInt8Group, WeightStorage::kQ4Group,
                                             WeightStorage::kQ4K,       WeightStorage::kQ5K,
                                             WeightStorage::kQ6K};

template <typename Kernel>
void allow_bytes(Kernel* kernel, int bytes) {
  EVALRUN_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

// run(an integral constant of the storage), of storages the tensor cores multiply: of those without
// K-quants, of all.
template <typename Run>
auto of_plain_storage(WeightStorage storage, const Run& run) {
  using enum WeightStorage;
  switch (storage) {
    case kBf16:
      return run(std::integral_constant<WeightStorage, kBf16>());
    case kInt8Channel:
      return run(std::integral_constant<WeightStorage, kInt8Channel>());
    case kInt8Group:
      return run(std::integral_constant<WeightStorage, kInt8Group>());
    case kF32:
      check_argument(false, "a product of float32 is a chain");
      break;
    case kQ4K:
    case kQ5K:
    case kQ6K:
      check_argument(false, "K-quants where there is no kernel for them");
      break;
    case kQ4Group:
    case kQ4Centred:  // a host's: the device's has the offsets
      break;
  }
  return run(std::integral_constant<WeightStorage, kQ4Group>());
}
template <typename Run>
auto of_storage(WeightStorage storage, const Run& run) {
  using enum WeightStorage;
  switch (storage) {
    case kQ4K:
      return run(std::integral_constant<WeightStorage, kQ4K>());
    case kQ5K:
      return run(std::integral_constant<WeightStorage, kQ5K>());
    case kQ6K:
      return run(std::integral_constant<WeightStorage, kQ6K>());
    default:
      return of_plain_storage(storage, run);
  }
}

// Fragments and scales of one tile and block.
template <WeightStorage S>
struct TileFactors {
  uint32_t a[2][4];
  float d[2], m[2];  // kHalves: m are scales, too, those of the second 16 inputs
  __device__ __forceinline__ explicit TileFactors(const LaneWeights<S>& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int second = 0; second < 2; ++second) a[i / 2][i % 2 * 2 + second] = w.pair(second, i);
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      d[second] = LaneWeights<S>::kScaled ? w.scale(second) : 0.0f;
      m[second] = LaneWeights<S>::kHalves   ? w.scale(second, 1)
                  : LaneWeights<S>::kOffset ? w.offset(second)
                                            : 0.0f;
    }
  }
};

// Sums of the inputs of a block, of rows 2 t and 2 t + 1: what offsets are multiplied with.
__device__ __forceinline__ void sum_inputs(float (&sums)[2], const uint4& b) {
  const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  float all[4] = {};
  mma_bf16(all, ones, b.x, b.y);
  mma_bf16(all, ones, b.z, b.w);
  sums[0] = all[0], sums[1] = all[1];
}

// One block of inputs `b` of eight rows onto acc, D of mma_bf16. `inputs`: sum_inputs(), of
// kOffset.
template <WeightStorage S>
__device__ __forceinline__ void add_block(float (&acc)[4], const TileFactors<S>& w, const uint4& b,
                                          const float (&inputs)[2]) {
  if constexpr (!LaneWeights<S>::kScaled) {
    mma_bf16(acc, w.a[0], b.x, b.y);
    mma_bf16(acc, w.a[1], b.z, b.w);
  } else if constexpr (LaneWeights<S>::kHalves) {
    // The first 16 inputs are those of lanes with t of 0 and 1: for each half's sum the other
    // half's inputs are zeros.
    const uint32_t first = threadIdx.x % 4 < 2 ? 0xffffffffu : 0u, second = ~first;
    float sum[4] = {}, more[4] = {};
    mma_bf16(sum, w.a[0], b.x & first, b.y & first);
    mma_bf16(sum, w.a[1], b.z & first, b.w & first);
    mma_bf16(more, w.a[0], b.x & second, b.y & second);
    mma_bf16(more, w.a[1], b.z & second, b.w & second);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      acc[i] = fmaf(w.m[i / 2], more[i], fmaf(w.d[i / 2], sum[i], acc[i]));
  } else {
    float sum[4] = {};
    mma_bf16(sum, w.a[0], b.x, b.y);
    mma_bf16(sum, w.a[1], b.z, b.w);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      acc[i] = fmaf(w.d[i / 2], sum[i], acc[i]);
      if constexpr (LaneWeights<S>::kOffset) acc[i] = fmaf(w.m[i / 2], inputs[i % 2], acc[i]);
    }
  }
}

__device__ __forceinline__ float4 as_float4(const float (&x)[4]) {
  return make_float4(x[0], x[1], x[2], x[3]);
}
__device__ __forceinline__ float sum_quarters(float q0, float q1, float q2, float q3) {
  return ((q0 + q1) + q2) + q3;
}

// What an output is added to, if it is: to be loaded long before it is needed. A load after a store
// would wait for itself alone.
__device__ __forceinline__ float sum_before(const Epilogue& out, int row, int o) {
  if (out.residual == nullptr || o >= out.outputs) return 0;
  return out
      .residual[static_cast<size_t>(row) * static_cast<size_t>(out.ldy) + static_cast<size_t>(o)];
}

// Output o (of the device matrix) of one row, from its sum and, in turns, that of o + 8.
// `before`: what it is added to.
template <WeightStorage S>
__device__ __forceinline__ void finish(const MatrixRef& w, const Epilogue& out, int row, int o,
                                       float sum, float second, float before) {
  if constexpr (S == WeightStorage::kInt8Channel) {
    const auto* scale = reinterpret_cast<const float*>(w.scales);
    sum = sum * scale[o];
    if (out.activated != nullptr) second = second * scale[o + 8];
  }
  if (out.bias != nullptr) {
    sum = sum + out.bias[o];
    if (out.activated != nullptr) second = second + out.bias[o + 8];
  }
  if (out.activated != nullptr) {
    const int to = o / kTile * 8 + o % 8;
    if (to >= out.outputs) return;
    const size_t at =
        static_cast<size_t>(row) * static_cast<size_t>(out.ldy) + static_cast<size_t>(to);
    const float h = cpu::silu_mul(sum, second);
    if constexpr (S == WeightStorage::kF32)
      static_cast<float*>(out.activated)[at] = h;
    else
      static_cast<uint16_t*>(out.activated)[at] = float_to_bf16(h);
    return;
  }
  if (o >= out.outputs) return;
  const size_t at =
      static_cast<size_t>(row) * static_cast<size_t>(out.ldy) + static_cast<size_t>(o);
  if (out.residual != nullptr)
    out.residual[at] = before + sum;
  else
    out.y[at] = sum;
}

}  // namespace evalrun::engine::cuda
