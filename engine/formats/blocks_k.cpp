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
#include "engine/formats/blocks.h"
#include "engine/formats/dtype.h"

namespace evalrun::engine::blocks {
namespace {

// The twelve bytes hold eight 6-bit scales and eight 6-bit minima: four of each lie in the low six
// bits of bytes 0-3 and 4-7, the others are split between nibbles of bytes 8-11 and the free top
// bits.
void k_scale_min(const uint8_t* s, int j, int& scale, int& min) {
  if (j < 4) {
    scale = s[j] & 63;
    min = s[j + 4] & 63;
  } else {
    scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
  }
}

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

void q4_k(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in)), dmin = half_to_float(load_u16(in + 2));
  const uint8_t* nibbles = in + 16;
  for (int j = 0; j < 8; ++j) {  // 32 weights each; two neighbours share 32 bytes
    int scale = 0, min = 0;
    k_scale_min(in + 4, j, scale, min);
    const float step = d * static_cast<float>(scale), offset = dmin * static_cast<float>(min);
    const uint8_t* q = nibbles + j / 2 * 32;
    for (int i = 0; i < 32; ++i)
      out[j * 32 + i] = step * static_cast<float>(j % 2 == 0 ? q[i] & 15 : q[i] >> 4) - offset;
  }
}

void q5_k(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in)), dmin = half_to_float(load_u16(in + 2));
  const uint8_t *high = in + 16, *nibbles = in + 48;
  for (int j = 0; j < 8; ++j) {
    int scale = 0, min = 0;
    k_scale_min(in + 4, j, scale, min);
    const float step = d * static_cast<float>(scale), offset = dmin * static_cast<float>(min);
    const uint8_t* q = nibbles + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int low = j % 2 == 0 ? q[i] & 15 : q[i] >> 4;
      out[j * 32 + i] = step * static_cast<float>(low | (high[i] >> j & 1) << 4) - offset;
    }
  }
}

void q6_k(const uint8_t* in, float* out) {
  const uint8_t *low = in, *high = in + 128, *scales = in + 192;
  const float d = half_to_float(load_u16(in + 208));
  for (int i = 0; i < 256; ++i) {
    // Each half of 128 weights is four runs of 32: low nibbles of two runs of bytes, then their
    // high nibbles. The two high bits lie as 2-bit codes do.
    const int half = i / 128, run = i % 128 / 32, r = i % 32;
    const uint8_t byte = low[half * 64 + run % 2 * 32 + r];
    const int low_bits = run < 2 ? byte & 15 : byte >> 4;
    const float step = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = step * static_cast<float>((low_bits | two_bits(high, i) << 4) - 32);
  }
}

}  // namespace evalrun::engine::blocks
