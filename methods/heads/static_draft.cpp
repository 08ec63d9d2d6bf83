#include "methods/heads/static_draft.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {

RankedChoices::RankedChoices(int slot, std::shared_ptr<SlotDists> dists)
    : slot_(slot), dists_(std::move(dists)) {
  if (dists_ == nullptr) dists_ = std::make_shared<SlotDists>(slot + 1);
}

void RankedChoices::start(const GenerationContext& context, DraftRule rule, int lists, int looks,
                          int width, const std::vector<int32_t>& ids, int vocab_size) {
  rule_ = rule_in(rule, context.sampling);
  draws_ = rule_ != DraftRule::kArgmax;
  chance_ = context.chance;
  width_ = width;
  vocab_size_ = static_cast<size_t>(vocab_size);
  sampling_ = context.sampling;
  ids_ = &ids;
  lists_.resize(static_cast<size_t>(lists));
  keeps_ = rejects() && context.may_keep_dists && width <= engine::kMostBest;
  if (keeps_) dists_->make(*context.target, looks, vocab_size, ids);
  for (List& list : lists_) {
    list.tokens.reserve(static_cast<size_t>(width));
    if (keeps_) list.uniforms.reserve(static_cast<size_t>(width));
    if (rejects() && !keeps_) list.q.reserve(vocab_size_);
  }
  clear(1);
}

void RankedChoices::clear(int64_t position) {
  position_ = position;
  asked_ = 0;
  for (List& list : lists_) list.tokens.clear();
}

engine::DistributionDraw RankedChoices::ask(int list, int row) {
  List& to = lists_[static_cast<size_t>(list)];
  to.dist = dists_->first(slot_) + asked_++;
  to.uniforms.clear();
  for (int i = 0; i < width_; ++i) to.uniforms.push_back(chance_.draft(position_, list, i));
  return {row, to.dist, to.uniforms};
}

void RankedChoices::note(int list, int64_t position, const engine::RowScores& scores) {
  List& to = lists_[static_cast<size_t>(list)];
  to.tokens.clear();
  if (keeps_) {
    for (const int32_t token : scores.drawn)
      if (token >= 0) to.tokens.push_back(token);
    return;
  }
  if (rule_ == DraftRule::kGumbel) {
    engine::draw_by_noise(scores.logits, sampling_, chance_.target(position), width_, *ids_,
                          outputs_, scratch_);
    for (const int32_t output : outputs_) to.tokens.push_back(token_of(output));
    return;
  }
  if (draws_) return draw(list, scores.logits);
  std::span<const engine::TokenLogit> ranked = scores.best;
  if (best() == 0) {
    engine::top_k(scores.logits, width_, best_, scratch_);
    ranked = best_;
  }
  for (const engine::TokenLogit& best : ranked) to.tokens.push_back(token_of(best.token));
}

void RankedChoices::draw(int index, std::span<const float> logits) {
  List& list = lists_[static_cast<size_t>(index)];
  engine::warp(logits, sampling_, left_, scratch_);
  if (!rejects()) {
    list.q.clear();
  } else if (ids_->empty()) {
    list.q.assign(left_.begin(), left_.end());
  } else {
    list.q.assign(vocab_size_, 0.0);
    for (size_t i = 0; i < ids_->size(); ++i) list.q[static_cast<size_t>((*ids_)[i])] = left_[i];
  }
  for (int i = 0; i < width_; ++i) {
    if (!(engine::sum(left_) > 0)) break;
    const int32_t id = engine::draw(left_, chance_.draft(position_, index, i));
    left_[static_cast<size_t>(id)] = 0;
    list.tokens.push_back(token_of(id));
  }
}

int32_t RankedChoices::token(int list, int rank) const {
  const std::vector<int32_t>& tokens = lists_[static_cast<size_t>(list)].tokens;
  return static_cast<size_t>(rank) < tokens.size() ? tokens[static_cast<size_t>(rank)] : -1;
}

std::span<const double> RankedChoices::q(int list) const {
  if (!rejects() || keeps_) return {};
  return lists_[static_cast<size_t>(list)].q;
}

StaticTree::StaticTree(RankTree plan) : plan_(std::move(plan)) {
  const auto n = static_cast<size_t>(plan_.size());
  inner_.resize(static_cast<size_t>(plan_.depth()) + 1);
  std::vector<bool> has_children(n + 1);
  for (const int parent : plan_.parent) has_children[static_cast<size_t>(parent)] = true;
  for (size_t i = 0; i < n; ++i)
    if (has_children[i + 1])
      inner_[static_cast<size_t>(plan_.level[i])].push_back(static_cast<int>(i) + 1);
  std::vector<int> children(n + 1);
  for (const int parent : plan_.parent) place_.push_back(children[static_cast<size_t>(parent)]++);
  node_.resize(n + 1);
  token_.resize(n + 1);
  list_of_node_.resize(n + 1);
  draw_of_node_.resize(n + 1);
}

std::span<const int> StaticTree::inner(int level) const {
  return inner_[static_cast<size_t>(level)];
}

int StaticTree::inner() const {
  size_t n = 0;
  for (const std::vector<int>& level : inner_) n += level.size();
  return static_cast<int>(n);
}

void StaticTree::clear() {
  std::fill(node_.begin(), node_.end(), -1);
  node_[0] = 0;
}

void StaticTree::add_level(int level, const RankedChoices& choices,
                           base::FunctionRef<int(int)> list_of, TokenTree& tree) {
  for (size_t i = 0; i < plan_.level.size(); ++i) {
    if (plan_.level[i] != level) continue;
    const int parent = node_[static_cast<size_t>(plan_.parent[i])];
    if (parent < 0) continue;
    const int list = list_of(plan_.parent[i]);
    // Multi-candidate rejection tests children in the order they were drawn in, and none may have
    // been passed over.
    const int32_t token = choices.token(list, choices.rejects() ? place_[i] : plan_.rank[i]);
    if (token < 0) continue;
    const int node = tree.add(token, parent);
    node_[i + 1] = node;
    token_[i + 1] = token;
    list_of_node_[static_cast<size_t>(node)] = list;
    draw_of_node_[static_cast<size_t>(node)] = place_[i];
  }
}

}  // namespace evalrun::methods
