// Which sublayers a self-speculative draft may leave out (methods/model_draft/self_spec.cpp),
// searched for one model on one machine.
//
// Zhang et al. 2024 (arXiv 2309.08168, section 4.1) let Bayesian optimisation try 1,000 sets, each
// timed on whole generations. Here a set is judged without decoding: one forward over texts the
// target itself wrote tells at every place whether the draft would have said the same, and so where
// drafts of every length would have ended; T(n)/T(1) and the share of weights that is left tell
// what they would have cost. The search leaves out sublayers one by one, each time the one that
// keeps most agreement for the weights it saves, and takes the best set it passes. The estimate
// ignores that a draft sees its own keys and values from the prompt's end on, which makes it a
// little too low; the command measures what it recommends.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/cost/row_cost.h"
#include "engine/session.h"

namespace evalrun::runners {

struct SkipText {
  std::vector<int32_t> prompt, answer;  // greedy continuation by the whole model, root included
};

struct SkipEstimate {
  engine::SkipSet skip;
  double kept = 1;       // share of the weights a draft reads
  double agreement = 1;  // share of places where the draft says what the target says
  int k = 1;             // best draft length
  double tau = 1;        // expected with it
  double speedup = 1;    // expected over plain decoding
};

struct SkipSearchOptions {
  int k_max = 12;
  double seconds = 120;  // the search ends with the best so far
  std::function<bool()> stop;
  std::function<void(const SkipEstimate& best, int skipped, double elapsed)> progress;
};

// tokens per step x T(1) for drafts of length k along recorded agreement: `agrees[i]` says whether
// the draft has token i + 1 of the text right, given the text before it.
SkipEstimate estimate_skip(const std::vector<std::vector<bool>>& agrees, double kept, int k_max,
                           const std::function<double(int)>& price);

// `session` has one sequence per text and room for prompt and answer; it is left empty. The path of
// the search, one estimate per number of sublayers left out, in order; the best is the one of the
// largest speedup.
std::vector<SkipEstimate> search_skip_set(engine::Session& session, std::span<const SkipText> texts,
                                          const engine::RowCostTable& costs,
                                          const SkipSearchOptions& options);

}  // namespace evalrun::runners
