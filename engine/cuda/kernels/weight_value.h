// Single weights out of their layouts: of the host's panels (engine/model/weight_matrix.h) and of
// the device's tiles (engine/cuda/kernels/matrix_ref.h). For repacking and for embeddings.
#pragma once
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/k_codes.h"
#include "engine/cuda/kernels/matrix_ref.h"
#include "engine/model/k_panels.h"

namespace evalrun::engine::cuda {

// One host matrix in raw device memory, as it lies in the host's.
struct PanelRef {
  const unsigned char* data = nullptr;
  size_t panel_bytes = 0;
  int out = 0, in = 0;
};

// Bytes of a block of 64 inputs of 16 channels, codes and scales.
constexpr int kInt8Codes = 64 * 16, kQ4Codes = kInt8Codes / 2;
constexpr int kInt8PanelBlock = kInt8Codes + 2 * 16 * 2, kQ4PanelBlock = kQ4Codes + 4 * 16 * 2;

EVALRUN_DEVICE inline const unsigned char* panel_of(const PanelRef& w, int o) {
  return w.data + static_cast<size_t>(o / 16) * w.panel_bytes;
}
EVALRUN_DEVICE inline float panel_f32(const PanelRef& w, int o, int k) {
  return reinterpret_cast<const float*>(
      panel_of(w, o))[static_cast<size_t>(k) * 16 + static_cast<size_t>(o % 16)];
}
EVALRUN_DEVICE inline uint16_t panel_bf16(const PanelRef& w, int o, int k) {
  return reinterpret_cast<const uint16_t*>(
      panel_of(w, o))[(static_cast<size_t>(k / 2) * 16 + static_cast<size_t>(o % 16)) * 2 +
                      static_cast<size_t>(k % 2)];
}
// w + 128, or 0..15.
EVALRUN_DEVICE inline unsigned panel_code(const PanelRef& w, WeightStorage s, int o, int k) {
  const int block = s == WeightStorage::kQ4Group     ? kQ4PanelBlock
                    : s == WeightStorage::kInt8Group ? kInt8PanelBlock
                                                     : kInt8Codes;
  const unsigned char* at = panel_of(w, o) + static_cast<size_t>(k / 64) * block + o % 16 * 4;
  const int i = k % 64;
  if (s == WeightStorage::kQ4Group) {
    const unsigned pair = at[i % 32 / 4 * 64 + i % 4];
    return i < 32 ? pair & 15u : pair >> 4;
  }
  return at[i / 4 * 64 + i % 4];
}
EVALRUN_DEVICE inline uint16_t panel_half(const PanelRef& w, WeightStorage s, int o, int group,
                                          bool offset) {
  const bool q4 = s == WeightStorage::kQ4Group;
  const unsigned char* block =
      panel_of(w, o) + static_cast<size_t>(group / 2) * (q4 ? kQ4PanelBlock : kInt8PanelBlock);
  const unsigned char* at = block + (q4 ? kQ4Codes : kInt8Codes) + (offset ? 2 * 16 * 2 : 0) +
                            (group % 2 * 16 + o % 16) * 2;
  return static_cast<uint16_t>(at[0] | at[1] << 8);
}
EVALRUN_DEVICE inline float panel_channel_scale(const PanelRef& w, int o) {
  return reinterpret_cast<const float*>(panel_of(w, o) + w.panel_bytes)[o % 16 - 16];
}

// Of K-quants: the block of 256 inputs with input k of a panel, at output o's place in each line of
// 16 bytes (engine/model/k_panels.h).
EVALRUN_DEVICE inline const unsigned char* panel_k_block(const PanelRef& w, int bits, int o,
                                                         int k) {
  return panel_of(w, o) + static_cast<size_t>(k / kKBlock) * k_panel_block_bytes(bits);
}
EVALRUN_DEVICE inline unsigned panel_k_code(const PanelRef& w, int bits, int o, int k) {
  const int i = k % 64;
  const unsigned char* part = panel_k_block(w, bits, o, k) + kKParts +
                              static_cast<size_t>(k % kKBlock / 64) * k_part_bytes(bits) +
                              o % 16 * 4 + i % 4;
  const unsigned both = part[i % 32 / 4 * 64];
  const unsigned low = i < 32 ? both & 15u : both >> 4;
  const unsigned char* high = part + kKNibbles;
  if (bits == 5) return low | (high[i / 32 * 64] >> (i % 32 / 4) & 1u) << 4;
  if (bits == 6) return low | (high[i / 16 * 64] >> (2 * (i % 16 / 4)) & 3u) << 4;
  return low;
}
// Of the 32 inputs from k on, in 6 bits of 16; 6 bits: plus kKSigned.
EVALRUN_DEVICE inline unsigned panel_k_scale(const PanelRef& w, int bits, int o, int k) {
  const unsigned char* block = panel_k_block(w, bits, o, k);
  if (bits == 6) return (block[k % kKBlock / 16 * 16 + o % 16] + kKSigned) & 255u;
  return block[k % kKBlock / 32 * 16 + o % 16];
}
EVALRUN_DEVICE inline unsigned panel_k_minimum(const PanelRef& w, int bits, int o, int k) {
  const int group = k % kKBlock / 32;
  return panel_k_block(
      w, bits, o, k)[kKMinima + static_cast<size_t>((group / 2 * 16 + o % 16) * 2 + group % 2)];
}
EVALRUN_DEVICE inline uint16_t panel_k_factor(const PanelRef& w, int bits, int o, int k, bool m) {
  const unsigned char* at =
      panel_k_block(w, bits, o, k) + (m ? kKm : kKd) + static_cast<size_t>(o % 16 * 2);
  return static_cast<uint16_t>(at[0] | at[1] << 8);
}

// The weight of output o and input k of a K-quant, as engine/formats/k_quants.cpp has it.
EVALRUN_DEVICE inline float k_weight_at(const MatrixRef& w, int o, int k) {
  const int bits = k_bits(w.storage);
  const int g = o % 8, second = o % kTile / 8, block = k / kBlock, i = k % 8;
  const int lane = g * 4 + k % kBlock / 8;
  const size_t tile = static_cast<size_t>(o / kTile), blocks = static_cast<size_t>(w.blocks);
  const size_t at = tile * blocks + static_cast<size_t>(block);
  const unsigned char* codes = w.codes + at * static_cast<size_t>(k_code_bytes(bits));
  const uint32_t nibbles = reinterpret_cast<const uint32_t*>(codes)[lane * 2 + second];
  unsigned code = nibbles >> (4 * (i / 2) + 16 * (i % 2)) & 15u;
  const int place = k_high_bit(bits, second, i);
  if (bits == 5)
    code |= (reinterpret_cast<const uint16_t*>(codes + kKHighAt)[lane] >> place & 1u) << 4;
  if (bits == 6)
    code |= (reinterpret_cast<const uint32_t*>(codes + kKHighAt)[lane] >> place & 3u) << 4;
  const uint32_t scales =
      reinterpret_cast<const uint32_t*>(w.scales)[at * 8 + static_cast<size_t>(g)];
  const auto* factors = reinterpret_cast<const uint16_t*>(
      w.factors + ((tile * blocks / kSuperBlocks + static_cast<size_t>(block / kSuperBlocks)) * 8 +
                   static_cast<size_t>(g)) *
                      static_cast<size_t>(k_factor_bytes(bits) / 8));
  const float d = half_bits_to_float(factors[second]);
  if (bits == 6) {
    const int which = k % kBlock / 16 * 2 + second;
    return d * byte_value(scales, which, kKSigned) *
           static_cast<float>(static_cast<int>(code) - 32);
  }
  return d * byte_value(scales, second, 0) * static_cast<float>(code) +
         half_bits_to_float(factors[2 + second]) * byte_value(scales, 2 + second, 0);
}

// The weight of output o and input k, dequantised.
EVALRUN_DEVICE inline float weight_at(const MatrixRef& w, int o, int k) {
  const int tile = o / kTile, g = o % 8, second = o % kTile / 8;
  const int block = k / kBlock, lane = g * 4 + k % kBlock / 8, i = k % 8;
  const size_t at =
      static_cast<size_t>(tile) * static_cast<size_t>(w.blocks) + static_cast<size_t>(block);
  switch (w.storage) {
    case WeightStorage::kF32:
      return reinterpret_cast<const float*>(
          w.codes)[(static_cast<size_t>(tile) * static_cast<size_t>(w.in) +
                    static_cast<size_t>(k)) *
                       kTile +
                   static_cast<size_t>(o % kTile)];
    case WeightStorage::kBf16:
      return bf16_to_float(reinterpret_cast<const uint16_t*>(
          w.codes)[static_cast<size_t>(o) * static_cast<size_t>(w.blocks) * kBlock +
                   static_cast<size_t>(k)]);
    case WeightStorage::kInt8Channel:
    case WeightStorage::kInt8Group: {
      const float code = static_cast<float>(
          static_cast<int>(w.codes[(at * kWarp + lane) * 16 + second * 8 + i]) - 128);
      if (w.storage == WeightStorage::kInt8Channel)
        return reinterpret_cast<const float*>(w.scales)[o] * code;
      const auto* d = reinterpret_cast<const uint16_t*>(w.scales) + (at * 8 + g) * 2;
      return half_bits_to_float(d[second]) * code;
    }
    case WeightStorage::kQ4Group: {
      const uint32_t word =
          reinterpret_cast<const uint32_t*>(w.codes)[(at * kWarp + lane) * 2 + second];
      const float code = static_cast<float>(word >> (4 * (i / 2) + 16 * (i % 2)) & 15u);
      const auto* s = reinterpret_cast<const uint16_t*>(w.scales) + (at * 8 + g) * 4;
      return half_bits_to_float(s[second]) * code + half_bits_to_float(s[2 + second]);
    }
    case WeightStorage::kQ4K:
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K:
      return k_weight_at(w, o, k);
    case WeightStorage::kQ4Centred:  // not on devices
      break;
  }
  return 0;
}

}  // namespace evalrun::engine::cuda
