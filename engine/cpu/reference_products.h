// The products of kernels.h spelled out, from single weights, for the oracle and for tests.
#pragma once
#include <span>
#include <vector>

#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cpu {
// y [w.out()] of one row x [w.in()], rounded as the storage asks.
std::vector<float> reference_product(const WeightMatrix& w, std::span<const float> x);
}  // namespace evalrun::engine::cpu
