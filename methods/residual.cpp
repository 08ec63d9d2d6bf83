#include "methods/residual.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/sampling.h"

namespace evalrun::methods {

double subtract(std::vector<double>& target_prob, double share, std::span<const double> draft_prob,
                double draft_mass, double accept_scale) {
  const size_t n = std::min(target_prob.size(), draft_prob.size());
  const double scale = 1.0 / draft_mass;
  const auto residual = [&](size_t i) {
    const double wanted = share * target_prob[i];
    const double r = wanted - std::min(draft_prob[i] * scale, accept_scale * wanted);
    return r > 0.0 ? r : 0.0;
  };
  std::array<double, 256> block;
  double sum = share * engine::sum(std::span<const double>(target_prob).subspan(n));
  for (size_t begin = 0; begin < n; begin += block.size()) {
    const size_t size = std::min(block.size(), n - begin);
    for (size_t i = 0; i < size; ++i) block[i] = residual(begin + i);
    sum += engine::sum({block.data(), size});
  }
  if (!(sum > 0)) return 0;
  const double norm = 1.0 / sum;
  for (size_t i = 0; i < n; ++i) target_prob[i] = residual(i) * norm;
  for (size_t i = n; i < target_prob.size(); ++i) target_prob[i] *= share * norm;
  return sum;
}

double exclude(std::vector<double>& target_prob, double share, size_t token) {
  const double cut = std::exchange(target_prob[token], 0.0);
  const double sum = engine::sum(target_prob);
  if (!(sum > 0)) {
    target_prob[token] = cut;  // as above: only rounding can have refused it
    return 0;
  }
  const double norm = 1.0 / sum;
  for (double& p : target_prob) p *= norm;
  return share * sum;
}

}  // namespace evalrun::methods
