// Keys and values in 4 bits: one head of one position is a group. Of its values the smallest and
// the largest give an offset and a scale, and x is about offset + scale * code, code 0 to 15:
// asymmetric rounding to nearest. Offset and scale are bfloat16, so that a head of 64 values takes
// 36 bytes instead of 128 in bfloat16: 4.5 bits a value.
//
// QuantSpec (Tiwari et al. 2025, arXiv 2502.10424) rounds values the same way. What differs:
// - Keys are rounded per position here, there per channel over a group of positions. A channel's
//   group is complete only after all its positions, so the paper keeps the latest ones in full
//   precision, and what a row sees of a position depends on how far the text is. Here it never
//   does: a position is rounded when it is written, whatever rows are computed beside it,
//   committed or taken back.
// - The paper's 4 bits are the upper half of 8 bits, the target's cache. Here the draft has a
//   session and a cache of its own, and the target's is untouched.
//
// Internal linkage, for the same reason as in arith.h.
#pragma once
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "engine/cpu/kernels/arith.h"

namespace evalrun::engine::cpu {

// Heads with a larger magnitude, or with what is no number, are no numbers when read: all of them.
constexpr float kInt4Most = 1e38f;
// Scales and offsets below are zero.
constexpr float kInt4Least = 1e-30f;

// Of a head: scale and offset as bfloat16, in the upper and the lower half.
using Int4Steps = uint32_t;
constexpr Int4Steps kInt4NotANumber = 0x7FC07FC0u;
static inline float int4_scale(Int4Steps steps) {
  return std::bit_cast<float>(steps & 0xFFFF0000u);
}
static inline float int4_offset(Int4Steps steps) { return std::bit_cast<float>(steps << 16); }

// Of a head whose values are in [low, high]. The offset is rounded down and the scale up, so that
// codes 0 to 15 reach over all of them.
static inline Int4Steps int4_steps(float low, float high) {
  if (std::fabs(low) < kInt4Least) low = 0.0f;  // also what -0 becomes
  const uint32_t low_bits = std::bit_cast<uint32_t>(low);
  const uint32_t towards_zero = low_bits & 0xFFFF0000u;
  const uint32_t offset =
      low < 0.0f && towards_zero != low_bits ? towards_zero + 0x10000u : towards_zero;
  const float scale = (high - std::bit_cast<float>(offset)) / 15.0f;
  if (!(scale >= kInt4Least)) return offset >> 16;  // all values are the offset
  return ((std::bit_cast<uint32_t>(scale) + 0xFFFFu) & 0xFFFF0000u) | offset >> 16;
}

// What values less the offset are multiplied by.
static inline float int4_inverse(Int4Steps steps) {
  const float scale = int4_scale(steps);
  return scale > 0.0f ? 1.0f / scale : 0.0f;
}

static inline float int4_value(unsigned code, Int4Steps steps) {
  return std::fma(static_cast<float>(code), int4_scale(steps), int4_offset(steps));
}

// One head of n values: a code each, and what they are read with.
static inline Int4Steps round_to_int4(const float* x, size_t n, uint8_t* codes) {
  float low = x[0], high = x[0];
  bool fits = true;
  for (size_t i = 0; i < n; ++i) {
    fits = fits && std::fabs(x[i]) <= kInt4Most;
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const Int4Steps steps = fits ? int4_steps(low, high) : kInt4NotANumber;
  const float offset = int4_offset(steps), inverse = int4_inverse(steps);
  for (size_t i = 0; i < n; ++i) {
    float code = fits ? (x[i] - offset) * inverse : 0.0f;
    code = code > 0.0f ? code : 0.0f;
    code = code < 15.0f ? code : 15.0f;
    codes[i] = static_cast<uint8_t>(std::nearbyint(code));
  }
  return steps;
}

// --- two codes in a byte -------------------------------------------------------------------------
// A key's byte i has dimensions 2 i (lower half) and 2 i + 1; bytes of a block of 16 positions lie
// side by side. A value's byte 16 j + l has dimensions 32 j + l (lower half) and 32 j + 16 + l:
// both halves of 16 bytes are vectors of neighbouring dimensions. Codes that do not exist are zero.

static constexpr size_t int4_key_bytes(size_t dims) { return (dims + 1) / 2; }
static constexpr size_t int4_value_bytes(size_t dims) { return (dims + 31) / 32 * 16; }

static inline void pack_int4_key(const uint8_t* codes, size_t dims, uint8_t* to, size_t stride) {
  for (size_t d = 0; d < dims; d += 2)
    to[d / 2 * stride] = static_cast<uint8_t>(codes[d] | (d + 1 < dims ? codes[d + 1] << 4 : 0));
}
static inline void pack_int4_value(const uint8_t* codes, size_t dims, uint8_t* to) {
  for (size_t i = 0; i < int4_value_bytes(dims); ++i) {
    const size_t d = i / 16 * 32 + i % 16;
    to[i] =
        static_cast<uint8_t>((d < dims ? codes[d] : 0) | (d + 16 < dims ? codes[d + 16] << 4 : 0));
  }
}
static inline unsigned int4_key_code(const uint8_t* key, size_t stride, size_t d) {
  return static_cast<unsigned>(key[d / 2 * stride]) >> (d % 2 * 4) & 15u;
}
static inline unsigned int4_value_code(const uint8_t* row, size_t d) {
  return static_cast<unsigned>(row[d / 32 * 16 + d % 16]) >> (d / 16 % 2 * 4) & 15u;
}

}  // namespace evalrun::engine::cpu
