// What a product on the device is near to, whatever its kernel: the sum of weights times rounded
// inputs, in double.
#pragma once
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cuda::testing {

// What is added to a weight's scaled code.
inline float offset_of(const WeightMatrix& w, int o, int k) {
  if (w.storage() == WeightStorage::kQ4Group) return w.group_offset(o, k / 32);
  if (k_bits(w.storage()) == 0 || w.storage() == WeightStorage::kQ6K) return 0;
  const KBlock block = w.k_block(o, k / kKBlock);
  return -half_to_float(block.dmin) *
         static_cast<float>(block.min[static_cast<size_t>(k % kKBlock / 32)]);
}

// Of one output of w.
class DefinedOutput {
 public:
  DefinedOutput(const WeightMatrix& w, int o) {
    for (int k = 0; k < w.in(); ++k) {
      weights_.push_back(static_cast<double>(w.at(o, k)));
      // Scaled codes and offsets are summed separately and cancel.
      sizes_.push_back(std::fabs(weights_.back()) +
                       std::fabs(static_cast<double>(offset_of(w, o, k))));
    }
  }
  struct Value {
    double sum = 0, tolerance = 0;
    bool holds(float got) const { return std::fabs(static_cast<double>(got) - sum) <= tolerance; }
  };
  // `row`: inputs, rounded to bfloat16. Sums in float32 are this near: slices of at most some
  // hundred blocks, each block rounded once.
  Value of(std::span<const float> row) const {
    Value v;
    double size = 0;
    for (size_t k = 0; k < weights_.size(); ++k) {
      const auto x = static_cast<double>(row[k]);
      v.sum += weights_[k] * x, size += sizes_[k] * std::fabs(x);
    }
    v.tolerance = 2e-6 * size + 1e-30;
    return v;
  }

 private:
  std::vector<double> weights_, sizes_;
};

}  // namespace evalrun::engine::cuda::testing
