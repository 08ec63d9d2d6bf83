// What one lane holds of a tile (16 outputs) and block (32 inputs) of a weight matrix: outputs g
// and g + 8, inputs 8 t .. 8 t + 7, with g = lane / 4 and t = lane % 4
// (engine/cuda/kernels/matrix_ref.h).
#pragma once
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/k_codes.h"
#include "engine/cuda/kernels/matrix_ref.h"

namespace evalrun::engine::cuda {

template <WeightStorage S>
struct LaneWeights {
  static constexpr int kKBits = k_bits(S);  // 0: no K-quant
  static constexpr bool kK = kKBits != 0;
  // Scales per block, in kQ6K two of them; some have offsets, too.
  static constexpr bool kScaled =
      S == WeightStorage::kInt8Group || S == WeightStorage::kQ4Group || kK;
  static constexpr bool kOffset =
      S == WeightStorage::kQ4Group || S == WeightStorage::kQ4K || S == WeightStorage::kQ5K;
  static constexpr bool kHalves = S == WeightStorage::kQ6K;  // 16 inputs share a scale
  // Bytes of a tile and block; of a tile and eight blocks.
  static constexpr int kCodeBytes = kK                          ? k_code_bytes(kKBits)
                                    : S == WeightStorage::kBf16 ? 1024
                                    : kOffset                   ? 256
                                                                : 512;
  static constexpr int kScaleBytes = kK ? kKScaleBytes : !kScaled ? 0 : kOffset ? 64 : 32;
  static constexpr int kFactorBytes = kK ? k_factor_bytes(kKBits) : 0;

  // kBf16: of g, of g + 8; else codes, nothing. K-quants: two words of low bits and one of high
  // ones, as in memory; factors.
  uint4 codes, more;
  uint2 scales;  // d, d' (, m, m'); of K-quants four bytes

