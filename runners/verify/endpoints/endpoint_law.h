// The law of one token that a server draws, as far as the best log-probabilities of another server
// say it; counts of draws against it; and the temperature that draws look like. No server is asked
// here.
//
// Log-probabilities are those of the model: before temperature, top-k and top-p. Servers differ in
// what comes first (llama.cpp cuts, then divides by the temperature; Hugging Face and vLLM divide,
// then cut), which matters where top-p cuts at a temperature other than 1.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/goodness_of_fit.h"
#include "engine/base/stats.h"
#include "engine/sampling.h"
#include "runners/endpoints/endpoint.h"

namespace evalrun::runners {

// The best tokens after a text, best first, as a server lists them.
struct TokenCandidates {
  std::vector<int32_t> ids;
  std::vector<double> log_probs;
};
// Without tokens that have no id, and without what is no log-probability. `list`: the token that
// was chosen, then the best.
TokenCandidates candidates_of(std::span<const EndpointLogProb> list);

enum class CutOrder { kTemperatureFirst, kCutFirst };

// What a draw may be, given the candidates.
struct TokenLaw {
  std::vector<double> prob;  // [candidate], 0 where cut; with `rest` their sum is 1
  // Of all other tokens. At least kLeastRest where the law holds for all draws: log-probabilities
  // are rounded, and one stray draw in ten thousand is no proof. Absent where it cannot be known:
  // then the law is of draws among the candidates alone.
  std::optional<double> rest;
  bool closed = false;  // top-k or top-p leaves none but candidates
};
inline constexpr double kLeastRest = 1e-4;

// nullopt where a border of top-k or top-p lies within `noise` (in log-probability) of a candidate,
// or nothing but one token is left to be seen. Temperature above 0.
std::optional<TokenLaw> token_law(const TokenCandidates& candidates,
                                  const engine::SamplingParams& sampling, CutOrder order,
                                  double noise);

// Draws after one text.
struct TokenCounts {
  std::vector<int64_t> of;  // [candidate]
  int64_t others = 0;
  int64_t all() const;
};

// The test of `counts` against `law`; nullopt without draws that it is about.
struct LawTest {
  base::GoodnessOfFit fit;
  double p = 1;
};
std::optional<LawTest> test_counts(const TokenLaw& law, const TokenCounts& counts, uint64_t seed,
                                   int simulations = base::GoodnessOfFit::kMostSimulations);

// Several places together.
struct LawPlaceView {
  const TokenCandidates* candidates = nullptr;
  const TokenLaw* law = nullptr;
  const TokenCounts* counts = nullptr;
};
// The temperature of the largest likelihood: the share of a candidate is p^(1/T), among those that
// the law allows. Its 95 % interval is of the slope 1/T. nullopt where draws say nothing of it.
struct SeenTemperature {
  double value = 0;
  base::Interval interval;
};
inline constexpr double kLeastTemperature = 0.01;  // below that, draws are greedy
std::optional<SeenTemperature> seen_temperature(std::span<const LawPlaceView> places);

}  // namespace evalrun::runners
