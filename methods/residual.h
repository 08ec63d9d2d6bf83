// What is left of the target's distribution when drafts were refused; the rules:
// methods/verifier.h.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace evalrun::methods {

// target_prob <- norm(max(w - min(q, accept_scale w), 0)), with w = share target_prob and q =
// draft_prob / draft_mass; draft_mass = sum of draft_prob, which may be shorter. Returns the sum
// before it was normalised. It is 0 only when the two agree up to rounding; a refusal then had a
// probability of about 1e-16 and the target's own distribution is as good as what is left of it, so
// it stays.
double subtract(std::vector<double>& target_prob, double share, std::span<const double> draft_prob,
                double draft_mass, double accept_scale);

// The same for a draft that is a point mass on `token`.
double exclude(std::vector<double>& target_prob, double share, size_t token);

}  // namespace evalrun::methods
