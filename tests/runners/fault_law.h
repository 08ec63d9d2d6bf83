// What a planted fault of the verifier (methods/faults.h) does to the next token, worked out by its
// rule and not drawn: so a study can say how large the fault is that a test found or let pass.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "engine/sampling.h"

namespace evalrun::runners {

// Of a token that was drawn from `drawn` and passes with min(1, scale p / reported). After a
// refusal one is drawn from what p has above min(reported, scale p), or from the whole of p.
inline std::vector<double> law_of_rejection(std::span<const double> p,
                                            std::span<const double> drawn,
                                            std::span<const double> reported, double scale,
                                            bool whole) {
  std::vector<double> law(p.size()), left(p.size());
  double passed = 0, mass = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (reported[i] > 0) law[i] = drawn[i] * std::min(1.0, scale * p[i] / reported[i]);
    left[i] = whole ? p[i] : std::max(0.0, p[i] - std::min(reported[i], scale * p[i]));
    passed += law[i];
    mass += left[i];
  }
  for (size_t i = 0; i < p.size() && mass > 0; ++i) law[i] += (1 - passed) * left[i] / mass;
  return law;
}

// The distribution of the next token where one draft token was drawn from `q` [token] and put to a
// verifier with this fault; `logits` [token]: the target's there. The target's own distribution for
// "none"; nullopt for a fault that changes tokens by another rule.
inline std::optional<std::vector<double>> faulty_law(const std::string& fault,
                                                     std::span<const float> logits,
                                                     const engine::SamplingParams& sampling,
                                                     std::span<const double> q) {
  const size_t colon = std::min(fault.find(':'), fault.size());
  const std::string name = fault.substr(0, colon);
  double share = 1;
  if (colon < fault.size()) {
    EVALRUN_CHECK(fault.ends_with('%'), "fault '{}'", fault);
    const std::string number = fault.substr(colon + 1, fault.size() - colon - 2);
    const auto percent = base::parse_number<double>(number);
    EVALRUN_CHECK(percent.has_value(), "fault '{}'", fault);
    share = *percent / 100;
  }
  engine::WarpScratch scratch;
  std::vector<double> p;
  engine::warp(logits, sampling, p, scratch);
  engine::SamplingParams other = sampling;
  if (name == "none") return p;
  if (name == "wrong-accept" && colon < fault.size()) {
    // What was refused of q comes out instead of what p has above it.
    for (size_t i = 0; i < p.size(); ++i) p[i] += share * (q[i] - p[i]);
    return p;
  }
  if (name == "redraw-from-target") return law_of_rejection(p, q, q, 1, true);
  if (name == "scale-acceptance") return law_of_rejection(p, q, q, share, false);
  if (name == "misreport-draft") {
    std::vector<double> reported(q.size());
    double sum = 0;
    for (size_t i = 0; i < q.size(); ++i) sum += reported[i] = q[i] > 0 ? std::pow(q[i], share) : 0;
    for (double& x : reported) x /= sum;
    return law_of_rejection(p, q, reported, 1, false);
  }
  // By another distribution of the target rejection gives that one, whatever was drafted.
  std::vector<float> kept(logits.begin(), logits.end());
  if (name == "verify-temperature") {
    other.temperature *= share;
  } else if (name == "verify-top-p") {
    other.top_p = std::min(other.top_p, share);
  } else if (name == "drop-below") {
    const auto best = static_cast<size_t>(engine::argmax(logits));
    for (size_t i = 0; i < kept.size(); ++i)
      if (p[i] < share && i != best) kept[i] = -std::numeric_limits<float>::infinity();
  } else {
    return std::nullopt;
  }
  engine::warp(kept, other, p, scratch);
  return p;
}

inline double total_variation(std::span<const double> a, std::span<const double> b) {
  EVALRUN_CHECK(a.size() == b.size(), "{} and {} tokens", a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / 2;
}

}  // namespace evalrun::runners
