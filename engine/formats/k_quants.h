// What a block of Q4_K, Q5_K or Q6_K holds, taken apart but not computed: codes, integer scales and
// the two float16 they are multiplied with (layouts: blocks_k.cpp). Here and in all that computes
// with them, these three are the K-quants; Q2_K and Q3_K are only widened (dtype.h).
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "engine/formats/dtype.h"

namespace evalrun::engine {

constexpr int kKBlock = 256;  // weights

// Weight i is d * scale * code - dmin * min of its sub-block; in Q6_K d * scale * (code - 32).
struct KBlock {
  uint16_t d = 0, dmin = 0;           // float16; Q6_K has no dmin
  std::array<int8_t, 16> scale = {};  // Q4_K, Q5_K: eight, of 32 weights each; Q6_K: of 16
  std::array<uint8_t, 8> min = {};    // Q4_K, Q5_K
  std::array<uint8_t, kKBlock> code = {};
};

int k_bits(DType t);  // of a code; 0: the type is none of the three
// From block_bytes(t) bytes of such a type.
KBlock unpack_k_block(DType t, std::span<const uint8_t> bytes);
// The 256 weights. `bits` of a code: 4, 5 or 6. Arithmetic: blocks.h.
void k_weights(int bits, const KBlock& block, std::span<float> out);

}  // namespace evalrun::engine
