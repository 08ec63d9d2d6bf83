// Block layouts (little-endian) of the GGUF formats, after ggml's quantisation code:
//
//   Q8_0  34 B / 32:  d f16, q int8[32]                             w = d * q
//   Q4_0  18 B / 32:  d f16, nibbles[16]                            w = d * (q - 8)
//   Q4_1  20 B / 32:  d f16, m f16, nibbles[16]                     w = d * q + m
//   Q5_0  22 B / 32:  d f16, high bits u32, nibbles[16]             w = d * (q - 16)
//   Q5_1  24 B / 32:  d f16, m f16, high bits u32, nibbles[16]      w = d * q + m
//   Q4_K 144 B / 256: d f16, dmin f16, 6-bit scales[12], nibbles[128]
//   Q5_K 176 B / 256: d f16, dmin f16, 6-bit scales[12], high bits[32], nibbles[128]
//                     w = (d * scale) * q - (dmin * min), scale and min per 32 weights
//   Q6_K 210 B / 256: low nibbles[128], high bits[64], scale int8[16], d f16
//                     w = (d * scale) * (q - 32), scale per 16 weights
//
// In the 32-weight formats weight i < 16 is the low nibble of byte i and weight 16 + i its high
// nibble. This file relies on -ffp-contract=off: a fused d * q + m would round differently from the
// definition.
#include "engine/formats/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "engine/base/error.h"

namespace evalrun::engine {
namespace {

struct Traits {
  std::string_view name;
  int block_length;
  int block_bytes;
};

// In the order of DType.
constexpr std::array<Traits, 16> kTraits = {{{"F32", 1, 4},
                                             {"F16", 1, 2},
                                             {"BF16", 1, 2},
                                             {"Q8_0", 32, 34},
                                             {"Q4_0", 32, 18},
                                             {"Q4_1", 32, 20},
                                             {"Q5_0", 32, 22},
                                             {"Q5_1", 32, 24},
                                             {"Q4_K", 256, 144},
                                             {"Q5_K", 256, 176},
                                             {"Q6_K", 256, 210},
                                             {"I32", 1, 4},
                                             {"I64", 1, 8},
                                             {"U8", 1, 1},
                                             {"I8", 1, 1},
                                             {"BOOL", 1, 1}}};
static_assert(static_cast<size_t>(DType::kBool) + 1 == kTraits.size());

const Traits& traits(DType t) { return kTraits[static_cast<size_t>(t)]; }

uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
uint32_t load_u32(const uint8_t* p) {
  return static_cast<uint32_t>(load_u16(p)) | static_cast<uint32_t>(load_u16(p + 2)) << 16;
}

void q8_0(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(in[2 + i]));
}

void q4_0(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((in[2 + i] & 15) - 8);
    out[16 + i] = d * static_cast<float>((in[2 + i] >> 4) - 8);
  }
}

void q4_1(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in)), m = half_to_float(load_u16(in + 2));
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(in[4 + i] & 15) + m;
    out[16 + i] = d * static_cast<float>(in[4 + i] >> 4) + m;
  }
}

void q5_0(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  const uint32_t high = load_u32(in + 2);
  for (int i = 0; i < 16; ++i) {
    const int low_bit = static_cast<int>(high >> i & 1),
              high_bit = static_cast<int>(high >> (16 + i) & 1);
    out[i] = d * static_cast<float>(((in[6 + i] & 15) | low_bit << 4) - 16);
    out[16 + i] = d * static_cast<float>(((in[6 + i] >> 4) | high_bit << 4) - 16);
  }
}

void q5_1(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in)), m = half_to_float(load_u16(in + 2));
  const uint32_t high = load_u32(in + 4);
  for (int i = 0; i < 16; ++i) {
    const int low_bit = static_cast<int>(high >> i & 1),
              high_bit = static_cast<int>(high >> (16 + i) & 1);
    out[i] = d * static_cast<float>((in[8 + i] & 15) | low_bit << 4) + m;
    out[16 + i] = d * static_cast<float>((in[8 + i] >> 4) | high_bit << 4) + m;
  }
}

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
    // high nibbles; byte r of the high bits serves weight r of all four runs.
    const int half = i / 128, run = i % 128 / 32, r = i % 32;
    const uint8_t byte = low[half * 64 + run % 2 * 32 + r];
    const int nibble = run < 2 ? byte & 15 : byte >> 4;
    const int top = high[half * 32 + r] >> (2 * run) & 3;
    const float step = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = step * static_cast<float>((nibble | top << 4) - 32);
  }
}

using BlockFunction = void (*)(const uint8_t*, float*);

BlockFunction block_function(DType t) {
  switch (t) {
    case DType::kQ8_0:
      return q8_0;
    case DType::kQ4_0:
      return q4_0;
    case DType::kQ4_1:
      return q4_1;
    case DType::kQ5_0:
      return q5_0;
    case DType::kQ5_1:
      return q5_1;
    case DType::kQ4_K:
      return q4_k;
    case DType::kQ5_K:
      return q5_k;
    case DType::kQ6_K:
      return q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

std::string_view dtype_name(DType t) { return traits(t).name; }
int block_length(DType t) { return traits(t).block_length; }
int64_t block_bytes(DType t) { return traits(t).block_bytes; }

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
  EVALRUN_CHECK(t == DType::kQ8_0 || t == DType::kQ4_0 || t == DType::kQ4_1, "{}", dtype_name(t));
  const size_t block = static_cast<size_t>(block_bytes(t));
  uint16_t largest = 0;
  for (size_t at = 0; at < in.size(); at += block) {
    largest = std::max<uint16_t>(largest, load_u16(&in[at]) & 0x7FFF);
    if (t == DType::kQ4_1) largest = std::max<uint16_t>(largest, load_u16(&in[at + 2]) & 0x7FFF);
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
    for (size_t i = 0; i < out.size(); ++i) out[i] = half_to_float(load_u16(&in[2 * i]));
  } else if (t == DType::kBF16) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = bfloat16_to_float(load_u16(&in[2 * i]));
  } else {
    const BlockFunction block = block_function(t);
    EVALRUN_CHECK(block != nullptr, "{} holds no weights", dtype_name(t));
    const auto length = static_cast<size_t>(block_length(t));
    const auto size = static_cast<size_t>(block_bytes(t));
    for (size_t b = 0; b < out.size() / length; ++b) block(&in[b * size], &out[b * length]);
  }
}

}  // namespace evalrun::engine
