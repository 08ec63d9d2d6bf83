#include "methods/masks/mask_head.h"

#include "engine/base/error.h"

namespace evalrun::methods {

int MaskHead::add(engine::Session& session, std::span<const float> states) {
  EVALRUN_CHECK(states_.empty() || session_ == &session, "masks of two sessions");
  session_ = &session;
  const int first = rows();
  states_.insert(states_.end(), states.begin(), states.end());
  return first;
}

void MaskHead::run() {
  const engine::WeightMatrix* head = head_.get();
  const engine::MatrixView states = {states_.data(), rows(), head->in()};
  if (dists_ == nullptr) {
    scores_ = session_->score({&head, 1}, states, best_);
    return;
  }
  drawn_.assign(static_cast<size_t>(rows()), {});
  int tokens = 0;
  for (const engine::DistributionDraw& draw : draws_) {
    const int own = static_cast<int>(draw.uniforms.size());
    drawn_[static_cast<size_t>(draw.row)] = {tokens, own};
    tokens += own;
  }
  tokens_ = session_->draw({&head, 1}, states, {sampling_, dists_, draws_});
}

engine::RowScores MaskHead::scores(int row) const {
  if (dists_ == nullptr) return scores_.row(row);
  const Drawn& drawn = drawn_[static_cast<size_t>(row)];
  engine::RowScores scores;
  scores.drawn = tokens_.subspan(static_cast<size_t>(drawn.first), static_cast<size_t>(drawn.n));
  return scores;
}

}  // namespace evalrun::methods
