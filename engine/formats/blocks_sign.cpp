// Blocks of weights -d, 0 and d, or of -d and d alone:
//
//   TQ1_0  54 B / 256: five weights a byte[48], four weights a byte[4], d f16    w = d * (t - 1)
//   TQ2_0  66 B / 256: 2-bit codes[64], d f16                                    w = d * (q - 1)
//   Q1_0   18 B / 128: d f16, bits[16]                                           w = bit ? d : -d
//
// A byte b of TQ1_0 is the fraction b / 256, whose digits after the point in base 3 are the
// weights. It is rounded up, so that they come out right.
#include "engine/formats/blocks.h"
#include "engine/formats/dtype.h"

namespace evalrun::engine::blocks {
namespace {

// Digit n of `bytes` bytes for all n < digits: first digits of all bytes first. Returns the end of
// what it wrote.
float* ternary_digits(float d, const uint8_t* in, int bytes, int digits, float* out) {
  unsigned power = 1;  // of 3
  for (int n = 0; n < digits; ++n, power *= 3)
    for (int i = 0; i < bytes; ++i) {
      const unsigned fraction = in[i] * power & 255;
      *out++ = d * static_cast<float>(static_cast<int>(fraction * 3 >> 8) - 1);
    }
  return out;
}

}  // namespace

void tq1_0(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in + 52));
  out = ternary_digits(d, in, 32, 5, out);
  out = ternary_digits(d, in + 32, 16, 5, out);
  ternary_digits(d, in + 48, 4, 4, out);
}

void tq2_0(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in + 64));
  // As in Q2_K: byte r of a half holds weight r of its four runs of 32.
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, run = i % 128 / 32, r = i % 32;
    out[i] = d * static_cast<float>((in[half * 32 + r] >> (2 * run) & 3) - 1);
  }
}

void q1_0(const uint8_t* in, float* out) {
  const float d = half_to_float(load_u16(in));
  for (int i = 0; i < 128; ++i) out[i] = (in[2 + i / 8] >> (i % 8) & 1) != 0 ? d : -d;
}

}  // namespace evalrun::engine::blocks
