// Storage formats of weights and their exact widening to float32.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace evalrun::engine {

enum class DType {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kNVFP4,
  kTQ1_0,
  kTQ2_0,
  kQ1_0,
  kI32,  // from here on: no weights
  kI64,
  kU8,
  kI8,
  kBool  // a byte each
};

std::string_view dtype_name(DType t);
int block_length(DType t);     // weights per block, 1 for plain types
int64_t block_bytes(DType t);  // bytes per block
// Bits of a weight without its share of scales and offsets, rounded down: 4 in Q4_1, 16 in F16; 0
// of types that hold no weights.
int code_bits(DType t);

// Bytes of `n` values; n must be a multiple of block_length.
int64_t bytes_of(DType t, int64_t n);

// Widens one row to float32: out.size() values from in (exactly bytes_of(t, out.size()) bytes). The
// arithmetic is done in float32 in the order the format's definition gives (d * q + m); blocks.h
// says more. A scale that is infinite or no number gives values that are no finite numbers.
void dequantize(DType t, std::span<const uint8_t> in, std::span<float> out);

// The largest magnitude among the scales and offsets of a row, as a half without sign; 0x7C00 and
// above: infinity or NaN. Of types that matrices can keep: Q8_0, Q4_0, Q4_1, Q4_K, Q5_K and Q6_K.
uint16_t largest_scale(DType t, std::span<const uint8_t> in);

float half_to_float(uint16_t h);
uint16_t float_to_half(float x);  // round to nearest even
float bfloat16_to_float(uint16_t b);

}  // namespace evalrun::engine
