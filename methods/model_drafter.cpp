#include "methods/model_drafter.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {

ModelDrafter::ModelDrafter(std::unique_ptr<engine::Session> session, const Sizes& sizes)
    : session_(std::move(session)), sizes_(sizes) {
  EVALRUN_CHECK(sizes_.gamma >= 1 && sizes_.common_vocab >= 1 &&
                sizes_.common_vocab <= sizes_.draft_vocab);
  q_.resize(static_cast<size_t>(sizes_.gamma));
  rows_.reserve(2);
  path_.reserve(2);
}

void ModelDrafter::start(const GenerationContext& context) {
  sampling_ = context.sampling;
  rng_ = context.rng;
  session_->reset();
  able_ = static_cast<int>(context.prompt.size()) <= session_->capacity() &&
          std::all_of(context.prompt.begin(), context.prompt.end(),
                      [this](int32_t token) { return known(token); });
  if (!able_) return;
  session_->prefill(context.prompt);
  if (!sampling_.greedy())
    for (std::vector<double>& row : q_) row.reserve(static_cast<size_t>(sizes_.common_vocab));
}

int32_t ModelDrafter::feed(std::span<const int32_t> tokens, int level) {
  rows_.clear();
  path_.clear();
  for (size_t i = 0; i < tokens.size(); ++i) {
    engine::Row row;
    row.token = tokens[i];
    row.parent = static_cast<int32_t>(i) - 1;
    const bool last = i + 1 == tokens.size();
    row.top = last && by_top();
    row.logits = last && !by_top();
    rows_.push_back(row);
    path_.push_back(static_cast<int>(i));
  }
  engine::ForwardRequest request;
  request.rows = rows_;
  const engine::ForwardResult result = session_->forward(request);
  session_->commit(path_);
  const int last = static_cast<int>(tokens.size()) - 1;
  if (by_top()) return result.top[static_cast<size_t>(last)];
  return choose(result.logits_row(last).first(static_cast<size_t>(sizes_.common_vocab)), level);
}

int32_t ModelDrafter::choose(std::span<const float> logits, int level) {
  if (sampling_.greedy()) return engine::argmax(logits);
  std::vector<double>& q = q_[static_cast<size_t>(level)];
  engine::warp(logits, sampling_, q, scratch_);
  return engine::draw(q, *rng_);
}

void ModelDrafter::draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) {
  root_ = static_cast<int>(sequence.size()) - 1;
  if (!able_) return;
  // New since the last step: the root, and in front of it the last draft token when all were
  // accepted, which had no need to be fed then.
  auto fresh = sequence.subspan(static_cast<size_t>(session_->length()));
  EVALRUN_CHECK(fresh.size() == 1 || fresh.size() == 2, "the draft model lags {} tokens behind",
                fresh.size());
  able_ = std::all_of(fresh.begin(), fresh.end(), [this](int32_t t) { return known(t); }) &&
          session_->length() + static_cast<int>(fresh.size()) <= session_->capacity();
  if (!able_) return;
  const int depth = std::min({sizes_.gamma, max_depth, session_->capacity() - root_});
  int node = 0;
  for (int level = 0; level < depth; ++level) {
    const int32_t token = feed(fresh, level);
    node = tree.add(token, node);
    fresh = {&tree.token[static_cast<size_t>(node)], 1};
  }
}

std::span<const double> ModelDrafter::q_of(int node) const {
  if (sampling_.greedy()) return {};
  return q_[static_cast<size_t>(node) - 1];
}

void ModelDrafter::accepted(std::span<const int> path, int32_t) {
  if (!able_) return;
  session_->rewind(std::min(session_->length(), root_ + 1 + static_cast<int>(path.size())));
}

}  // namespace evalrun::methods
