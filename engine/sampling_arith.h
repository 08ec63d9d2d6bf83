// Arithmetic of sampling that a device must do with the same bits as the host: exp, mass, the order
// of tokens, the place of a draw. Masses are integers, so that a sum does not depend on the order
// of its additions, nor a draw on how the work was divided.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

// Set by engine/cuda/kernels/device_code.h, which compiles this header for the GPU as well.
#ifndef EVALRUN_DEVICE
#define EVALRUN_DEVICE
#endif

namespace evalrun::engine {

// exp(x) for x <= 0 with a relative error below 3e-16 (denormal results: half a denormal); exactly
// 1 at 0 and exactly 0 below -745.2, as in libm. Additions and products only: the same bits at any
// vector width.
EVALRUN_DEVICE
#if defined(__GNUC__)
__attribute__((always_inline))
#endif
static inline double
exp_of(double x) {
  constexpr double kShift = 0x1.8p52;  // added: rounds to an integer, kept in the low bits
  constexpr double kLog2E = 0x1.71547652b82fep0;
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  // max(x, -746) on the bits: compilers vectorise no loop in which floats are compared.
  constexpr auto kLowest = std::bit_cast<int64_t>(-746.0);
  const int64_t bits = std::bit_cast<int64_t>(x) | std::numeric_limits<int64_t>::min();
  x = std::bit_cast<double>(bits < kLowest ? bits : kLowest);
  const double shifted = x * kLog2E + kShift;
  const double n = shifted - kShift;
  const double r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= 0.347
  const double r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
  // Taylor: what is left out is below 5e-18.
  const double c0 = 1.0 / 2 + r * (1.0 / 6), c1 = 1.0 / 24 + r * (1.0 / 120),
               c2 = 1.0 / 720 + r * (1.0 / 5040), c3 = 1.0 / 40320 + r * (1.0 / 362880),
               c4 = 1.0 / 3628800 + r * (1.0 / 39916800),
               c5 = 1.0 / 479001600 + r * (1.0 / 6227020800);
  const double tail = (c0 + r2 * c1) + r4 * (c2 + r2 * c3) + r8 * (c4 + r2 * c5);
  const double p = 1.0 + (r + r2 * tail);
  // 2^n in two factors, because 2^-1076 is not a float64.
  const auto exponent = std::bit_cast<uint64_t>(shifted) + 1023 + 60;
  return p * std::bit_cast<double>(exponent << 52) * 0x1p-60;
}

// What a token's logit weighs beside the best one's, 1 at the best.
EVALRUN_DEVICE
#if defined(__GNUC__)
__attribute__((always_inline))
#endif
static inline double
weight_of(float logit, float best, double inverse_temperature) {
  return exp_of((static_cast<double>(logit) - static_cast<double>(best)) * inverse_temperature);
}

// Mass of a weight in [0, 1], in units of 2^-44, rounded to even. The sum of 2^20 of them fits.
constexpr size_t kMaxSampledVocab = size_t{1} << 20;
constexpr double kMassUnit = 0x1p-44;
EVALRUN_DEVICE static inline uint64_t mass_of(double weight) {
  constexpr double kUnit = 256.0;  // float64 from 256 on have a spacing of 2^-44
  return std::bit_cast<uint64_t>(weight + kUnit) - std::bit_cast<uint64_t>(kUnit);
}

// The mass a top-p set must reach, of `total` > 0.
EVALRUN_DEVICE static inline uint64_t nucleus_mass(double top_p, uint64_t total) {
  const double share = top_p * static_cast<double>(total);
  auto need = static_cast<uint64_t>(share);
  if (static_cast<double>(need) < share) ++need;
  return need < 1 ? 1 : need > total ? total : need;
}

// Where a draw falls: the drawn token is the first at which the masses, added by id, exceed this.
// Of `uniform` in [0, 1) the first 53 bits count, all that base::Rng::uniform() gives.
EVALRUN_DEVICE static inline uint64_t place_of_draw(double uniform, uint64_t total) {
  const auto u = static_cast<uint64_t>(uniform * 0x1p53);
  // floor(u total / 2^53): total = high 2^32 + low.
  const uint64_t low = total & 0xffffffffu, high = total >> 32;
  const uint64_t u_low = u & 0xffffffffu, u_high = u >> 32;
  const uint64_t a = u_low * low, b = u_low * high, c = u_high * low, d = u_high * high;
  const uint64_t middle = (a >> 32) + (b & 0xffffffffu) + (c & 0xffffffffu);
  const uint64_t product_high = d + (b >> 32) + (c >> 32) + (middle >> 32);
  const uint64_t product_low = (middle << 32) | (a & 0xffffffffu);
  return (product_high << 11) | (product_low >> 53);
}

// Rejection (engine/rejection.h). What is left of a token's mass where a draft from another
// distribution was refused: max(0, p / all of p - q / all of q), in units of 2^-62. The norms are 1
// / all.
EVALRUN_DEVICE static inline uint64_t residual_mass(uint64_t p, double p_norm, uint64_t q,
                                                    double q_norm) {
  const double left = static_cast<double>(p) * p_norm - static_cast<double>(q) * q_norm;
  return left > 0 ? static_cast<uint64_t>(left * 0x1p62) : 0;
}
// Whether a token passes that the target gives p and its drafter q > 0: with probability
// min(1, p / q). If not, what is left of the uniform is as even as it was.
EVALRUN_DEVICE static inline bool passes(double p, double q, double& uniform) {
  const double accept = p / q;
  if (uniform < accept) return true;
  const double left = (uniform - accept) / (1.0 - accept);
  uniform = left < 1.0 ? left : 1.0 - 0x1p-53;
  return false;
}

// A token's place in the one order used everywhere - the larger logit, then the lower id - as a
// number: the larger one comes first. NaN comes before everything.
constexpr uint64_t kNoNumber = ~uint64_t{0};
EVALRUN_DEVICE static inline uint32_t ordered_bits(float logit) {
  const uint32_t bits = logit == 0.0f ? 0u : std::bit_cast<uint32_t>(logit);  // -0 is no less
  return bits ^ (static_cast<int32_t>(bits) < 0 ? 0xffffffffu : 0x80000000u);
}
EVALRUN_DEVICE static inline uint64_t order_of(float logit, int32_t token) {
  if (logit != logit) return kNoNumber;
  return static_cast<uint64_t>(ordered_bits(logit)) << 32 | ~static_cast<uint32_t>(token);
}
EVALRUN_DEVICE static inline int32_t token_of(uint64_t order) {
  return static_cast<int32_t>(~static_cast<uint32_t>(order));
}
EVALRUN_DEVICE static inline float logit_of(uint64_t order) {
  const auto bits = static_cast<uint32_t>(order >> 32);
  return std::bit_cast<float>(bits ^ ((bits & 0x80000000u) != 0 ? 0x80000000u : 0xffffffffu));
}

}  // namespace evalrun::engine
