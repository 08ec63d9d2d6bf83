// What the target said after the nodes of a draft, for drafters that learn from it: its likeliest
// tokens after each node, accepted or not, and the token that it takes there itself.
//
// The forward finds the likeliest tokens where nobody asks for logits (Row::best): a device sends
// some bytes a row. Where the verification has asked for logits they are found in these, on the
// host, row by row as they are asked for: on a device that copies a vocabulary for each row that
// the verification has not looked at.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/session.h"
#include "methods/token_tree.h"
#include "methods/verifier.h"

namespace evalrun::methods {

// What a drafter learns from.
struct TargetWants {
  int best = 0;           // likeliest tokens of a node, 0..engine::kMostBest
  bool log_sums = false;  // and what makes probabilities of their logits
  bool tokens = false;    // the target's own tokens
  bool any() const { return best > 0 || tokens; }
};

class TargetAnswers {
 public:
  // Of one step. The references must outlive the questions.
  void begin(const engine::ForwardResult& result, const TokenTree& tree,
             const engine::SamplingParams& sampling, const KeyedUniforms& uniform,
             const TargetWants& wants);
  // From now on no more than so many tokens of best(): for one of several that learn.
  void narrow(int best) { wants_.best = best; }
  // TargetWants::best tokens, the likeliest first (ties: the smaller id); fewer where the
  // vocabulary has fewer. Valid until the next question.
  std::span<const engine::TokenLogit> best(int node);
  // log of the sum of all exp(logit): a token's log-probability, at temperature 1 and with nothing
  // cut, is its logit less this. Only with TargetWants::log_sums.
  double log_sum(int node);
  // The token that the target takes after the node: its likeliest, or under sampling the draw of
  // plain decoding at that place of the answer. Only with TargetWants::tokens.
  int32_t token(int node);

 private:
  const engine::ForwardResult* result_ = nullptr;
  const TokenTree* tree_ = nullptr;
  const engine::SamplingParams* sampling_ = nullptr;
  const KeyedUniforms* uniform_ = nullptr;
  TargetWants wants_;
  std::vector<engine::TokenLogit> best_;
  engine::WarpScratch scratch_;
};

}  // namespace evalrun::methods
