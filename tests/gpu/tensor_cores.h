// What mma.sync with bfloat16 and float32 sums computes, bit by bit, as published: MMA-Sim
// (Microsoft, arXiv 2511.10909; PyPI's mmasim 2.1.1 is the same in Python, and
// scripts/check-tensor-cores compares the two). Products are exact. The terms of a sum, the old sum
// among them, are aligned to the largest exponent and cut after some fractional bits. They are
// added exactly, and the result is cut to float32.
//
// - A product's exponent is the sum of its factors', whether or not its significand reaches two.
// - Exponents end at -126: subnormal numbers have that one and a significand below one.
// - A zero has an exponent, too, far below. It counts among the largest.
// - A sum is +0 and never -0. From 2^128 on it is an infinity, below that the largest number.
// - Whatever is no number comes as 0x7fffffff.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace evalrun::engine::cuda::testing {

// kExact: in double, rounded to nearest. What no hardware does.
enum class TensorCores { kExact, kAmpere, kHopper };

// Of the emulated device. At first by CUDA_EMULATOR_MMA: "hopper" or "ampere"; else exact.
inline TensorCores& emulated_tensor_cores() {
  static TensorCores how = [] {
    const char* text = std::getenv("CUDA_EMULATOR_MMA");
    if (text == nullptr) return TensorCores::kExact;
    if (std::strcmp(text, "hopper") == 0) return TensorCores::kHopper;
    if (std::strcmp(text, "ampere") == 0) return TensorCores::kAmpere;
    std::abort();
  }();
  return how;
}

// Of a compute capability, by MMA-Sim: Ada (8.9) as Ampere, Blackwell (10, 12) as Hopper. kExact:
// nothing is published.
inline TensorCores published_tensor_cores(int compute_major) {
  switch (compute_major) {
    case 8:
      return TensorCores::kAmpere;
    case 9:
    case 10:
    case 12:
      return TensorCores::kHopper;
    default:
      return TensorCores::kExact;
  }
}

inline TensorCores tensor_cores_of_device([[maybe_unused]] int compute_major) {
#if defined(EVALRUN_CUDA_EMULATED)
  return emulated_tensor_cores();
#else
  return published_tensor_cores(compute_major);
#endif
}

// How the 16 products of an output are summed: `at_once` of them and the old sum, then the next.
struct CutModel {
  int at_once, fraction, zero_exponent;
  // What hardware does not do, to see that it would be noticed: terms or sums rounded to nearest,
  // subnormal numbers with exponents of their own.
  bool round_terms = false, round_sums = false, normalise = false;
};
inline constexpr CutModel kHopperSums{16, 25, -133};
inline constexpr CutModel kAmpereSums{8, 24, -132};  // and Ada's

// m 2^(e - 23), |m| < 2^24.
struct Number {
  int32_t m;
  int e;
};
inline bool is_finite(float x) { return (std::bit_cast<uint32_t>(x) & 0x7f800000u) != 0x7f800000u; }
template <CutModel kModel>
Number number_of(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int field = static_cast<int>(bits >> 23 & 0xff);
  auto m = static_cast<int32_t>(bits & 0x7fffff);
  int e = -126;
  if (field > 0) m |= 1 << 23, e = field - 127;
  if (kModel.normalise)
    for (; m != 0 && m < 1 << 23; m *= 2) --e;
  return {bits >> 31 != 0 ? -m : m, e};
}

// sum 2^(e - fraction) as float32.
template <CutModel kModel>
float cut(int64_t sum, int e) {
  const uint64_t size = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  if (size == 0) return 0;
  const int unit = e - kModel.fraction, top = std::bit_width(size) - 1 + unit;
  const int last = std::max(top - 23, -149);  // of the result, as a power of two
  uint64_t m = last <= unit ? size << (unit - last) : size >> std::min(last - unit, 63);
  if (kModel.round_sums && last > unit && last - unit < 63) {
    const uint64_t left = size & ((uint64_t{1} << (last - unit)) - 1),
                   half = uint64_t{1} << (last - unit - 1);
    m += left > half || (left == half && m % 2 == 1);
  }
  if (m == 0) return 0;
  const auto power = std::bit_cast<double>(static_cast<uint64_t>(last + 1023) << 52);
  const float result = static_cast<float>(static_cast<double>(m) * power);
  return sum < 0 ? -result : result;
}

inline float no_number() { return std::bit_cast<float>(0x7fffffffu); }

// c + a[0] b[0] + ... of factors one of which may be infinite or no number.
inline float special_sum(const float* a, const float* b, int n, float c) {
  double sum = c;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return std::isnan(sum) ? no_number() : static_cast<float>(sum);
}

