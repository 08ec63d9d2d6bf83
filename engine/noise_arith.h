// Arithmetic of draws by noise (engine/gumbel.cpp) that a device must do with the same bits as the
// host: the arrival times of the race. Additions, products and divisions only.
#pragma once
#include <bit>
#include <cstdint>

#include "engine/base/rng.h"
#include "engine/sampling_arith.h"

namespace evalrun::engine {

constexpr int kNoiseBlock = 256;  // tokens

// -ln(x), 0 < x <= 1, with a relative error below 1e-15; exactly 0 at 1.
EVALRUN_DEVICE static inline double minus_log(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 0x1.6a09e667f3bcdp0) {  // the root of 2
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 atanh(s), |s| <= 0.1716; what is left out is below 1e-18.
  const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
  double tail = 1.0 / 21;
  tail = 1.0 / 19 + s2 * tail;
  tail = 1.0 / 17 + s2 * tail;
  tail = 1.0 / 15 + s2 * tail;
  tail = 1.0 / 13 + s2 * tail;
  tail = 1.0 / 11 + s2 * tail;
  tail = 1.0 / 9 + s2 * tail;
  tail = 1.0 / 7 + s2 * tail;
  tail = 1.0 / 5 + s2 * tail;
  tail = 1.0 / 3 + s2 * tail;
  const double log_m = 2.0 * s + 2.0 * s * (s2 * tail);
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  const auto e = static_cast<double>(exponent);
  return -(e * kLn2High + (e * kLn2Low + log_m));
}

// Exp(1) by the first 53 bits. Never 0: nobody arrives before the race begins.
EVALRUN_DEVICE static inline double exponential_of(uint64_t bits) {
  const double e = minus_log(1.0 - static_cast<double>(bits >> 11) * 0x1.0p-53);
  return e > 0x1p-54 ? e : 0x1p-54;
}

// The noise of one position: e_i ~ Exp(1) of every token id.
class TokenNoise {
 public:
  // `uniform` in [0, 1): the noise is made of its 53 bits.
  EVALRUN_DEVICE explicit TokenNoise(double uniform)
      : key_(base::mix64(static_cast<uint64_t>(uniform * 0x1p53))) {}
  // Of a block: the least e_i, and which of its tokens has it.
  struct First {
    double arrival;
    int place;
  };
  EVALRUN_DEVICE First first(int block) const {
    const uint64_t bits = base::mix64(key_ ^ base::mix64(static_cast<uint64_t>(block)));
    const uint64_t place = base::mix64(bits ^ kOther) % kNoiseBlock;
    return {exponential_of(bits) / kNoiseBlock, static_cast<int>(place)};
  }
  // `first` is that of the token's block.
  EVALRUN_DEVICE double arrival(int32_t token, const First& first) const {
    if (token % kNoiseBlock == first.place) return first.arrival;
    const uint64_t bits =
        base::mix64(base::mix64(key_ ^ kOther) ^ base::mix64(static_cast<uint64_t>(token)));
    return first.arrival + exponential_of(bits);
  }
  EVALRUN_DEVICE double arrival(int32_t token) const {
    return arrival(token, first(token / kNoiseBlock));
  }

 private:
  static constexpr uint64_t kOther = 0xA0761D6478BD642Full;  // tells streams apart
  uint64_t key_;
};

}  // namespace evalrun::engine
