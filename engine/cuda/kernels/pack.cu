#include "engine/cuda/kernels/lane_weights.h"
#include "engine/cuda/kernels/pack.h"
#include "engine/cuda/runtime/check.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kThreads = 256;

struct SourceRow {
  PanelRef part;
  int row;  // < 0: padding
};
// Chosen part by part: an index into an argument would put all of it into local memory.
EVALRUN_DEVICE inline SourceRow source_of(const RowMap& m, int o) {
  PanelRef part = m.part[0];
  int row = o;
  if (m.joint == Joint::kTurns) {
    if (o % kTile >= 8) part = m.part[1];
    row = o / kTile * 8 + o % 8;
  } else {
    if (m.n > 1 && o >= m.first[1]) part = m.part[1], row = o - m.first[1];
    if (m.n > 2 && o >= m.first[2]) part = m.part[2], row = o - m.first[2];
  }
  return {part, row < part.out ? row : -1};
}

__global__ void pack_f32(RowMap map, MatrixRef to, float* codes) {
  wait_for_previous();
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t per_tile = static_cast<size_t>(to.in) * kTile;
  if (i >= per_tile * static_cast<size_t>(to.tiles)) return;
  const int o = static_cast<int>(i / per_tile) * kTile + static_cast<int>(i % kTile);
  const int k = static_cast<int>(i % per_tile / kTile);
  const SourceRow s = source_of(map, o);
  codes[i] = s.row < 0 ? 0.0f : panel_f32(s.part, s.row, k);
}

__global__ void pack_bf16(RowMap map, MatrixRef to, uint16_t* codes) {
  wait_for_previous();
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t width = static_cast<size_t>(to.blocks) * kBlock;
  if (i >= width * static_cast<size_t>(to.tiles) * kTile) return;
  const int o = static_cast<int>(i / width), k = static_cast<int>(i % width);
  const SourceRow s = source_of(map, o);
  codes[i] = s.row < 0 || k >= to.in ? uint16_t{0} : panel_bf16(s.part, s.row, k);
}

// One word of a lane: four bytes, or eight 4-bit codes.
__global__ void pack_codes(RowMap map, MatrixRef to, uint32_t* codes) {
  wait_for_previous();
  const bool q4 = to.storage == WeightStorage::kQ4Group;
  const int words = q4 ? 2 : 4;
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t lanes = static_cast<size_t>(to.tiles) * static_cast<size_t>(to.blocks) * kWarp;
  if (i >= lanes * static_cast<size_t>(words)) return;
  const int word = static_cast<int>(i % static_cast<size_t>(words));
  const size_t lane = i / static_cast<size_t>(words), block = lane / kWarp;
  const int g = static_cast<int>(lane % kWarp) / 4, t = static_cast<int>(lane % 4);
  const int second = q4 ? word : word / 2;
  const int o = static_cast<int>(block / static_cast<size_t>(to.blocks)) * kTile + g + 8 * second;
  const int k = static_cast<int>(block % static_cast<size_t>(to.blocks)) * kBlock + 8 * t;
  const SourceRow s = source_of(map, o);
  uint32_t value = 0;
  for (int j = 0; j < (q4 ? 8 : 4); ++j) {
    const int at = q4 ? j : word % 2 * 4 + j;
    const unsigned none = q4 ? 0 : 128;
    const unsigned code =
        s.row < 0 || k + at >= to.in ? none : panel_code(s.part, to.storage, s.row, k + at);
    value |= code << (q4 ? 4 * (at / 2) + 16 * (at % 2) : 8 * j);
  }
  codes[i] = value;
}

// [tile][block][g][d, d' (, m, m')]
__global__ void pack_scales(RowMap map, MatrixRef to, uint16_t* scales) {
  wait_for_previous();
  const int each = to.storage == WeightStorage::kQ4Group ? 4 : 2;
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t blocks = static_cast<size_t>(to.tiles) * static_cast<size_t>(to.blocks);
  if (i >= blocks * 8 * static_cast<size_t>(each)) return;
  const int which = static_cast<int>(i % static_cast<size_t>(each));
  const size_t at = i / static_cast<size_t>(each);
  const int g = static_cast<int>(at % 8);
  const size_t block = at / 8;
  const int o =
      static_cast<int>(block / static_cast<size_t>(to.blocks)) * kTile + g + 8 * (which % 2);
  const int group = static_cast<int>(block % static_cast<size_t>(to.blocks));
  const SourceRow s = source_of(map, o);
  scales[i] = s.row < 0 ? uint16_t{0} : panel_half(s.part, to.storage, s.row, group, which >= 2);
}
__global__ void pack_channel_scales(RowMap map, MatrixRef to, float* scales) {
  wait_for_previous();
  const int o = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (o >= to.tiles * kTile) return;
  const SourceRow s = source_of(map, o);
  scales[o] = s.row < 0 ? 0.0f : panel_channel_scale(s.part, s.row);
}

