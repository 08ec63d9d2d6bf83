// Superblocks of 256 weights that are points of a grid, of 8 or 4 weights (grids.h). A scale s of
// few bits per 16 or 32 weights is itself scaled by a half-precision number of the superblock:
//
//   IQ2_XXS 66 B: d f16, per 32 weights {point bytes[4], u32 of signs 4 x 7 and scale 4 bits}
//                 w = ((d * (s + 0.5)) * 0.25) * point, per 32 weights
//   IQ2_XS  74 B: d f16, u16[32] of point 9 and signs 7 bits, scale nibbles[8]
//                 w as above, per 16 weights
//   IQ2_S   82 B: d f16, low point bytes[32], signs[32], high point bits 4 x 2 [8], nibbles[8]
//                 w as above, per 16 weights
//   IQ3_XXS 98 B: d f16, point bytes[64], u32[8] of signs 4 x 7 and scale 4 bits
//                 w = ((d * (s + 0.5)) * 0.5) * point, per 32 weights
//   IQ3_S  110 B: d f16, low point bytes[64], high point bits[8], signs[32], scale nibbles[4]
//                 w = (d * (2 s + 1)) * point, per 32 weights
//   IQ1_S   50 B: d f16, low point bytes[32], u16[8] of high point bits 4 x 3, scale 3, shift 1
//                 w = (d * (2 s + 1)) * (point +- 1/8), per 32 weights
//   IQ1_M   56 B: low point bytes[32], nibbles[32] of high point bits 3 and shift 1,
//                 u16[4] of scales 4 x 3 and a quarter of d, 4 bits
//                 w as above, scale per 16 weights, shift per 8
//
// Bit i of eight signs negates weight i. Of signs in seven bits the eighth makes the number of
// negated weights even.
#include <bit>
#include <span>

#include "engine/formats/blocks.h"
#include "engine/formats/dtype.h"
#include "engine/formats/grids.h"

namespace evalrun::engine::blocks {
namespace {

constexpr float kIq1Shift = 0.125f;

unsigned eight_signs(uint32_t seven) {
  seven &= 127;
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1) << 7;
}

void put_signed(float step, std::span<const int8_t> point, unsigned signs, float* out) {
  for (size_t i = 0; i < point.size(); ++i) {
    const float w = step * static_cast<float>(point[i]);
    out[i] = (signs >> i & 1) != 0 ? -w : w;
  }
}

// Two points of four weights each under one byte of signs.
void put_pair(float step, std::span<const int8_t> first, std::span<const int8_t> second,
              unsigned signs, float* out) {
  put_signed(step, first, signs & 15, out);
  put_signed(step, second, signs >> 4, out + 4);
}

float iq2_step(float d, uint32_t scale) { return d * (0.5f + static_cast<float>(scale)) * 0.25f; }
float odd_step(float d, int scale) { return d * static_cast<float>(2 * scale + 1); }

void put_shifted(float step, std::span<const int8_t> point, bool is_down, float* out) {
  const float shift = is_down ? -kIq1Shift : kIq1Shift;
  for (size_t i = 0; i < point.size(); ++i) out[i] = step * (static_cast<float>(point[i]) + shift);
}

}  // namespace

void iq2_xxs(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  for (int j = 0; j < 8; ++j) {
    const uint8_t* points = in + 2 + 8 * j;
    const uint32_t bits = load_u32(points + 4);
    for (int k = 0; k < 4; ++k)
      put_signed(iq2_step(d, bits >> 28), kGridIq2Xxs[points[k]], eight_signs(bits >> (7 * k)),
                 out + 32 * j + 8 * k);
  }
}

void iq2_xs(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  const uint8_t *codes = in + 2, *scales = in + 66;
  for (int k = 0; k < 32; ++k) {
    const uint16_t code = load_u16(codes + 2 * k);
    put_signed(iq2_step(d, static_cast<uint32_t>(nibble(scales, k / 2))), kGridIq2Xs[code & 511],
               eight_signs(code >> 9), out + 8 * k);
  }
}

void iq2_s(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  const uint8_t *low = in + 2, *signs = in + 34, *high = in + 66, *scales = in + 74;
  for (int k = 0; k < 32; ++k) {
    const int point = low[k] | (high[k / 4] >> (2 * (k % 4)) & 3) << 8;
    put_signed(iq2_step(d, static_cast<uint32_t>(nibble(scales, k / 2))),
               kGridIq2S[static_cast<size_t>(point)], signs[k], out + 8 * k);
  }
}

void iq3_xxs(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  for (int j = 0; j < 8; ++j) {
    const uint8_t* points = in + 2 + 8 * j;
    const uint32_t bits = load_u32(in + 66 + 4 * j);
    const float step = d * (0.5f + static_cast<float>(bits >> 28)) * 0.5f;
    for (int k = 0; k < 4; ++k)
      put_pair(step, kGridIq3Xxs[points[2 * k]], kGridIq3Xxs[points[2 * k + 1]],
               eight_signs(bits >> (7 * k)), out + 32 * j + 8 * k);
  }
}

void iq3_s(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  const uint8_t *low = in + 2, *high = in + 66, *signs = in + 74, *scales = in + 106;
  const auto point = [&](int i) -> std::span<const int8_t> {
    return kGridIq3S[static_cast<size_t>(low[i] | (high[i / 8] >> (i % 8) & 1) << 8)];
  };
  for (int k = 0; k < 32; ++k)
    put_pair(odd_step(d, nibble(scales, k / 4)), point(2 * k), point(2 * k + 1), signs[k],
             out + 8 * k);
}

void iq1_s(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  const uint8_t *low = in + 2, *words = in + 34;
  for (int k = 0; k < 32; ++k) {
    const int word = load_u16(words + 2 * (k / 4));
    const int point = low[k] | (word >> (3 * (k % 4)) & 7) << 8;
    put_shifted(odd_step(d, word >> 12 & 7), kGridIq1[static_cast<size_t>(point)],
                (word & 0x8000) != 0, out + 8 * k);
  }
}

void iq1_m(const uint8_t* in, float* out) {
  const uint8_t *low = in, *high = in + 32, *words = in + 48;
  int d_bits = 0;
  for (int j = 0; j < 4; ++j) d_bits |= (load_u16(words + 2 * j) >> 12) << (4 * j);
  const float d = half_to_float(static_cast<uint16_t>(d_bits));
  for (int k = 0; k < 32; ++k) {
    const int bits = nibble(high, k), scale = load_u16(words + 2 * (k / 8)) >> (3 * (k / 2 % 4));
    const int point = low[k] | (bits & 7) << 8;
    put_shifted(odd_step(d, scale & 7), kGridIq1[static_cast<size_t>(point)], (bits & 8) != 0,
                out + 8 * k);
  }
}

}  // namespace evalrun::engine::blocks
