// What mma.sync with bfloat16 and float32 sums computes, bit by bit, as published: MMA-Sim
// (Microsoft, arXiv 2511.10909) for Hopper and Ampere. Products are exact. All terms, the old sum
// among them, are aligned to the largest exponent and cut after some fractional bits; their sum is
// cut to float32. A product's exponent is the sum of its factors', whether or not its significand
// reaches two. Hopper adds 16 products at once, Ampere and Ada eight, then the other eight.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace evalrun::engine::cuda::testing {

// kExact: in double, rounded to nearest. What no hardware does.
enum class TensorCores { kExact, kAmpere, kHopper };

// CUDA_EMULATOR_MMA: "hopper" or "ampere"; else exact.
inline TensorCores emulated_tensor_cores() {
  static const TensorCores how = [] {
    const char* text = std::getenv("CUDA_EMULATOR_MMA");
    if (text == nullptr) return TensorCores::kExact;
    if (std::strcmp(text, "hopper") == 0) return TensorCores::kHopper;
    if (std::strcmp(text, "ampere") == 0) return TensorCores::kAmpere;
    std::abort();
  }();
  return how;
}

inline float exact_sum(const float* a, const float* b, int n, float c) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return static_cast<float>(static_cast<double>(c) + sum);
}

// c + a[0] b[0] + ... n at once, `fraction` bits kept.
inline float cut_sum(const float* a, const float* b, int n, float c, int fraction) {
  constexpr int kNone = -1000;
  double significand[17];
  int exponent[17], top = kNone;
  const auto split = [](float x, double& s) {  // 1 <= |s| < 2
    int e = 0;
    s = 2 * std::frexp(static_cast<double>(x), &e);
    return s == 0 ? kNone : e - 1;
  };
  for (int i = 0; i <= n; ++i) {
    if (i == n) {
      exponent[i] = split(c, significand[i]);
    } else {
      double first, second;
      const int e = split(a[i], first), f = split(b[i], second);
      significand[i] = first * second;
      exponent[i] = e == kNone || f == kNone ? kNone : e + f;
    }
    if (!std::isfinite(significand[i])) return exact_sum(a, b, n, c);
    top = std::max(top, exponent[i]);
  }
  if (top == kNone) return exact_sum(a, b, n, c);  // zeros
  double sum = 0;                                  // whole numbers below 2^53
  for (int i = 0; i <= n; ++i)
    if (exponent[i] != kNone)
      sum += std::trunc(std::ldexp(significand[i], fraction + exponent[i] - top));
  sum = std::ldexp(sum, top - fraction);
  const float nearest = static_cast<float>(sum);
  if (std::fabs(static_cast<double>(nearest)) <= std::fabs(sum)) return nearest;
  return std::nextafterf(nearest, 0.0f);
}

// One element of D = A B + C of mma.m16n8k16.
inline float multiply_add(TensorCores how, const float (&a)[16], const float (&b)[16], float c) {
  switch (how) {
    case TensorCores::kExact:
      return exact_sum(a, b, 16, c);
    case TensorCores::kAmpere:
      return cut_sum(a + 8, b + 8, 8, cut_sum(a, b, 8, c, 24), 24);
    case TensorCores::kHopper:
      return cut_sum(a, b, 16, c, 25);
  }
  return 0;
}

}  // namespace evalrun::engine::cuda::testing