// n factors each, which bfloat16 holds.
template <CutModel kModel>
float cut_sum(const Number* a, const Number* b, int n, Number c) {
  const auto exponent = [](int32_t m, int e) { return m == 0 ? kModel.zero_exponent : e; };
  int32_t m[17];
  int e[17];
  int top = e[n] = exponent(c.m, c.e);
  m[n] = c.m;
  for (int i = 0; i < n; ++i) {
    m[i] = (a[i].m >> 16) * (b[i].m >> 16);
    e[i] = exponent(m[i], a[i].e + b[i].e);
    top = std::max(top, e[i]);
  }
  int64_t sum = 0;
  for (int i = 0; i <= n; ++i) {
    const int above = kModel.fraction - (i < n ? 14 : 23), down = std::min(top - e[i], 40);
    const int64_t size = int64_t{std::abs(m[i])} << above;
    const int64_t half = kModel.round_terms && down > 0 ? int64_t{1} << (down - 1) : 0;
    const int64_t kept = (size + half) >> down;
    sum += m[i] < 0 ? -kept : kept;
  }
  return cut<kModel>(sum, top);
}

// Sixteen factors of several outputs, split once.
template <CutModel kModel>
struct Factors {
  explicit Factors(const float (&values)[16]) : from(values) {
    for (int k = 0; k < 16; ++k) {
      number[k] = number_of<kModel>(values[k]);
      finite[k / kModel.at_once] = finite[k / kModel.at_once] && is_finite(values[k]);
      zero = zero && number[k].m == 0;
    }
  }
  bool all_finite() const { return finite[0] && finite[1]; }
  const float (&from)[16];
  Number number[16];
  bool finite[2] = {true, true}, zero = true;
};
template <CutModel kModel>
float cut_output(const Factors<kModel>& a, const Factors<kModel>& b, float c) {
  for (int k = 0, part = 0; k < 16; k += kModel.at_once, ++part)
    c = a.finite[part] && b.finite[part] && is_finite(c)
            ? cut_sum<kModel>(a.number + k, b.number + k, kModel.at_once, number_of<kModel>(c))
            : special_sum(a.from + k, b.from + k, kModel.at_once, c);
  return c;
}

// One output of mma.m16n8k16: c and 16 products.
inline float exact_output(const float (&a)[16], const float (&b)[16], float c) {
  double sum = 0;
  for (int k = 0; k < 16; ++k) sum += static_cast<double>(a[k]) * static_cast<double>(b[k]);
  return static_cast<float>(static_cast<double>(c) + sum);
}
template <CutModel kModel>
float cut_output(const float (&a)[16], const float (&b)[16], float c) {
  return cut_output<kModel>(Factors<kModel>(a), Factors<kModel>(b), c);
}
inline float multiply_add(TensorCores how, const float (&a)[16], const float (&b)[16], float c) {
  switch (how) {
    case TensorCores::kExact:
      return exact_output(a, b, c);
    case TensorCores::kAmpere:
      return cut_output<kAmpereSums>(a, b, c);
    case TensorCores::kHopper:
      return cut_output<kHopperSums>(a, b, c);
  }
  return 0;
}

// All outputs: D = A B + D, B by column.
template <CutModel kModel>
void multiply_cut(const float (&a)[16][16], const float (&b)[8][16], float (&d)[16][8]) {
  using F = Factors<kModel>;
  const F columns[8] = {F(b[0]), F(b[1]), F(b[2]), F(b[3]), F(b[4]), F(b[5]), F(b[6]), F(b[7])};
  for (int r = 0; r < 16; ++r) {
    const F row(a[r]);
    // Rows that a step does not have are zeros: their sums stay, none is cut, and -0 becomes 0.
    for (int c = 0; c < 8; ++c)
      d[r][c] = columns[c].zero && row.all_finite() && is_finite(d[r][c])
                    ? d[r][c] + 0.0f
                    : cut_output<kModel>(row, columns[c], d[r][c]);
  }
}
inline void multiply(TensorCores how, const float (&a)[16][16], const float (&b)[8][16],
                     float (&d)[16][8]) {
  if (how == TensorCores::kHopper) return multiply_cut<kHopperSums>(a, b, d);
  if (how == TensorCores::kAmpere) return multiply_cut<kAmpereSums>(a, b, d);
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 8; ++c) d[r][c] = exact_output(a[r], b[c], d[r][c]);
}

}  // namespace evalrun::engine::cuda::testing