// K-quants. A thread is a lane of a tile and block.
template <int kBits>
__global__ void pack_k_codes(RowMap map, MatrixRef to, unsigned char* codes) {
  wait_for_previous();
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t blocks = static_cast<size_t>(to.blocks);
  if (i >= static_cast<size_t>(to.tiles) * blocks * kWarp) return;
  const size_t block = i / kWarp, lane = i % kWarp;
  const int g = static_cast<int>(lane) / 4, t = static_cast<int>(lane % 4);
  const int k = static_cast<int>(block % blocks) * kBlock + 8 * t;
  uint32_t low[2] = {}, high = 0;
  for (int second = 0; second < 2; ++second) {
    const SourceRow s = source_of(map, static_cast<int>(block / blocks) * kTile + g + 8 * second);
    if (s.row < 0) continue;
    for (int j = 0; j < 8; ++j) {
      const unsigned code = panel_k_code(s.part, kBits, s.row, k + j);
      (second == 0 ? low[0] : low[1]) |= (code & 15u) << (4 * (j / 2) + 16 * (j % 2));
      if (kBits > 4) high |= code >> 4 << k_high_bit(kBits, second, j);
    }
  }
  unsigned char* at = codes + block * static_cast<size_t>(k_code_bytes(kBits));
  reinterpret_cast<uint32_t*>(at)[2 * lane] = low[0];
  reinterpret_cast<uint32_t*>(at)[2 * lane + 1] = low[1];
  if (kBits == 5) reinterpret_cast<uint16_t*>(at + kKHighAt)[lane] = static_cast<uint16_t>(high);
  if (kBits == 6) reinterpret_cast<uint32_t*>(at + kKHighAt)[lane] = high;
}
// A thread is g of a tile and block.
__global__ void pack_k_scales(RowMap map, MatrixRef to, int bits, uint32_t* scales) {
  wait_for_previous();
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t blocks = static_cast<size_t>(to.blocks), block = i / 8;
  if (i >= static_cast<size_t>(to.tiles) * blocks * 8) return;
  const int k = static_cast<int>(block % blocks) * kBlock;
  uint32_t word = 0;
  for (int second = 0; second < 2; ++second) {
    const SourceRow s = source_of(
        map, static_cast<int>(block / blocks) * kTile + static_cast<int>(i % 8) + 8 * second);
    if (s.row < 0) continue;  // their factors are zeros
    const unsigned first = panel_k_scale(s.part, bits, s.row, k);
    const unsigned other = bits == 6 ? panel_k_scale(s.part, bits, s.row, k + 16)
                                     : panel_k_minimum(s.part, bits, s.row, k);
    word |= (first | other << 16) << (8 * second);
  }
  scales[i] = word;
}
// A thread is one of [tile][8 blocks][g][d, d' (, m, m')].
__global__ void pack_k_factors(RowMap map, MatrixRef to, int bits, uint16_t* factors) {
  wait_for_previous();
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto each = static_cast<size_t>(k_factor_bytes(bits) / 16);
  const size_t eights = static_cast<size_t>(to.blocks) / kSuperBlocks;
  if (i >= static_cast<size_t>(to.tiles) * eights * 8 * each) return;
  const int which = static_cast<int>(i % each), g = static_cast<int>(i / each % 8);
  const size_t eight = i / each / 8;
  const SourceRow s =
      source_of(map, static_cast<int>(eight / eights) * kTile + g + 8 * (which % 2));
  const int k = static_cast<int>(eight % eights) * kSuperBlocks * kBlock;
  factors[i] = s.row < 0 ? uint16_t{0} : panel_k_factor(s.part, bits, s.row, k, which >= 2);
}

