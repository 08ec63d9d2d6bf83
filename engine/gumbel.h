// Draws by noise (the Gumbel-max trick), keyed so that all who draw for one position use the same
// noise. Target and drafter each draw from their own distribution; a draft token passes when the
// target draws the same one. So what is emitted depends on the target and the seed alone, never on
// the drafter: every method gives plain decoding's tokens (Daliri, Musco, Suresh 2024, "Coupling
// without communication and drafter-invariant speculative decoding", arXiv 2408.07978, section 4).
// Two distributions at a total variation of D agree with probability (1 - D) / (1 + D) or more.
//
// The noise is a race: token i arrives at time e_i / w_i, e_i ~ Exp(1), w_i its weight, and the
// first to arrive is drawn: with probability w_i / sum w. (ln w_i - ln e_i is its logit plus Gumbel
// noise.) Tokens come in blocks of 256 ids. In a block the least e_i is Exp(256), its place even,
// and the others come Exp(1) after it (memorylessness). So one number bounds what a block can do,
// and few blocks are looked at, as in A* sampling (Maddison, Tarlow, Minka 2014, arXiv 1411.0030).
// Noise belongs to a token id, whatever the width of the logits.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling.h"

namespace evalrun::engine {

// The k tokens that arrive first, in their order: each is a draw from the distribution of `params`
// without those before it (Kool, van Hoof, Welling 2019, arXiv 1903.06059). Fewer where fewer have
// any weight. `uniform` in [0, 1): 53 bits, of which the noise is made (base::KeyedChance). `ids`:
// the target's token of each output; empty = they are the same. `outputs`: which logits
// were drawn. Throws data_error as warp() does.
void draw_by_noise(std::span<const float> logits, const SamplingParams& params, double uniform,
                   int k, std::span<const int32_t> ids, std::vector<int32_t>& outputs,
                   WarpScratch& scratch);

}  // namespace evalrun::engine
