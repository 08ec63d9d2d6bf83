// From logits to distributions and tokens: argmax, warpers in the Hugging Face order, draws.
// All in float64 where sums decide, so that acceptance tests see what was drawn from. exp and sums
// are our own (relative error of a probability below 1e-15 times 1 + its distance from the best
// logit in temperatures): the same bits on every machine, whatever its libm and vector width.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/rng.h"

namespace evalrun::engine {

// How a token is found by a random number. Both follow the distribution, but for rounding.
enum class Sampler {
  kInverse,  // the inverse of the distribution, over ids
  kGumbel,   // noise of every token (engine/gumbel.cpp): drafters can draw by the same
};
const char* to_string(Sampler sampler);                                // "inverse", "gumbel"
Sampler parse_sampler(std::string_view text, std::string_view where);  // or usage_error

struct SamplingParams {
  double temperature = 0.0;  // 0 = greedy (argmax of raw logits, lowest id on ties)
  int top_k = 0;             // 0 = off
  double top_p = 1.0;        // 1 = off
  Sampler sampler = Sampler::kInverse;
  bool greedy() const { return temperature == 0.0; }
  bool operator==(const SamplingParams&) const = default;
};
// Throws usage_error: temperature finite and >= 0, top_k >= 0, 0 < top_p <= 1.
void validate(const SamplingParams& params);
double inverse_temperature(const SamplingParams& params);

// Lowest id on exact ties; 0 when all are -inf. Throws data_error for NaN logits, wherever they
// stand.
int32_t argmax(std::span<const float> logits);

struct TokenLogit {
  int32_t token;
  float logit;
};
// A distribution over the vocabulary after temperature, top-k, top-p (Hugging Face order:
// temperature, then top-k, then top-p on what is left; ties at the top-k border are kept as Hugging
// Face keeps them; the top-p set is the smallest one reaching top_p, the token that crosses it
// included, lowest id first on ties; masses are compared in units of 2^-44 of the best token's, so
// that a set does not depend on the order in which they are added). At most 2^20 tokens with top-p.
// prob.size() == vocab, sums to 1, exact zeros where cut.
// `scratch` keeps capacity between calls so that a steady state allocates nothing. Throws
// data_error for logits that give no distribution (NaN, +inf, nothing finite). Not for greedy
// parameters.
struct WarpScratch {
  std::vector<int32_t> order, tokens;
  std::vector<double> weights, bounds, speeds;
};
void warp(std::span<const float> logits, const SamplingParams& params, std::vector<double>& prob,
          WarpScratch& scratch);

// The k largest, descending, lowest id first on ties, without sorting the vocabulary; fewer when
// the vocabulary has fewer. Throws data_error for NaN logits.
std::vector<TokenLogit> top_k(std::span<const float> logits, int k);
// The same into `best`, with memory that is kept between calls.
void top_k(std::span<const float> logits, int k, std::vector<TokenLogit>& best,
           WarpScratch& scratch);

// What warp() does before it makes the sum 1: exp((logit - the largest) / temperature), 0 where
// top-k or top-p cut.
void weigh(std::span<const float> logits, const SamplingParams& params, std::vector<double>& weight,
           WarpScratch& scratch);
// Throws data_error for NaN logits; -inf where all are.
float largest_logit(std::span<const float> logits);
// Throws data_error for a largest logit of which no distribution can be made.
void check_finite_best(float best);

// One draw from the distribution of `params`, by `uniform` in [0, 1), 53 bits, and by the sampler
// of `params`. kInverse: masses are integers in units of 2^-44 of the best token's
// (engine/sampling_arith.h), so that a device draws the same token however it divides the work; the
// distribution drawn from is within V 2^-45 (4e-9 at 128k tokens) of warp()'s in total variation.
// Fewer than 2^20 tokens. kGumbel: the uniform seeds the noise. Throws data_error as warp does.
int32_t draw(std::span<const float> logits, const SamplingParams& params, double uniform,
             WarpScratch& scratch);

// Draws by noise (engine/gumbel.cpp): the k tokens that arrive first, in their order. Each is a
// draw from the distribution of `params` without those before it (Kool, van Hoof, Welling 2019,
// arXiv 1903.06059). Fewer where fewer have any weight. `uniform` in [0, 1): 53 bits, of which the
// noise is made (base::KeyedChance). `ids`: the target's token of each output; empty = they are the
// same. `outputs`: which logits were drawn. Throws data_error as warp() does.
void draw_by_noise(std::span<const float> logits, const SamplingParams& params, double uniform,
                   int k, std::span<const int32_t> ids, std::vector<int32_t>& outputs,
                   WarpScratch& scratch);

// The masses that draw() goes by, in `mass` [vocab]; returns their sum. Throws data_error as warp.
uint64_t dist_masses(std::span<const float> logits, const SamplingParams& params,
                     std::vector<uint64_t>& mass, WarpScratch& scratch);

// log of the sum of all exp(logit): a token's log-probability at temperature 1, nothing cut, is its
// logit less this. From the same integer masses, with their error. Throws data_error as warp does.
double log_sum(std::span<const float> logits);
double log_sum_of(float best, uint64_t mass);  // from the largest logit and the mass of all

// Sum in a fixed order of independent lanes.
double sum(std::span<const double> values);

// One draw, by `uniform` in [0, 1), from what warp() gave or what is left of it; prob need not be
// normalised (sum > 0).
int32_t draw(std::span<const double> prob, double uniform);
int32_t draw(std::span<const double> prob, base::Rng& rng);

}  // namespace evalrun::engine
