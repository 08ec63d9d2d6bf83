// Superblocks of 256 weights. A scale s, and perhaps a minimum, of few bits per 16 or 32 weights is
// itself scaled by a half-precision number of the superblock:
//
//   Q2_K  84 B: scale and minimum nibbles[16], 2-bit codes[64], d f16, dmin f16
//               w = (d * s) * q - (dmin * min), per 16 weights
//   Q3_K 110 B: high bits[32], 2-bit codes[64], 6-bit scales[12], d f16
//               w = (d * (s - 32)) * (q - 4), per 16 weights
//   Q4_K 144 B: d f16, dmin f16, 6-bit scales and minima[12], nibbles[128]
//   Q5_K 176 B: d f16, dmin f16, 6-bit scales and minima[12], high bits[32], nibbles[128]
//               w = (d * s) * q - (dmin * min), per 32 weights
//   Q6_K 210 B: low nibbles[128], high bits[64], scales int8[16], d f16
//               w = (d * s) * (q - 32), per 16 weights
#include <span>

#include "engine/formats/blocks.h"
#include "engine/formats/dtype.h"
#include "engine/formats/k_quants.h"

namespace evalrun::engine::blocks {
namespace {

// Code i of 256 with two bits each. A half of 128 codes is four runs of 32; byte r of the half
// holds code r of all four runs, the first run lowest.
int two_bits(const uint8_t* codes, int i) {
  const int half = i / 128, run = i % 128 / 32, r = i % 32;
  return codes[half * 32 + r] >> (2 * run) & 3;
}

// Scale j of 16, six bits: the low four are nibbles of bytes 0-7, first the low ones of all eight;
// the high two are in bytes 8-11, scales j, j + 4, j + 8 and j + 12 in one byte.
int q3_k_scale(const uint8_t* s, int j) {
  const int low = s[j % 8] >> (4 * (j / 8)) & 15, high = s[8 + j % 4] >> (2 * (j / 4)) & 3;
  return (low | high << 4) - 32;
}

// By way of the parts that kernels compute with (k_quants.h).
void widen_parts(DType t, const uint8_t* in, float* out) {
  const std::span<const uint8_t> block(in, static_cast<size_t>(block_bytes(t)));
  k_weights(k_bits(t), unpack_k_block(t, block), {out, kKBlock});
}

}  // namespace

void q2_k(const uint8_t* in, float* out) {
  const uint8_t *scales = in, *codes = in + 16;
  const float d = half_to_float(load_u16(in + 80)), dmin = half_to_float(load_u16(in + 82));
  for (int i = 0; i < 256; ++i) {
    const uint8_t s = scales[i / 16];
    const float step = d * static_cast<float>(s & 15), offset = dmin * static_cast<float>(s >> 4);
    out[i] = step * static_cast<float>(two_bits(codes, i)) - offset;
  }
}

void q3_k(const uint8_t* in, float* out) {
  const uint8_t *high = in, *codes = in + 32, *scales = in + 96;
  const float d = half_to_float(load_u16(in + 108));
  for (int i = 0; i < 256; ++i) {
    const float step = d * static_cast<float>(q3_k_scale(scales, i / 16));
    const int bit = high[i % 32] >> (i / 32) & 1;
    out[i] = step * static_cast<float>((two_bits(codes, i) | bit << 2) - 4);
  }
}

void q4_k(const uint8_t* in, float* out) { widen_parts(DType::kQ4_K, in, out); }
void q5_k(const uint8_t* in, float* out) { widen_parts(DType::kQ5_K, in, out); }
void q6_k(const uint8_t* in, float* out) { widen_parts(DType::kQ6_K, in, out); }

}  // namespace evalrun::engine::blocks
