#include "engine/cpu/reference_products.h"

#include <algorithm>
#include <cmath>

#include "engine/cpu/kernels/arith.h"

namespace evalrun::engine::cpu {
namespace {

using Floats = std::vector<float>;

Floats multiply_f32(const WeightMatrix& w, std::span<const float> x) {
  Floats y(static_cast<size_t>(w.out()));
  for (int o = 0; o < w.out(); ++o) {
    float sum = 0;
    for (int k = 0; k < w.in(); ++k) sum = std::fma(x[static_cast<size_t>(k)], w.at(o, k), sum);
    y[static_cast<size_t>(o)] = sum;
  }
  return y;
}

float rounded_bf16(float x) { return bfloat16_to_float(float_to_bfloat16(x)); }

Floats multiply_bf16(const WeightMatrix& w, std::span<const float> x) {
  Floats y(static_cast<size_t>(w.out()));
  for (int o = 0; o < w.out(); ++o) {
    float sum = 0;
    for (int k = 0; k < w.in(); k += 2) {
      if (k + 1 < w.in())
        sum = std::fma(rounded_bf16(x[static_cast<size_t>(k + 1)]), w.at(o, k + 1), sum);
      sum = std::fma(rounded_bf16(x[static_cast<size_t>(k)]), w.at(o, k), sum);
    }
    y[static_cast<size_t>(o)] = sum;
  }
  return y;
}

// Integer inputs: x is about scale * (lo + 128 hi).
struct IntegerInputs {
  std::vector<int> lo, hi;
  float scale;
};

IntegerInputs round_inputs(std::span<const float> x) {
  float lane[kLanes] = {};
  float largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    lane[i % kLanes] = std::fma(x[i], x[i], lane[i % kLanes]);
    largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  }
  IntegerInputs q;
  q.scale = input_scale(sum_lanes(lane), static_cast<int>(x.size()), largest);
  const float inverse = 1.0f / q.scale;
  for (const float v : x) {
    const float r = std::nearbyint(v * inverse);
    const SplitInput s = split_input(r == r ? static_cast<int>(r) : 0);
    q.lo.push_back(s.lo), q.hi.push_back(s.hi);
  }
  return q;
}

Floats multiply_int8_channel(const WeightMatrix& w, std::span<const float> x) {
  const IntegerInputs q = round_inputs(x);
  Floats y(static_cast<size_t>(w.out()));
  for (int o = 0; o < w.out(); ++o) {
    int32_t sum = 0;
    for (int k = 0; k < w.in(); ++k)
      sum += (q.lo[static_cast<size_t>(k)] + 128 * q.hi[static_cast<size_t>(k)]) * w.code(o, k);
    y[static_cast<size_t>(o)] = static_cast<float>(sum) * w.channel_scale(o) * q.scale;
  }
  return y;
}

Floats multiply_grouped(const WeightMatrix& w, std::span<const float> x) {
  const bool offsets = w.storage() != WeightStorage::kInt8Group;
  const IntegerInputs q = round_inputs(x);
  Floats y(static_cast<size_t>(w.out()));
  for (int o = 0; o < w.out(); ++o) {
    float sum = 0;
    // Inputs [first, end) of one group, their parts `v` times `factor`.
    const auto add_part = [&](const std::vector<int>& v, int first, int end, int factor) {
      int32_t dot = 0, total = 0;
      for (int k = first; k < std::min(end, w.in()); ++k) {
        dot += v[static_cast<size_t>(k)] * w.code(o, k);
        total += v[static_cast<size_t>(k)];
      }
      const int group = first / WeightMatrix::kGroup;
      sum = std::fma(static_cast<float>(factor * dot), w.group_scale(o, group), sum);
      if (offsets)
        sum = std::fma(static_cast<float>(factor * total), w.group_offset(o, group), sum);
    };
    for (int k = 0; k < w.padded_in(); k += WeightMatrix::kGroup)
      if (k < w.in()) add_part(q.lo, k, k + WeightMatrix::kGroup, 1);
    for (int k = 0; k < w.in(); k += 4)
      if (std::any_of(q.hi.begin() + k, q.hi.begin() + std::min(k + 4, w.in()),
                      [](int h) { return h != 0; }))
        add_part(q.hi, k, k + 4, 128);
    y[static_cast<size_t>(o)] = sum * q.scale;
  }
  return y;
}

Floats multiply_k(const WeightMatrix& w, std::span<const float> x) {
  const bool six = w.storage() == WeightStorage::kQ6K;
  const IntegerInputs q = round_inputs(x);
  Floats y(static_cast<size_t>(w.out()));
  for (int o = 0; o < w.out(); ++o) {
    float sum = 0;
    KBlock block;
    // Inputs [first, end) of `block`, their parts `v` times `factor`.
    const auto add_part = [&](const std::vector<int>& v, int first, int end, int factor) {
      int32_t dot = 0, minima = 0;
      for (int k = first; k < end; ++k) {
        const auto i = static_cast<size_t>(k % kKBlock);
        const int value = v[static_cast<size_t>(k)];
        dot +=
            value * (six ? block.code[i] - 32 : block.code[i]) * block.scale[i / (six ? 16 : 32)];
        if (!six) minima += value * block.min[i / 32];
      }
      sum = std::fma(static_cast<float>(factor * dot), half_to_float(block.d), sum);
      if (!six)
        sum = std::fma(static_cast<float>(factor * minima), -half_to_float(block.dmin), sum);
    };
    for (int k = 0; k < w.in(); k += kKBlock) {
      block = w.k_block(o, k / kKBlock);
      add_part(q.lo, k, k + kKBlock, 1);
    }
    for (int k = 0; k < w.in(); k += 4) {
      if (k % kKBlock == 0) block = w.k_block(o, k / kKBlock);
      if (std::any_of(q.hi.begin() + k, q.hi.begin() + k + 4, [](int h) { return h != 0; }))
        add_part(q.hi, k, k + 4, 128);
    }
    y[static_cast<size_t>(o)] = sum * q.scale;
  }
  return y;
}

}  // namespace

Floats reference_product(const WeightMatrix& w, std::span<const float> x) {
  switch (w.storage()) {
    case WeightStorage::kF32:
      return multiply_f32(w, x);
    case WeightStorage::kBf16:
      return multiply_bf16(w, x);
    case WeightStorage::kInt8Channel:
      return multiply_int8_channel(w, x);
    case WeightStorage::kInt8Group:
    case WeightStorage::kQ4Group:
    case WeightStorage::kQ4Centred:
      return multiply_grouped(w, x);
    case WeightStorage::kQ4K:
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K:
      return multiply_k(w, x);
  }
  return {};
}

}  // namespace evalrun::engine::cpu