// A thread is a lane of a tile and block: whole words in and out.
template <WeightStorage S>
__global__ void unpack_tiles(MatrixRef w, uint4* rows) {
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int tile = static_cast<int>(blockIdx.y), block = i / kWarp, lane = i % kWarp;
  if (block >= w.blocks) return;
  const int g = lane / 4, t = lane % 4;
  const LaneWeights<S> from = load_weights<S>(w, tile, block, lane);
#pragma unroll
  for (int second = 0; second < 2; ++second) {
    const int o = tile * kTile + g + 8 * second;
    float d = 0, m = 0;
    if constexpr (S == WeightStorage::kInt8Channel)
      d = reinterpret_cast<const float*>(w.scales)[o];
    else
      d = from.scale(second, LaneWeights<S>::kHalves ? t / 2 : 0);
    if constexpr (LaneWeights<S>::kOffset) m = from.offset(second);
    uint32_t words[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const uint32_t codes = from.pair(second, p);
      const auto value = [&](float code, int k) {
        if (k >= w.in) return 0.0f;
        return LaneWeights<S>::kOffset ? d * code + m : d * code;
      };
      const int k = block * kBlock + 8 * t + 2 * p;
      words[p] = cuda::pack_bf16(value(low_bf16(codes), k), value(high_bf16(codes), k + 1));
    }
    rows[(static_cast<size_t>(o) * static_cast<size_t>(w.blocks) + static_cast<size_t>(block)) * 4 +
         static_cast<size_t>(t)] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

template <WeightStorage S>
void unpack_as(const MatrixRef& w, uint16_t* rows, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((w.blocks * kWarp + kThreads - 1) / kThreads),
                  static_cast<unsigned>(w.tiles));
  launch("unpack_tiles", unpack_tiles<S>, grid, kThreads, 0, stream, w,
         reinterpret_cast<uint4*>(rows));
}

dim3 grid_for(size_t threads) {
  return dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
}

template <int kBits>
void pack_k(const RowMap& map, const MatrixRef& to, unsigned char* codes, unsigned char* scales,
            cudaStream_t stream) {
  const size_t blocks = static_cast<size_t>(to.tiles) * static_cast<size_t>(to.blocks);
  launch("pack_k_codes", pack_k_codes<kBits>, grid_for(blocks * kWarp), kThreads, 0, stream, map,
         to, codes);
  launch("pack_k_scales", pack_k_scales, grid_for(blocks * 8), kThreads, 0, stream, map, to, kBits,
         reinterpret_cast<uint32_t*>(scales));
  auto* factors = reinterpret_cast<uint16_t*>(const_cast<unsigned char*>(to.factors));
  launch("pack_k_factors", pack_k_factors,
         grid_for(blocks / kSuperBlocks * static_cast<size_t>(k_factor_bytes(kBits) / 2)), kThreads,
         0, stream, map, to, kBits, factors);
}

}  // namespace

void unpack(const MatrixRef& w, uint16_t* rows, cudaStream_t stream) {
  switch (w.storage) {
    case WeightStorage::kInt8Channel:
      return unpack_as<WeightStorage::kInt8Channel>(w, rows, stream);
    case WeightStorage::kInt8Group:
      return unpack_as<WeightStorage::kInt8Group>(w, rows, stream);
    case WeightStorage::kQ4Group:
      return unpack_as<WeightStorage::kQ4Group>(w, rows, stream);
    case WeightStorage::kQ4K:
      return unpack_as<WeightStorage::kQ4K>(w, rows, stream);
    case WeightStorage::kQ5K:
      return unpack_as<WeightStorage::kQ5K>(w, rows, stream);
    case WeightStorage::kQ6K:
      return unpack_as<WeightStorage::kQ6K>(w, rows, stream);
    case WeightStorage::kF32:
    case WeightStorage::kBf16:
    case WeightStorage::kQ4Centred:
      check_argument(false, "unpacked weights are codes of the device's layouts");
  }
}

void pack(const RowMap& map, const MatrixRef& to, size_t code_bytes, size_t scale_bytes,
          cudaStream_t stream) {
  // The matrix was made here, so it is not const.
  auto* codes = const_cast<unsigned char*>(to.codes);
  auto* scales = const_cast<unsigned char*>(to.scales);
  switch (to.storage) {
    case WeightStorage::kF32:
      launch("pack_f32", pack_f32, grid_for(code_bytes / 4), kThreads, 0, stream, map, to,
             reinterpret_cast<float*>(codes));
      break;
    case WeightStorage::kBf16:
      launch("pack_bf16", pack_bf16, grid_for(code_bytes / 2), kThreads, 0, stream, map, to,
             reinterpret_cast<uint16_t*>(codes));
      break;
    case WeightStorage::kQ4K:
      return pack_k<4>(map, to, codes, scales, stream);
    case WeightStorage::kQ5K:
      return pack_k<5>(map, to, codes, scales, stream);
    case WeightStorage::kQ6K:
      return pack_k<6>(map, to, codes, scales, stream);
    default:
      launch("pack_codes", pack_codes, grid_for(code_bytes / 4), kThreads, 0, stream, map, to,
             reinterpret_cast<uint32_t*>(codes));
      if (to.storage == WeightStorage::kInt8Channel)
        launch("pack_channel_scales", pack_channel_scales, grid_for(scale_bytes / 4), kThreads, 0,
               stream, map, to, reinterpret_cast<float*>(scales));
      else
        launch("pack_scales", pack_scales, grid_for(scale_bytes / 2), kThreads, 0, stream, map, to,
               reinterpret_cast<uint16_t*>(scales));
  }
}

}  // namespace evalrun::engine::cuda
