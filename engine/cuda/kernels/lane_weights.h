// What one lane holds of a tile (16 outputs) and block (32 inputs) of a weight matrix: outputs g
// and g + 8, inputs 8 t .. 8 t + 7, with g = lane / 4 and t = lane % 4
// (engine/cuda/kernels/matrix_ref.h).
#pragma once
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/matrix_ref.h"

namespace evalrun::engine::cuda {

template <WeightStorage S>
struct LaneWeights {
  // Scales per block, in float16; kQ4Group has offsets, too.
  static constexpr bool kScaled = S == WeightStorage::kInt8Group || S == WeightStorage::kQ4Group;
  static constexpr bool kOffset = S == WeightStorage::kQ4Group;
  // Bytes of a tile and block.
  static constexpr int kCodeBytes = S == WeightStorage::kBf16 ? 1024 : kOffset ? 256 : 512;
  static constexpr int kScaleBytes = !kScaled ? 0 : kOffset ? 64 : 32;

  uint4 codes, more;  // kBf16: of g, of g + 8; else codes, nothing
  uint2 scales;       // d, d' (, m, m')

  // Pair i (inputs 8 t + 2 i and one more) of output g or g + 8, as bfloat16: codes exactly.
  __device__ __forceinline__ uint32_t pair(int second, int i) const {
    if constexpr (S == WeightStorage::kBf16) {
      const uint4& v = second ? more : codes;
      return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
    } else if constexpr (S == WeightStorage::kQ4Group) {
      return q4_pair(second ? codes.y : codes.x, i);
    } else {
      const uint32_t low = second ? codes.z : codes.x, high = second ? codes.w : codes.y;
      return int8_pair(i < 2 ? low : high, i % 2);
    }
  }
  __device__ __forceinline__ float scale(int second) const {
    return half_bits_to_float(static_cast<uint16_t>(scales.x >> (16 * second)));
  }
  __device__ __forceinline__ float offset(int second) const {
    return half_bits_to_float(static_cast<uint16_t>(scales.y >> (16 * second)));
  }
};

// Where a tile's block starts in codes and scales, in units of such blocks. (kBf16: see below.)
__device__ __forceinline__ size_t block_index(const MatrixRef& w, int tile, int block) {
  return static_cast<size_t>(tile) * static_cast<size_t>(w.blocks) + static_cast<size_t>(block);
}
// kBf16, whose rows are not cut: eight weights of output o from input 32 block + 8 t on.
__device__ __forceinline__ const uint4* bf16_weights(const MatrixRef& w, int o, int block, int t) {
  return reinterpret_cast<const uint4*>(w.codes) +
         (static_cast<size_t>(o) * static_cast<size_t>(w.blocks) + static_cast<size_t>(block)) * 4 +
         t;
}

template <WeightStorage S>
__device__ __forceinline__ LaneWeights<S> load_weights(const MatrixRef& w, int tile, int block,
                                                       int lane) {
  LaneWeights<S> r = {};
  const int g = lane / 4, t = lane % 4;
  if constexpr (S == WeightStorage::kBf16) {
    r.codes = load_once(bf16_weights(w, tile * kTile + g, block, t));
    r.more = load_once(bf16_weights(w, tile * kTile + g + 8, block, t));
    return r;
  }
  const size_t at = block_index(w, tile, block);
  if constexpr (S == WeightStorage::kQ4Group) {
    const uint2 codes = load_once(reinterpret_cast<const uint2*>(w.codes) + at * kWarp + lane);
    r.codes.x = codes.x, r.codes.y = codes.y;
    r.scales = load_once(reinterpret_cast<const uint2*>(w.scales) + at * 8 + g);
  } else if constexpr (S != WeightStorage::kBf16) {
    r.codes = load_once(reinterpret_cast<const uint4*>(w.codes) + at * kWarp + lane);
    if constexpr (S == WeightStorage::kInt8Group)
      r.scales.x = reinterpret_cast<const uint32_t*>(w.scales)[at * 8 + g];
  }
  return r;
}

// The same by way of shared memory, block after block: all lanes copy (copy_async); after a barrier
// each finds its own with fetched_weights(). A block takes kCodeBytes and kScaleBytes there,
// 16-byte aligned.
template <WeightStorage S>
class WeightStream {
 public:
  using L = LaneWeights<S>;
  __device__ __forceinline__ WeightStream(const MatrixRef& w, int tile, int block, int lane)
      : codes_(S == WeightStorage::kBf16
                   ? reinterpret_cast<const unsigned char*>(
                         bf16_weights(w, tile * kTile + lane / 4, block, lane % 4))
                   : w.codes + block_index(w, tile, block) * L::kCodeBytes + lane * kLane),
        scales_(w.scales + block_index(w, tile, block) * L::kScaleBytes + lane * kScale),
        second_(static_cast<size_t>(w.blocks) * 8 * kBlock * 2) {}
  // The block `u` places after the current one.
  __device__ __forceinline__ void fetch(int u, int lane, unsigned char* to) const {
    copy_async<kLane>(to + lane * kLane, codes_ + u * kStep);
    if constexpr (S == WeightStorage::kBf16)
      copy_async<kLane>(to + (kWarp + lane) * kLane, codes_ + second_ + u * kStep);
    if constexpr (L::kScaled)
      if (lane < 8)
        copy_async<kScale>(to + L::kCodeBytes + lane * kScale, scales_ + u * L::kScaleBytes);
  }
  __device__ __forceinline__ void advance(int blocks) {
    codes_ += blocks * kStep;
    if constexpr (L::kScaled) scales_ += blocks * L::kScaleBytes;
  }

 private:
  static constexpr int kLane = S == WeightStorage::kQ4Group ? 8 : 16, kScale = L::kScaleBytes / 8;
  static constexpr int kStep = S == WeightStorage::kBf16 ? kBlock * 2 : L::kCodeBytes;
  const unsigned char *codes_, *scales_;
  size_t second_;  // kBf16: from output g to g + 8
};
template <WeightStorage S>
__device__ __forceinline__ LaneWeights<S> fetched_weights(const unsigned char* from, int lane) {
  using L = LaneWeights<S>;
  LaneWeights<S> r = {};
  if constexpr (S == WeightStorage::kBf16) {
    r.codes = reinterpret_cast<const uint4*>(from)[lane];
    r.more = reinterpret_cast<const uint4*>(from)[kWarp + lane];
  } else if constexpr (S == WeightStorage::kQ4Group) {
    const uint2 codes = reinterpret_cast<const uint2*>(from)[lane];
    r.codes.x = codes.x, r.codes.y = codes.y;
    r.scales = reinterpret_cast<const uint2*>(from + L::kCodeBytes)[lane / 4];
  } else {
    r.codes = reinterpret_cast<const uint4*>(from)[lane];
    if constexpr (L::kScaled)
      r.scales.x = reinterpret_cast<const uint32_t*>(from + L::kCodeBytes)[lane / 4];
  }
  return r;
}

}  // namespace evalrun::engine::cuda
