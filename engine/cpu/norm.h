// The norm of one row of a model's width.
#pragma once
#include <cstring>
#include <vector>

#include "engine/cpu/kernels/kernels.h"
#include "engine/model/config.h"

namespace evalrun::engine::cpu {

inline void norm_row(const Kernels& kernels, const ModelConfig& c,
                     const std::vector<float>& weights, const float* x, float* to) {
  if (weights.empty())  // a drafter without this norm
    std::memcpy(to, x, static_cast<size_t>(c.d_model) * sizeof(float));
  else
    kernels.rms_norm(x, weights.data(), c.d_model, c.norm_eps, to);
}

}  // namespace evalrun::engine::cpu
