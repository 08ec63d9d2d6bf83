#include "engine/formats/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "engine/base/error.h"
#include "engine/formats/blocks.h"

namespace evalrun::engine {
namespace {

struct Traits {
  std::string_view name;
  int block_length;
  int block_bytes;
  blocks::Function widen = nullptr;  // of quantised types
};

// In the order of DType.
constexpr std::array<Traits, 32> kTraits = {{{"F32", 1, 4},
                                             {"F16", 1, 2},
                                             {"BF16", 1, 2},
                                             {"Q8_0", 32, 34, blocks::q8_0},
                                             {"Q4_0", 32, 18, blocks::q4_0},
                                             {"Q4_1", 32, 20, blocks::q4_1},
                                             {"Q5_0", 32, 22, blocks::q5_0},
                                             {"Q5_1", 32, 24, blocks::q5_1},
                                             {"Q2_K", 256, 84, blocks::q2_k},
                                             {"Q3_K", 256, 110, blocks::q3_k},
                                             {"Q4_K", 256, 144, blocks::q4_k},
                                             {"Q5_K", 256, 176, blocks::q5_k},
                                             {"Q6_K", 256, 210, blocks::q6_k},
                                             {"IQ1_S", 256, 50, blocks::iq1_s},
                                             {"IQ1_M", 256, 56, blocks::iq1_m},
                                             {"IQ2_XXS", 256, 66, blocks::iq2_xxs},
                                             {"IQ2_XS", 256, 74, blocks::iq2_xs},
                                             {"IQ2_S", 256, 82, blocks::iq2_s},
                                             {"IQ3_XXS", 256, 98, blocks::iq3_xxs},
                                             {"IQ3_S", 256, 110, blocks::iq3_s},
                                             {"IQ4_NL", 32, 18, blocks::iq4_nl},
                                             {"IQ4_XS", 256, 136, blocks::iq4_xs},
                                             {"MXFP4", 32, 17, blocks::mxfp4},
                                             {"NVFP4", 64, 36, blocks::nvfp4},
                                             {"TQ1_0", 256, 54, blocks::tq1_0},
                                             {"TQ2_0", 256, 66, blocks::tq2_0},
                                             {"Q1_0", 128, 18, blocks::q1_0},
                                             {"I32", 1, 4},
                                             {"I64", 1, 8},
                                             {"U8", 1, 1},
                                             {"I8", 1, 1},
                                             {"BOOL", 1, 1}}};
static_assert(static_cast<size_t>(DType::kBool) + 1 == kTraits.size());

const Traits& traits(DType t) { return kTraits[static_cast<size_t>(t)]; }

}  // namespace

std::string_view dtype_name(DType t) { return traits(t).name; }
int block_length(DType t) { return traits(t).block_length; }
int64_t block_bytes(DType t) { return traits(t).block_bytes; }

int code_bits(DType t) {
  switch (t) {
    case DType::kF32:
      return 32;
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kQ8_0:
      return 8;
    case DType::kQ6_K:
      return 6;
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return 5;
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ4_K:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
    case DType::kNVFP4:
      return 4;
    case DType::kQ3_K:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return 3;
    case DType::kQ2_K:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kTQ2_0:
      return 2;
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kTQ1_0:
    case DType::kQ1_0:
      return 1;
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
      break;
  }
  return 0;
}

int64_t bytes_of(DType t, int64_t n) {
  EVALRUN_CHECK(n >= 0 && n % block_length(t) == 0, "{} values of {}", n, dtype_name(t));
  return n / block_length(t) * block_bytes(t);
}

uint16_t float_to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;   // not a number
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;  // rounds to 65536 or more: infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14, a multiple of 2^-24: adding 0.5 makes float32 round to that step.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = h >> 10 & 31, mantissa = h & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

float bfloat16_to_float(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

uint16_t largest_scale(DType t, std::span<const uint8_t> in) {
  const bool has_offset = t == DType::kQ4_1 || t == DType::kQ4_K || t == DType::kQ5_K;
  EVALRUN_CHECK(has_offset || t == DType::kQ8_0 || t == DType::kQ4_0 || t == DType::kQ6_K, "{}",
                dtype_name(t));
  const size_t block = static_cast<size_t>(block_bytes(t));
  const size_t first = t == DType::kQ6_K ? block - 2 : 0;  // the others begin with it
  uint16_t largest = 0;
  for (size_t at = first; at < in.size(); at += block) {
    largest = std::max<uint16_t>(largest, blocks::load_u16(&in[at]) & 0x7FFF);
    if (has_offset) largest = std::max<uint16_t>(largest, blocks::load_u16(&in[at + 2]) & 0x7FFF);
  }
  return largest;
}

void dequantize(DType t, std::span<const uint8_t> in, std::span<float> out) {
  const auto n = static_cast<int64_t>(out.size());
  EVALRUN_CHECK(static_cast<int64_t>(in.size()) == bytes_of(t, n), "{} bytes for {} values of {}",
                in.size(), n, dtype_name(t));
  if (n == 0) return;
  if (t == DType::kF32) {
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(out.data(), in.data(), in.size());
  } else if (t == DType::kF16) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = half_to_float(blocks::load_u16(&in[2 * i]));
  } else if (t == DType::kBF16) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = bfloat16_to_float(blocks::load_u16(&in[2 * i]));
  } else {
    const blocks::Function widen = traits(t).widen;
    EVALRUN_CHECK(widen != nullptr, "{} holds no weights", dtype_name(t));
    const auto length = static_cast<size_t>(block_length(t));
    const auto size = static_cast<size_t>(block_bytes(t));
    for (size_t b = 0; b < out.size() / length; ++b) widen(&in[b * size], &out[b * length]);
  }
}

}  // namespace evalrun::engine
