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
  drawn_.begin(rows());
  for (const engine::DistributionDraw& draw : draws_) drawn_.add(draw);
  drawn_.set(session_->draw({&head, 1}, states, {sampling_, dists_, draws_}));
}

engine::RowScores MaskHead::scores(int row) const {
  return dists_ == nullptr ? scores_.row(row) : drawn_.scores(row);
}

}  // namespace evalrun::methods
