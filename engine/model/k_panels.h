// Panels of K-quants: 256 inputs of 16 output channels as a block, with the file's own codes and
// scales (engine/formats/k_quants.h). The layout is made for kernels that walk a block from its
// first byte to its last.
//
//   scales   kQ4K, kQ5K: [8][16] bytes, one per 32 inputs; kQ6K: [16][16] signed bytes, per 16
//   minima   kQ4K, kQ5K: [4][16][2] bytes: those of groups 2 t and 2 t + 1, as one 16-bit pair
//   d        [16] float16
//   m        kQ4K, kQ5K: [16] float16, -dmin; kQ6K: 32 bytes of nothing
//   parts    4, each of 64 inputs:
//     nibbles  [8][16][4] bytes: the low four bits of inputs 0..31 in the low halves, of inputs
//              32..63 in the high halves
//     bits     kQ5K: [2][16][4] bytes, one line per 32 inputs: bit i of byte j is the fifth bit of
//              input 4 i + j. kQ6K: [4][16][4], one line per 16 inputs: bits 2 i, 2 i + 1 of byte j
//              are the top bits of input 4 i + j.
//
// A block takes 2,368, 2,880 or 3,392 bytes where the file has 2,304, 2,816 or 3,360: 3 % more at
// most.
#pragma once
#include <cstddef>

#include "engine/formats/k_quants.h"

namespace evalrun::engine {

// Bytes of a block. Functions have internal linkage (engine/cpu/kernels/arith.h says why).
constexpr size_t kKMinima = 128, kKd = 256, kKm = 288, kKParts = 320;  // where they begin
constexpr size_t kKNibbles = 512;                                      // of a part
static constexpr size_t k_part_bytes(int bits) {
  return kKNibbles + static_cast<size_t>(bits - 4) * kKNibbles / 4;
}
static constexpr size_t k_panel_block_bytes(int bits) { return kKParts + 4 * k_part_bytes(bits); }

// `bits` of a code: 4, 5 or 6. `channel`: 0..15.
void store_k_block(int bits, std::byte* block, int channel, const KBlock& from);
KBlock load_k_block(int bits, const std::byte* block, int channel);

}  // namespace evalrun::engine