  // Pair i (inputs 8 t + 2 i and one more) of output g or g + 8, as bfloat16: codes exactly.
  __device__ __forceinline__ uint32_t pair(int second, int i) const {
    if constexpr (S == WeightStorage::kBf16) {
      const uint4& v = second ? more : codes;
      return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
    } else if constexpr (S == WeightStorage::kQ4K) {
      return q4_pair(second ? codes.y : codes.x, i);
    } else if constexpr (kK) {
      return k_pair<kKBits>(second ? codes.y : codes.x, spread_high(kKBits, codes.z), second, i);
    } else if constexpr (S == WeightStorage::kQ4Group) {
      return q4_pair(second ? codes.y : codes.x, i);
    } else {
      const uint32_t low = second ? codes.z : codes.x, high = second ? codes.w : codes.y;
      return int8_pair(i < 2 ? low : high, i % 2);
    }
  }
  // The float32 that codes of a block are multiplied with; `half`, of kHalves: those of its first
  // 16 inputs, or of the others.
  __device__ __forceinline__ float scale(int second, int half = 0) const {
    if constexpr (kK)
      return half_bits_to_float(static_cast<uint16_t>(more.x >> (16 * second))) *
             byte_value(scales.x, second + 2 * half, kHalves ? kKSigned : 0);
    return half_bits_to_float(static_cast<uint16_t>(scales.x >> (16 * second)));
  }
  __device__ __forceinline__ float offset(int second) const {
    if constexpr (kK)
      return half_bits_to_float(static_cast<uint16_t>(more.y >> (16 * second))) *
             byte_value(scales.x, second + 2, 0);
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

// K-quants: a lane's own of a tile and block whose codes, scales and factors are there.
template <WeightStorage S>
__device__ __forceinline__ LaneWeights<S> k_weights_of(const unsigned char* codes,
                                                       const unsigned char* scales,
                                                       const unsigned char* factors, int lane) {
  LaneWeights<S> r = {};
  const int g = lane / 4;
  const uint2 words = reinterpret_cast<const uint2*>(codes)[lane];
  r.codes.x = words.x, r.codes.y = words.y;
  if constexpr (S == WeightStorage::kQ5K)
    r.codes.z = reinterpret_cast<const uint16_t*>(codes + kKHighAt)[lane];
  if constexpr (S == WeightStorage::kQ6K)
    r.codes.z = reinterpret_cast<const uint32_t*>(codes + kKHighAt)[lane];
  r.scales.x = reinterpret_cast<const uint32_t*>(scales)[g];
  if constexpr (S == WeightStorage::kQ6K) {
    r.more.x = reinterpret_cast<const uint32_t*>(factors)[g];
  } else {
    const uint2 both = reinterpret_cast<const uint2*>(factors)[g];
    r.more.x = both.x, r.more.y = both.y;
  }
  return r;
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
  if constexpr (LaneWeights<S>::kK) {
    const size_t eight = (static_cast<size_t>(tile) * static_cast<size_t>(w.blocks) / kSuperBlocks +
                          static_cast<size_t>(block / kSuperBlocks));
    return k_weights_of<S>(w.codes + at * LaneWeights<S>::kCodeBytes, w.scales + at * kKScaleBytes,
                           w.factors + eight * LaneWeights<S>::kFactorBytes, lane);
  } else if constexpr (S == WeightStorage::kQ4Group) {
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

// kBf16: where 16 bytes of a row of a tile lie in a stage, so that eight lanes which write or read
// at once have all banks, once: a line of one row, or halves of two rows.
template <int kBlocks>
__device__ __forceinline__ int row_place(int row, int piece) {
  const int turned = kBlocks == 2 ? piece ^ (row % 2 * 4) : piece;
  return (row * 4 * kBlocks + turned) * 16;
}

// The same by way of shared memory, kBlocks blocks of a tile at a time: all lanes of a warp copy
// (copy_async), whole lines side by side; after they have waited, and met (__syncwarp), each finds
// its own with fetched_weights(). A stage takes kBytes there, a multiple of 128.
template <WeightStorage S, int kBlocks>
class WeightStream {
 public:
  using L = LaneWeights<S>;
  static constexpr int kCodes = kBlocks * L::kCodeBytes, kScales = kBlocks * L::kScaleBytes;
  // Factors of the eights of blocks that a stage may touch: kBlocks divides eight, but slices begin
  // anywhere.
  static constexpr int kFactors = (kBlocks == 1 ? 1 : 2) * L::kFactorBytes;
  static constexpr int kBytes = (kCodes + kScales + kFactors + 127) / 128 * 128;
  __device__ __forceinline__ WeightStream(const MatrixRef& w, int tile, int block, int lane)
      : codes_(w.codes + start(w, tile, block, lane)),
        scales_(w.scales + block_index(w, tile, block) * L::kScaleBytes +
                (L::kScaled ? lane * 16 : 0)),
        blocks_(static_cast<size_t>(w.blocks)) {
    if constexpr (L::kK) {
      factors_ = w.factors + block_index(w, tile, 0) / kSuperBlocks * L::kFactorBytes + lane * 16;
      block_ = block;
    }
  }
  // The next `blocks` blocks, at most kBlocks of them, of the tile so many after the first.
  __device__ __forceinline__ void fetch(int blocks, int lane, unsigned char* to,
                                        size_t tile = 0) const {
    const unsigned char* codes = codes_ + tile * blocks_ * L::kCodeBytes;
    if constexpr (S == WeightStorage::kBf16) {
      // Rows of the matrix: of a whole line where there are two blocks of it. Its second half lies
      // in the other half of the banks with each second row (row_place()).
      static_assert(kBlocks == 1 || kBlocks == 2);
      const int row = lane / kPieces, piece = lane % kPieces;
      if (piece >= blocks * 4) return;
#pragma unroll
      for (int r = 0; r < kTile; r += kWarp / kPieces)
        copy_async<16>(to + row_place<kBlocks>(row + r, piece),
                       codes + static_cast<size_t>(r) * blocks_ * (kBlock * 2));
    } else {
      copy_bytes<kCodes>(to, codes, blocks * L::kCodeBytes, lane);
      if constexpr (L::kScaled)
        copy_bytes<kScales>(to + kCodes, scales_ + tile * blocks_ * L::kScaleBytes,
                            blocks * L::kScaleBytes, lane);
      if constexpr (L::kK) {
        const int first = block_ / kSuperBlocks, last = (block_ + blocks - 1) / kSuperBlocks;
        copy_bytes<kFactors>(
            to + kCodes + kScales,
            factors_ +
                (tile * (blocks_ / kSuperBlocks) + static_cast<size_t>(first)) * L::kFactorBytes,
            (last - first + 1) * L::kFactorBytes, lane);
      }
    }
  }
  __device__ __forceinline__ void advance() {
    codes_ += kBlocks * kStep;
    if constexpr (L::kScaled) scales_ += kScales;
    if constexpr (L::kK) block_ += kBlocks;
  }

 private:
  static constexpr int kStep = S == WeightStorage::kBf16 ? kBlock * 2 : L::kCodeBytes;
  static constexpr int kPieces = 4 * kBlocks;  // kBf16: of 16 bytes, of a row
  static __device__ __forceinline__ size_t start(const MatrixRef& w, int tile, int block,
                                                 int lane) {
    if constexpr (S == WeightStorage::kBf16)
      return (static_cast<size_t>(tile * kTile + lane / kPieces) * static_cast<size_t>(w.blocks) +
              static_cast<size_t>(block)) *
                 kStep +
             static_cast<size_t>(lane % kPieces) * 16;
    else
      return block_index(w, tile, block) * L::kCodeBytes + static_cast<size_t>(lane) * 16;
  }
  template <int kMost>
  static __device__ __forceinline__ void copy_bytes(unsigned char* to, const unsigned char* from,
                                                    int bytes, int lane) {
#pragma unroll
    for (int i = 0; i < kMost; i += kWarp * 16)
      if (i + lane * 16 < bytes) copy_async<16>(to + i + lane * 16, from + i);
  }
  const unsigned char *codes_, *scales_;
  size_t blocks_;  // of the matrix
  // Of K-quants: of the tile, and the next block.
  const unsigned char* factors_ = nullptr;
  int block_ = 0;
};
// Block u of a stage, whose first is block `first` of the matrix.
template <WeightStorage S, int kBlocks>
__device__ __forceinline__ LaneWeights<S> fetched_weights(const unsigned char* from, int u,
                                                          int lane, int first) {
  using L = LaneWeights<S>;
  const unsigned char* codes = from + u * L::kCodeBytes;
  const unsigned char* scales = from + kBlocks * L::kCodeBytes + u * L::kScaleBytes;
  if constexpr (L::kK) {
    const int eight = kBlocks == 1 ? 0 : (first % kSuperBlocks + u) / kSuperBlocks;
    return k_weights_of<S>(
        codes, scales, from + kBlocks * (L::kCodeBytes + L::kScaleBytes) + eight * L::kFactorBytes,
        lane);
  }
  LaneWeights<S> r = {};
  if constexpr (S == WeightStorage::kBf16) {
    const int g = lane / 4, piece = 4 * u + lane % 4;
    r.codes = *reinterpret_cast<const uint4*>(from + row_place<kBlocks>(g, piece));
    r.more = *reinterpret_cast<const uint4*>(from + row_place<kBlocks>(g + 8, piece));
  } else if constexpr (S == WeightStorage::kQ4Group) {
    const uint2 words = reinterpret_cast<const uint2*>(codes)[lane];
    r.codes.x = words.x, r.codes.y = words.y;
    r.scales = reinterpret_cast<const uint2*>(scales)[lane / 4];
  } else if constexpr (!L::kK) {
    r.codes = reinterpret_cast<const uint4*>(codes)[lane];
    if constexpr (L::kScaled) r.scales.x = reinterpret_cast<const uint32_t*>(scales)[lane / 4];
  }
  return r;
}

}  // namespace evalrun::engine::cuda
