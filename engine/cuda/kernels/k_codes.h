// K-quants on the device: where bits, scales and factors of a tile lie (engine/cuda/kernels/
// matrix_ref.h), and how codes become bfloat16. What packs them and what multiplies them both read
// it here.
//
// Codes have 4, 5 or 6 bits. In a lane's eight inputs of an output, code c has its low four bits
// where q4_pair() (engine/cuda/kernels/device_code.h) looks for them; the bits above are in a word
// that outputs g and g + 8 share.
#pragma once
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/matrix_ref.h"

namespace evalrun::engine::cuda {

constexpr int kSuperBlocks = 8;  // blocks of 32 inputs that share d (and m): 256 inputs

// Bytes of a tile and block: codes; scales; and of a tile and eight blocks the factors.
constexpr int k_code_bytes(int bits) { return kTile * kBlock * bits / 8; }
constexpr int kKScaleBytes = 32;
constexpr int k_factor_bytes(int bits) { return bits == 6 ? 32 : 64; }
// Where a lane's word of high bits lies in a tile and block: behind the low ones of all lanes.
constexpr int kKHighAt = kWarp * 8;

// The place of the lowest bit above the fourth of code c of output g (`second` 0) or g + 8 (1).
EVALRUN_DEVICE inline int k_high_bit(int bits, int second, int c) {
  const int pair = c / 2 + 4 * second;
  return bits == 5 ? c % 2 * 8 + pair : c % 2 * 16 + 2 * pair;
}
// The word of high bits as k_pair() takes it; 5 bits have half a word in memory, a byte of even
// codes and one of odd ones.
EVALRUN_DEVICE inline uint32_t spread_high(int bits, uint32_t word) {
  return bits == 5 ? pick_bytes(word, 0, 0x4140u) << 4 : word;
}

// Codes 2i and 2i + 1 of an output, less 32 in 6 bits, as pairs of bfloat16: exact. `nibbles`: the
// output's low bits; `high`: of spread_high().
template <int kBits>
EVALRUN_DEVICE inline uint32_t k_pair(uint32_t nibbles, uint32_t high, int second, int i) {
  static_assert(kBits == 5 || kBits == 6);
  const int pair = i + 4 * second;
  uint32_t more;  // the high bits, from bit 4 of each half on
  if constexpr (kBits == 5)
    more = high >> pair & 0x00100010u;
  else
    more = (pair < 2 ? high << (4 - 2 * pair) : high >> (2 * pair - 4)) & 0x00300030u;
  // 128 + code; 128 (0x4300) and 160 (0x4320) go off again. The last bit of both counts 1.
  const uint32_t biased = (nibbles >> (4 * i) & 0x000f000fu) | more | 0x43004300u;
#if defined(__CUDA_ARCH__)
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(result)
      : "r"(biased), "r"(0x3f803f80u), "r"(kBits == 6 ? 0xc320c320u : 0xc300c300u));
  return result;
#else
  constexpr float kLess = kBits == 6 ? 160.0f : 128.0f;
  return pack_bf16(low_bf16(biased) - kLess, high_bf16(biased) - kLess);
#endif
}

// Byte i of a word as a number, less `less`: 2^23 + byte, and 2^23 + less off again.
EVALRUN_DEVICE inline float byte_value(uint32_t word, int i, int less) {
  return bits_to_float(pick_bytes(word, 0x4b000000u, 0x7540u + static_cast<uint32_t>(i))) -
         (8388608.0f + static_cast<float>(less));
}
// Scales of 6 bits have a sign: the device has them plus 128.
constexpr int kKSigned = 128;

}  // namespace evalrun::engine::cuda
