// Blocks of 32 weights with a scale, and perhaps an offset, of half precision:
//
//   Q8_0  34 B: d f16, int8[32]                             w = d * q
//   Q4_0  18 B: d f16, nibbles[16]                          w = d * (q - 8)
//   Q4_1  20 B: d f16, m f16, nibbles[16]                   w = d * q + m
//   Q5_0  22 B: d f16, high bits u32, nibbles[16]           w = d * (q - 16)
//   Q5_1  24 B: d f16, m f16, high bits u32, nibbles[16]    w = d * q + m
//
// Weight i < 16 is the low nibble of byte i, weight 16 + i its high nibble.
#include "engine/formats/blocks.h"
#include "engine/formats/dtype.h"

namespace evalrun::engine::blocks {

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

}  // namespace evalrun::engine::blocks
