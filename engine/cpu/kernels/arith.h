// The arithmetic every CPU path shares, written once as scalar code. A path is right when it gives
// these bits: fma only where written, every reduction in the order given here, no libm in a step.
//
// Internal linkage on purpose: this header is compiled with different instruction sets, and a
// merged inline function could bring AVX-512 code into the portable path.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

// Set by engine/cuda/kernels/device_code.h, which compiles this header for the GPU as well.
#ifndef EVALRUN_DEVICE
#define EVALRUN_DEVICE
#endif

namespace evalrun::engine::cpu {

constexpr int kLanes = 16;   // partial sums of a reduction: lane j takes elements j, j + 16, ...
constexpr int kChunk = 128;  // logical positions per attention chunk; borders are absolute

// e^x for x clamped to [-86, 86], so that results are normal numbers: Cody-Waite reduction and the
// degree-6 polynomial of Cephes' expf; 2^n is added to the exponent bits. Within 1 ulp of the true
// value.
EVALRUN_DEVICE static inline float exp_fixed(float x) {
  constexpr float kRound =
      12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  x = x < -86.0f ? -86.0f : x;
  x = x > 86.0f ? 86.0f : x;
  const float t = std::fma(x, 1.44269504088896341f, kRound);
  const float n = t - kRound;
  float r = std::fma(n, -0.693359375f, x);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  const float y = std::fma(p, r * r, r) + 1.0f;
  const float result =
      std::bit_cast<float>(std::bit_cast<uint32_t>(y) + (std::bit_cast<uint32_t>(t) << 23));
  // The GPU's NaN has ones in its low bits, which would make a number of it.
  return x == x ? result : x;
}

// Integer inputs of a product: x is about scale * (lo + 128 hi). The scale follows the row's root
// mean square, so every row keeps the same ratio of signal to rounding noise (40 * sqrt(12), 43 dB)
// however far its largest values stand out; those few take the hi part. On the default model about
// 3 % of the groups of four inputs have one.
constexpr float kInputRms = 40.0f;    // of q
constexpr int kInputMax = 127 * 128;  // |q|, so that |hi| <= 127
// From the sum of squares over n inputs and the largest magnitude. Not a number in, not a number
// out.
static inline float input_scale(float sum_of_squares, int n, float largest) {
  const float by_rms = std::sqrt(sum_of_squares / static_cast<float>(n)) / kInputRms;
  const float by_max = largest / static_cast<float>(kInputMax);
  if (by_rms == 0.0f && by_max == 0.0f) return 1.0f;
  return by_max > by_rms ? by_max : by_rms;
}
struct SplitInput {
  int lo, hi;
};
static inline SplitInput split_input(int q) {
  if (q >= -127 && q <= 127) return {q, 0};
  const int hi = (q + 64) >> 7;
  return {q - 128 * hi, hi};
}

// Tree over the 16 lanes: 8, 4, 2, 1.
EVALRUN_DEVICE static inline float sum_lanes(float* lane) {
  for (int s = kLanes / 2; s > 0; s /= 2)
    for (int j = 0; j < s; ++j) lane[j] = lane[j] + lane[j + s];
  return lane[0];
}

EVALRUN_DEVICE static inline float rms_scale(float sum_of_squares, int d, float eps) {
  return 1.0f / std::sqrt(sum_of_squares / static_cast<float>(d) + eps);
}

// silu(g) * u
EVALRUN_DEVICE static inline float silu_mul(float g, float u) {
  return g / (1.0f + exp_fixed(-g)) * u;
}

EVALRUN_DEVICE static inline float sigmoid_fixed(float x) { return 1.0f / (1.0f + exp_fixed(-x)); }
// Within 2e-7 of the true value; near zero that is more than its last bit.
EVALRUN_DEVICE static inline float tanh_fixed(float x) {
  return 1.0f - 2.0f / (1.0f + exp_fixed(x + x));
}
// What an LSTM cell without a state puts out.
EVALRUN_DEVICE static inline float lstm_cell(float i, float g, float o) {
  return sigmoid_fixed(o) * tanh_fixed(sigmoid_fixed(i) * tanh_fixed(g));
}

// Running softmax over chunks: (m, l) of what was merged so far and of one more chunk.
struct Merge {
  float m, l;       // new maximum and denominator
  float keep, add;  // factors for the old and the new weighted sums
};
EVALRUN_DEVICE static inline Merge merge_chunk(float m, float l, float chunk_m, float chunk_l) {
  const float top = m > chunk_m ? m : chunk_m;
  const float keep = exp_fixed(m - top), add = exp_fixed(chunk_m - top);
  return {top, l * keep + chunk_l * add, keep, add};
}

// What a head of keys or values is kept with where each of its numbers is a byte: x = scale * q,
// and q = x * inverse, rounded. An inverse of 0: all q are 0.
struct ByteSteps {
  float scale, inverse;
};
// Of a head whose largest magnitude is `most` and becomes `largest`. One that is not finite makes
// the scale NaN, and so all that is read from it.
EVALRUN_DEVICE static inline ByteSteps byte_steps(float most, float largest) {
  if (!(most <= 3.402823466e+38f)) return {std::bit_cast<float>(0x7fc00000u), 0.0f};
  // Below this, largest / most might overflow; such heads are zero.
  if (most < 1e-30f) return {0.0f, 0.0f};
  return {most / largest, largest / most};
}
// By their bits, where what is not finite is above all numbers.
static inline float largest_magnitude(const float* x, size_t n) {
  uint32_t most = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    most = magnitude > most ? magnitude : most;
  }
  return std::bit_cast<float>(most);
}

// One head of keys or values as bytes: scale = largest magnitude / 127, q at q[i * stride].
static inline float round_to_bytes(const float* x, size_t n, int8_t* q, size_t stride) {
  const ByteSteps steps = byte_steps(largest_magnitude(x, n), 127.0f);
  for (size_t i = 0; i < n; ++i)
    q[i * stride] = steps.inverse == 0.0f
                        ? int8_t{0}
                        : static_cast<int8_t>(std::nearbyint(x[i] * steps.inverse));
  return steps.scale;
}

// Half-split rotation of one head; cos, sin: [hd / 2].
EVALRUN_DEVICE static inline void rope(float* x, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

}  // namespace evalrun::engine::cpu
