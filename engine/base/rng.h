// Seeded random numbers with a fixed, documented stream: the same seed gives the same draws on
// every platform (std:: distributions do not promise that).
#pragma once
#include <cstdint>
#include <initializer_list>

namespace evalrun::base {

// SplitMix64 step; also the mixing function for seeds made of several parts.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// One seed from several parts, e.g. {suite_seed, hash(prompt_id), sample_index}.
constexpr uint64_t combine_seeds(std::initializer_list<uint64_t> parts) {
  uint64_t s = 0x243F6A8885A308D3ull;
  for (uint64_t p : parts) s = mix64(s ^ p);
  return s;
}

// xoshiro256** (Blackman & Vigna 2018), seeded through SplitMix64. Copyable; not thread-safe.
class Rng {
 public:
  explicit Rng(uint64_t seed) {
    for (uint64_t& s : state_) s = seed = mix64(seed);
  }
  uint64_t next() {
    const auto rotl = [](uint64_t x, int k) { return (x << k) | (x >> (64 - k)); };
    const uint64_t result = rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    return result;
  }
  // Uniform in [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  // Uniform in [0, n), unbiased (Lemire 2019). n > 0.
  uint64_t below(uint64_t n) {
    while (true) {
      const uint64_t x = next();
      const Uint128 m = static_cast<Uint128>(x) * n;
      const uint64_t low = static_cast<uint64_t>(m);
      if (low >= n || low >= (0 - n) % n) return static_cast<uint64_t>(m >> 64);
    }
  }

 private:
  __extension__ typedef unsigned __int128 Uint128;  // both compilers have it, ISO C++ does not
  uint64_t state_[4];
};

// Random numbers by key instead of by turn: what decides one place of an answer is the same however
// many numbers were asked for before it, so that no drafter can shift plain decoding's draws. The
// key is (seed of the generation, purpose, position); positions count the answer's tokens from 0,
// the prefill's first. Numbers of different keys are independent of each other.
class KeyedChance {
 public:
  explicit constexpr KeyedChance(uint64_t seed = 0) : seed_(seed) {}
  // For the target's token at `position`: uniform in [0, 1), 53 bits.
  double target(int64_t position) const { return unit(key(kTarget, position)); }
  // Whether the `trial`-th draft token for `position` passes a rejection test.
  double accept(int64_t position, int trial) const {
    return unit(mix64(key(kAccept, position) ^ static_cast<uint64_t>(trial)));
  }
  // For the `draw`-th draft token of a list, in the step whose first draft token is for `position`.
  double draft(int64_t position, int list, int draw) const {
    const auto place = static_cast<uint64_t>(list) << 32 | static_cast<uint32_t>(draw);
    return unit(mix64(key(kDraft, position) ^ mix64(place)));
  }

 private:
  enum Purpose : uint64_t { kTarget = 1, kAccept, kDraft };
  uint64_t key(Purpose purpose, int64_t position) const {
    return combine_seeds({seed_, purpose, static_cast<uint64_t>(position)});
  }
  static double unit(uint64_t key) { return static_cast<double>(key >> 11) * 0x1.0p-53; }

  uint64_t seed_;
};

}  // namespace evalrun::base
