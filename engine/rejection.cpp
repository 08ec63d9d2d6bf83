#include "engine/rejection.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/sampling_arith.h"

namespace evalrun::engine {
namespace {

// The first token at which the masses, added by id, exceed `place`.
template <typename Mass>
int32_t token_at(size_t n, uint64_t place, Mass mass) {
  for (size_t i = 0; i < n; ++i) {
    const uint64_t own = mass(i);
    if (place < own) return static_cast<int32_t>(i);
    place -= own;
  }
  throw base::InternalError("a place after all masses");
}

bool holds(std::span<const int32_t> tokens, size_t token) {
  return std::find(tokens.begin(), tokens.end(), static_cast<int32_t>(token)) != tokens.end();
}

}  // namespace

void draw_without_replacement(const MassDistribution& dist, std::span<const double> uniforms,
                              std::vector<int32_t>& tokens) {
  tokens.clear();
  uint64_t left = dist.total;
  for (const double uniform : uniforms) {
    int32_t token = -1;
    if (left > 0) {
      token = token_at(dist.mass.size(), place_of_draw(uniform, left),
                       [&](size_t i) { return holds(tokens, i) ? 0 : dist.mass[i]; });
      left -= dist.mass[static_cast<size_t>(token)];
    }
    tokens.push_back(token);
  }
}

HostDistributions::HostDistributions(int slots, int vocab, std::span<const int32_t> ids)
    : DistributionStore("cpu", slots, vocab, ids),
      ids_(ids.begin(), ids.end()),
      mass_(static_cast<size_t>(slots) * static_cast<size_t>(vocab)),
      total_(static_cast<size_t>(slots)) {}

void HostDistributions::keep(int slot, std::span<const uint64_t> mass, uint64_t total) {
  uint64_t* to = &mass_[static_cast<size_t>(slot) * static_cast<size_t>(vocab())];
  for (size_t i = 0; i < mass.size(); ++i)
    to[ids_.empty() ? i : static_cast<size_t>(ids_[i])] = mass[i];
  total_[static_cast<size_t>(slot)] = total;
}

MassDistribution HostDistributions::dist(int slot) const {
  const auto n = static_cast<size_t>(vocab());
  return {std::span<const uint64_t>(mass_).subspan(static_cast<size_t>(slot) * n, n),
          total_[static_cast<size_t>(slot)]};
}

RejectionOutcome try_children(std::vector<uint64_t>& target, uint64_t total,
                              const MassDistribution& draft, std::span<const int32_t> children,
                              bool independent, double uniform) {
  uint64_t draft_total = draft.total;
  std::vector<uint64_t> residual(target.size());
  for (size_t c = 0; c < children.size(); ++c) {
    const auto token = static_cast<size_t>(children[c]);
    const auto before = independent ? children.first(0) : children.first(c);
    const auto mass = [&](size_t i) {
      return i < draft.mass.size() && !holds(before, i) ? draft.mass[i] : 0;
    };
    EVALRUN_CHECK(token < target.size() && mass(token) > 0,
                  "the drafter gives no mass to the token {} it drew", children[c]);
    const double norm = 1.0 / static_cast<double>(total),
                 draft_norm = 1.0 / static_cast<double>(draft_total);
    if (passes(static_cast<double>(target[token]) * norm,
               static_cast<double>(mass(token)) * draft_norm, uniform))
      return {static_cast<int>(c), children[c]};
    uint64_t left = 0;
    for (size_t i = 0; i < target.size(); ++i)
      left += residual[i] = residual_mass(target[i], norm, mass(i), draft_norm);
    // Nothing is left only where the two distributions agree up to rounding. A refusal then had a
    // probability like that, and the target's own distribution is as good.
    if (left > 0) {
      target.swap(residual);
      total = left;
    }
    if (!independent) draft_total -= mass(token);
  }
  const auto own = [&](size_t i) { return target[i]; };
  return {-1, token_at(target.size(), place_of_draw(uniform, total), own)};
}

}  // namespace evalrun::engine
