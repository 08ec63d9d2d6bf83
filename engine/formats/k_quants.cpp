#include "engine/formats/k_quants.h"

#include "engine/base/error.h"
#include "engine/formats/blocks.h"

namespace evalrun::engine {
namespace {

// Eight scales and eight minima of six bits in twelve bytes: bytes 0-3 and 4-7 have the first four
// of each in their low six bits. Of the others, bytes 8-11 have the low halves, and the top bits of
// bytes 0-7 the rest.
void unpack_scales(const uint8_t* s, KBlock& block) {
  for (size_t j = 0; j < 4; ++j) {
    block.scale[j] = static_cast<int8_t>(s[j] & 63);
    block.min[j] = s[j + 4] & 63;
    block.scale[j + 4] = static_cast<int8_t>((s[j + 8] & 15) | s[j] >> 6 << 4);
    block.min[j + 4] = static_cast<uint8_t>(s[j + 8] >> 4 | s[j + 4] >> 6 << 4);
  }
}

// 64 weights: the low halves of 32 bytes, then the high ones.
void unpack_nibbles(const uint8_t* nibbles, uint8_t* code) {
  for (size_t part = 0; part < 4; ++part, nibbles += 32, code += 64)
    for (size_t i = 0; i < 32; ++i) {
      code[i] = nibbles[i] & 15;
      code[i + 32] = nibbles[i] >> 4;
    }
}

// Bit j of byte i is the fifth bit of weight 32 j + i.
void add_fifth_bits(const uint8_t* high, uint8_t* code) {
  for (unsigned j = 0; j < 8; ++j, code += 32)
    for (size_t i = 0; i < 32; ++i)
      code[i] = static_cast<uint8_t>(code[i] | (high[i] >> j & 1) << 4);
}

// Each half of 128 weights is four runs of 32: the low halves of two runs of bytes, then their high
// halves; two bits of byte i of the high bits belong to weight i of each run.
void unpack_six_bits(const uint8_t* low, const uint8_t* high, uint8_t* code) {
  for (size_t half = 0; half < 2; ++half, low += 64, high += 32, code += 128)
    for (size_t i = 0; i < 32; ++i) {
      const int h = high[i];
      code[i] = static_cast<uint8_t>((low[i] & 15) | (h & 3) << 4);
      code[i + 32] = static_cast<uint8_t>((low[i + 32] & 15) | (h >> 2 & 3) << 4);
      code[i + 64] = static_cast<uint8_t>(low[i] >> 4 | (h >> 4 & 3) << 4);
      code[i + 96] = static_cast<uint8_t>(low[i + 32] >> 4 | h >> 6 << 4);
    }
}

}  // namespace

int k_bits(DType t) {
  return t == DType::kQ4_K ? 4 : t == DType::kQ5_K ? 5 : t == DType::kQ6_K ? 6 : 0;
}

KBlock unpack_k_block(DType t, std::span<const uint8_t> bytes) {
  EVALRUN_CHECK(k_bits(t) != 0 && static_cast<int64_t>(bytes.size()) == block_bytes(t),
                "{} bytes of a block of {}", bytes.size(), dtype_name(t));
  const uint8_t* p = bytes.data();
  KBlock block;
  if (t == DType::kQ6_K) {
    block.d = blocks::load_u16(p + 208);
    for (size_t i = 0; i < 16; ++i) block.scale[i] = static_cast<int8_t>(p[192 + i]);
    unpack_six_bits(p, p + 128, block.code.data());
    return block;
  }
  block.d = blocks::load_u16(p), block.dmin = blocks::load_u16(p + 2);
  unpack_scales(p + 4, block);
  unpack_nibbles(p + (t == DType::kQ4_K ? 16 : 48), block.code.data());
  if (t == DType::kQ5_K) add_fifth_bits(p + 16, block.code.data());
  return block;
}

void k_weights(int bits, const KBlock& block, std::span<float> out) {
  EVALRUN_CHECK(out.size() == kKBlock, "{} weights of a block", out.size());
  const float d = half_to_float(block.d), dmin = half_to_float(block.dmin);
  const size_t length = bits == 6 ? 16 : 32;  // of a sub-block
  for (size_t j = 0; j < kKBlock / length; ++j) {
    const float step = d * static_cast<float>(block.scale[j]);
    const float offset = bits == 6 ? 0 : dmin * static_cast<float>(block.min[j]);
    for (size_t i = j * length; i < (j + 1) * length; ++i)
      out[i] = bits == 6 ? step * static_cast<float>(block.code[i] - 32)
                         : step * static_cast<float>(block.code[i]) - offset;
  }
}

}  // namespace evalrun::engine
