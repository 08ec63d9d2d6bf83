// How likely plain decoding finds a text, token by token.
#pragma once
#include <cstdint>
#include <span>

#include "engine/sampling.h"
#include "engine/session.h"

namespace evalrun::runners {

// Sums over the tokens of a text; nats.
struct TextLikelihood {
  int64_t tokens = 0;
  double nll = 0;  // -ln p, temperature 1, nothing cut
  // By the distribution of the sampling parameters; 0 where these are greedy.
  double surprise = 0;     // -ln p less the entropy
  double rare = 0;         // 1 for p < evaluators::kRareProbability, less the mass of such tokens
  int64_t impossible = 0;  // tokens that top-k or top-p cut; they are in neither sum
};

// Computes `text` after `prompt` in the session, which is emptied first. Neither is empty, and
// both together fit into it.
TextLikelihood text_likelihood(engine::Session& session, std::span<const int32_t> prompt,
                               std::span<const int32_t> text,
                               const engine::SamplingParams& sampling);

}  // namespace evalrun::runners
