#include "methods/model_draft/draft_model.h"

#include <numeric>

#include "engine/base/error.h"

namespace evalrun::methods {

void DraftModel::begin() {
  merged_.clear();
  sequences_.clear();
  ran_ = false;
}

size_t DraftModel::add(engine::Session& session, const engine::ForwardRequest& chain,
                       int sequence) {
  if (ran_) begin();
  EVALRUN_CHECK(merged_.parts() == 0 || session_ == &session, "drafts in two sessions");
  EVALRUN_CHECK(chain.rows.size() <= static_cast<size_t>(kMostRows), "a chain of {} rows",
                chain.rows.size());
  session_ = &session;
  merged_.add(chain, sequence);
  sequences_.push_back(sequence);
  return merged_.parts() - 1;
}

void DraftModel::run() {
  const engine::ForwardRequest request = merged_.request();
  result_ = session_->forward(request);
  ran_ = true;
  rows_.resize(request.rows.size());
  std::iota(rows_.begin(), rows_.end(), 0);
  paths_.clear();
  for (size_t i = 0; i < merged_.parts(); ++i) {
    const MergedRequest::Place& place = merged_.place(i);
    paths_.push_back(
        {sequences_[i], std::span<const int>(rows_).subspan(static_cast<size_t>(place.first),
                                                            static_cast<size_t>(place.rows))});
  }
  session_->commit(paths_);
}

engine::ForwardResult DraftModel::part(size_t number) const {
  const MergedRequest::Place& p = merged_.place(number);
  return engine::slice(result_, p.first, p.rows, p.first_drawn_token, p.drawn_tokens);
}

}  // namespace evalrun::methods
