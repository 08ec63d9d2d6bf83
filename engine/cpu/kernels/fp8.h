// Keys and values as numbers of 8 bits: E4M3 of the OCP 8-bit Floating Point Specification (OFP8,
// revision 1.0, table 1; Micikevicius et al. 2022, arXiv 2209.05433, section 3), with a float32
// scale for each head of each position, as codes of int8 have it: x is about scale * number, scale
// = largest magnitude / 448.
//
// A code is a sign, four bits of exponent and three of mantissa, bias 7: 448 is the largest number,
// 2^-6 the smallest normal one, below it numbers are 2^-9 apart. There is no infinity. 0x7f and
// 0xff are not numbers in the specification; nobody writes them here, and whoever reads one has 480
// or -480, so that memory which was never written holds numbers, whatever it holds.
//
// For the device as well (EVALRUN_DEVICE). Internal linkage, for the same reason as in arith.h.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

#include "engine/cpu/kernels/arith.h"

namespace evalrun::engine::cpu {

// A type of its own: KvStore tells storages by it.
enum class Fp8 : uint8_t {};

constexpr float kFp8Most = 448.0f;

EVALRUN_DEVICE static inline float fp8_value(Fp8 code) {
  const auto bits = static_cast<uint32_t>(code);
  const uint32_t magnitude = bits & 0x7fu, sign = (bits & 0x80u) << 24;
  // From the exponent's bias of 7 to that of 127; below 8 there is no leading one.
  const float value = magnitude < 8 ? static_cast<float>(static_cast<int>(magnitude)) * 0x1p-9f
                                    : std::bit_cast<float>((magnitude << 20) + (120u << 23));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

// The nearest number, of two the one whose last bit is zero; what is larger than 448, or no number,
// becomes 448.
EVALRUN_DEVICE static inline Fp8 fp8_code(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  uint32_t code;
  if (magnitude < 0x3c800000u) {  // 2^-6
    // The last bit of 2^14 counts 2^-9, so that the sum is rounded to it.
    constexpr float kAdded = 16384.0f;
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + kAdded) -
           std::bit_cast<uint32_t>(kAdded);
  } else {
    const uint32_t above = magnitude > 0x43e00000u ? 0x43e00000u : magnitude;  // 448
    code = ((above + 0x7ffffu + (above >> 20 & 1u)) >> 20) - (120u << 3);
  }
  return static_cast<Fp8>(code | (bits >> 24 & 0x80u));
}

// One head of keys or values, codes at codes[i * stride]; its scale. As round_to_bytes() of
// arith.h: not finite values make the scale NaN, and so all that is read from it.
static inline float round_to_fp8(const float* x, size_t n, Fp8* codes, size_t stride) {
  const ByteSteps steps = byte_steps(largest_magnitude(x, n), kFp8Most);
  for (size_t i = 0; i < n; ++i)
    codes[i * stride] = steps.inverse == 0.0f ? Fp8{} : fp8_code(x[i] * steps.inverse);
  return steps.scale;
}

}  // namespace evalrun::engine::cpu
