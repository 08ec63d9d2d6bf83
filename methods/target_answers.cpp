#include "methods/target_answers.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {

void TargetAnswers::begin(const engine::ForwardResult& result, const TokenTree& tree,
                          const engine::SamplingParams& sampling, const KeyedUniforms& uniform,
                          const TargetWants& wants) {
  result_ = &result;
  tree_ = &tree;
  sampling_ = &sampling;
  uniform_ = &uniform;
  wants_ = wants;
}

std::span<const engine::TokenLogit> TargetAnswers::best(int node) {
  EVALRUN_CHECK(wants_.best > 0, "node {}: nobody asked for its best tokens", node);
  const engine::RowScores scores = result_->scores(node);
  if (scores.logits.empty())
    return scores.best.first(std::min(scores.best.size(), static_cast<size_t>(wants_.best)));
  engine::top_k(scores.logits, wants_.best, best_, scratch_);
  return best_;
}

double TargetAnswers::log_sum(int node) {
  EVALRUN_CHECK(wants_.log_sums, "node {}: nobody asked for the sum of its weights", node);
  const engine::RowScores scores = result_->scores(node);
  return scores.logits.empty() ? scores.log_sum : engine::log_sum(scores.logits);
}

int32_t TargetAnswers::token(int node) {
  EVALRUN_CHECK(wants_.tokens, "node {}: nobody asked for its token", node);
  const auto at = static_cast<size_t>(node);
  if (sampling_->greedy()) return result_->top[at];
  if (result_->drawn[at] >= 0) return result_->drawn[at];
  return engine::draw(result_->logits_row(node), *sampling_, uniform_->target(tree_->level[at]),
                      scratch_);
}

}  // namespace evalrun::methods
