// Blocks of 4-bit codes that are indices of a table of values:
//
//   IQ4_NL  18 B / 32:  d f16, nibbles[16]                            w = d * table[q]
//   IQ4_XS 136 B / 256: d f16, high scale bits u16, low scale nibbles[4], nibbles[128]
//                       w = (d * (s - 32)) * table[q], per 32 weights
//   MXFP4   17 B / 32:  e, nibbles[16]             w = 2^(e - 127) * E2M1
//   NVFP4   36 B / 64:  UE4M3 scales[4], nibbles[32]    w = scale * E2M1, per 16 weights
//
// Of each group of nibbles the low ones of all bytes come first, then the high ones.
//
// MXFP4: Open Compute Project, "Microscaling Formats (MX) Specification 1.0", sections 5.3.3 (E2M1)
// and 5.4.1 (E8M0), where e = 255 is not a number. UE4M3 is E4M3 without its sign, and 127 is not a
// number. ggml takes the first for 2^128 and the second for 0. No quantiser writes either, so here
// such a block is one of NaN, which the loader refuses.
#include <bit>
#include <limits>

#include "engine/formats/blocks.h"
#include "engine/formats/dtype.h"

namespace evalrun::engine::blocks {
namespace {

// Unevenly spaced levels: kvalues of IQ4_NL in the gguf package, kvalues_iq4nl in ggml-common.h.
constexpr int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
// E2M1, doubled: integers. The scales are halved in turn.
constexpr int8_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2 * n weights from n bytes.
void look_up(float scale, const int8_t (&table)[16], const uint8_t* bytes, int n, float* out) {
  for (int i = 0; i < n; ++i) {
    out[i] = scale * static_cast<float>(table[bytes[i] & 15]);
    out[n + i] = scale * static_cast<float>(table[bytes[i] >> 4]);
  }
}

// 2^(e - 128), of which the smallest two are denormal.
float half_of_e8m0(uint32_t e) {
  if (e == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

// The highest bit means nothing.
float half_of_ue4m3(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1.0p-10f;
  // (8 + mantissa) / 8 * 2^(exponent - 7) / 2: all exact.
  return static_cast<float>((8 + mantissa) << exponent) * 0x1.0p-11f;
}

}  // namespace

void iq4_nl(const uint8_t* in, float* out) {
  look_up(half_to_float(load_u16(in)), kNonLinear, in + 2, 16, out);
}

void iq4_xs(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  const int high = load_u16(in + 2);
  for (int j = 0; j < 8; ++j) {
    const int scale = (nibble(in + 4, j) | (high >> (2 * j) & 3) << 4) - 32;
    look_up(d * static_cast<float>(scale), kNonLinear, in + 8 + 16 * j, 16, out + 32 * j);
  }
}

void mxfp4(const uint8_t* in, float* out) {
  look_up(half_of_e8m0(in[0]), kE2m1Doubled, in + 1, 16, out);
}

void nvfp4(const uint8_t* in, float* out) {
  for (int j = 0; j < 4; ++j)
    look_up(half_of_ue4m3(in[j]), kE2m1Doubled, in + 4 + 8 * j, 8, out + 16 * j);
}

}  // namespace evalrun::engine::blocks
