#include "engine/cuda/check.h"
#include "engine/cuda/pack.h"

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
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t per_tile = static_cast<size_t>(to.in) * kTile;
  if (i >= per_tile * static_cast<size_t>(to.tiles)) return;
  const int o = static_cast<int>(i / per_tile) * kTile + static_cast<int>(i % kTile);
  const int k = static_cast<int>(i % per_tile / kTile);
  const SourceRow s = source_of(map, o);
  codes[i] = s.row < 0 ? 0.0f : panel_f32(s.part, s.row, k);
}

__global__ void pack_bf16(RowMap map, MatrixRef to, uint16_t* codes) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t width = static_cast<size_t>(to.blocks) * kBlock;
  if (i >= width * static_cast<size_t>(to.tiles) * kTile) return;
  const int o = static_cast<int>(i / width), k = static_cast<int>(i % width);
  const SourceRow s = source_of(map, o);
  codes[i] = s.row < 0 || k >= to.in ? uint16_t{0} : panel_bf16(s.part, s.row, k);
}

// One word of a lane: four bytes, or eight 4-bit codes.
__global__ void pack_codes(RowMap map, MatrixRef to, uint32_t* codes) {
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
  const int o = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (o >= to.tiles * kTile) return;
  const SourceRow s = source_of(map, o);
  scales[o] = s.row < 0 ? 0.0f : panel_channel_scale(s.part, s.row);
}

__global__ void unpack_rows(MatrixRef w, uint16_t* rows) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t width = static_cast<size_t>(w.blocks) * kBlock;
  if (i >= width * static_cast<size_t>(w.tiles) * kTile) return;
  const int k = static_cast<int>(i % width);
  rows[i] = k < w.in ? float_to_bf16(weight_at(w, static_cast<int>(i / width), k)) : uint16_t{0};
}

dim3 grid_for(size_t threads) {
  return dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
}

}  // namespace

void unpack(const MatrixRef& w, uint16_t* rows, cudaStream_t stream) {
  const size_t values =
      static_cast<size_t>(w.tiles) * kTile * static_cast<size_t>(w.blocks) * kBlock;
  launch("unpack_rows", unpack_rows, grid_for(values), kThreads, 0, stream, w, rows);
}

void pack(const RowMap& map, const MatrixRef& to, size_t code_bytes, size_t scale_bytes,
          cudaStream_t stream) {
  // Of a matrix made here, hence not const.
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
