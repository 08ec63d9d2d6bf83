#include "methods/model_draft/model_drafter.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace evalrun::methods {

ModelDrafter::ModelDrafter(std::unique_ptr<engine::Session> session, const Options& options)
    : own_(std::move(session)), options_(options), length_(options.length) {
  EVALRUN_CHECK(options_.common_vocab >= 1 && options_.common_vocab <= options_.draft_vocab);
  EVALRUN_CHECK(options_.ids.empty() ||
                options_.ids.size() == static_cast<size_t>(options_.common_vocab));
  q_.resize(static_cast<size_t>(options_.length.schedule == DraftLengthRule::Schedule::kConstant
                                    ? options_.length.k
                                    : options_.length.most));
  rows_.reserve(2);
  path_.reserve(2);
}

void ModelDrafter::start(const GenerationContext& context) {
  session_ = own_ != nullptr ? own_.get() : context.target;
  sampling_ = context.sampling;
  if (!sampling_.greedy() && options_.temperature) sampling_.temperature = *options_.temperature;
  rule_ = rule_in(options_.rule, context.sampling);
  chance_ = context.chance;
  prompt_ = context.prompt.size();
  length_.start();
  drafted_ = 0;
  keeps_ = can_keep_dists(context);
  if (keeps_ && (dists_ == nullptr || dists_->device() != context.target->options().device))
    dists_ = session_->make_distributions(static_cast<int>(q_.size()), options_.draft_vocab,
                                          options_.ids);
  if (rejects() && !keeps_)
    for (std::vector<double>& row : q_) row.reserve(static_cast<size_t>(options_.draft_vocab));
  able_ = true;
  if (own_ == nullptr) return;  // the target's cache is all it needs
  own_->reset();
  able_ = static_cast<int>(context.prompt.size()) <= own_->capacity() &&
          std::all_of(context.prompt.begin(), context.prompt.end(),
                      [this](int32_t token) { return known(token); });
  if (able_) own_->prefill(context.prompt);
}

// Drafts are drawn on the device by the whole of the draft model's distribution, not where its ids
// are cut to the target's.
bool ModelDrafter::can_keep_dists(const GenerationContext& context) const {
  return context.may_keep_dists && rejects() &&
         session_->options().device == context.target->options().device &&
         options_.common_vocab == session_->model().config().n_logits();
}

int32_t ModelDrafter::feed(std::span<const int32_t> tokens, int level, double& confidence) {
  rows_.clear();
  path_.clear();
  for (size_t i = 0; i < tokens.size(); ++i) {
    engine::Row row;
    row.token = tokens[i];
    row.parent = static_cast<int32_t>(i) - 1;
    const bool last = i + 1 == tokens.size();
    row.best = last && (by_top() || keeps_) && length_.watches_confidence();
    row.top = last && by_top() && !row.best;
    row.logits = last && !by_top() && !keeps_;
    if (last && keeps_) row.uniform = draft_number(level);
    rows_.push_back(row);
    path_.push_back(static_cast<int>(i));
  }
  engine::ForwardRequest request;
  request.rows = rows_;
  request.best = 1;
  request.log_sums = true;
  if (!options_.skip.empty()) request.skip = &options_.skip;
  const engine::DistributionDraw draw{
      static_cast<int32_t>(tokens.size()) - 1, level, {&rows_.back().uniform, 1}};
  if (keeps_) {
    request.sampling = &sampling_;
    request.dists = dists_.get();
    request.distribution_draws = {&draw, 1};
  }
  const engine::ForwardResult result = session_->forward(request);
  session_->commit(path_);
  const int last = static_cast<int>(tokens.size()) - 1;
  if (keeps_) {
    const auto row = static_cast<size_t>(last);
    if (rows_.back().best) {
      // Without temperature: from the likeliest token's, and how far below it this one stands.
      const engine::RowScores scores = result.scores(last);
      confidence = std::exp(static_cast<double>(scores.best[0].logit) - scores.log_sum) *
                   std::pow(result.weight[row], sampling_.temperature);
    }
    return result.drawn[row];
  }
  if (rows_.back().top) return id_of(result.top[static_cast<size_t>(last)]);
  if (rows_.back().best) {
    const engine::RowScores scores = result.scores(last);
    confidence = std::exp(static_cast<double>(scores.best[0].logit) - scores.log_sum);
    return id_of(scores.best[0].token);
  }
  const auto logits = result.logits_row(last).first(static_cast<size_t>(options_.common_vocab));
  const int32_t output = choose(logits, level);
  if (length_.watches_confidence())
    confidence = std::exp(static_cast<double>(logits[static_cast<size_t>(output)]) -
                          engine::log_sum(logits));
  return id_of(output);
}

int32_t ModelDrafter::choose(std::span<const float> logits, int level) {
  if (!draws()) return engine::argmax(logits);
  if (rule_ == DraftRule::kGumbel) {
    engine::draw_by_noise(logits, sampling_, chance_.target(position() + level), 1, options_.ids,
                          outputs_, scratch_);
    return outputs_.front();
  }
  std::vector<double>& q = q_[static_cast<size_t>(level)];
  if (options_.ids.empty() && rejects()) {
    engine::warp(logits, sampling_, q, scratch_);
    return engine::draw(q, draft_number(level));
  }
  engine::warp(logits, sampling_, drawn_from_, scratch_);
  if (!rejects()) return engine::draw(drawn_from_, draft_number(level));
  q.assign(static_cast<size_t>(options_.draft_vocab), 0.0);
  for (size_t i = 0; i < drawn_from_.size(); ++i)
    q[static_cast<size_t>(options_.ids[i])] = drawn_from_[i];
  return engine::draw(drawn_from_, draft_number(level));
}

void ModelDrafter::draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) {
  root_ = static_cast<int>(sequence.size()) - 1;
  drafted_ = 0;
  asked_ = std::min({length_.length(), max_depth, session_->capacity() - root_});
  if (!able_ || asked_ <= 0) return;
  // New since the last draft: the root. When all draft tokens were accepted, the last of them comes
  // before it, because it was not fed then. There are more where steps went by without a draft.
  auto fresh = sequence.subspan(static_cast<size_t>(session_->length()));
  EVALRUN_CHECK(!fresh.empty(), "the drafting model is ahead of the text");
  able_ = std::all_of(fresh.begin(), fresh.end(), [this](int32_t t) { return known(t); }) &&
          session_->length() + static_cast<int>(fresh.size()) <= session_->capacity();
  if (!able_) return;
  if (fresh.size() > 2) {
    session_->prefill(fresh.first(fresh.size() - 1));
    fresh = fresh.last(1);
  }
  int node = 0;
  while (drafted_ < asked_) {
    double confidence = 1;
    const int32_t token = feed(fresh, drafted_, confidence);
    node = tree.add(token, node);
    ++drafted_;
    fresh = {&tree.token[static_cast<size_t>(node)], 1};
    if (length_.stops_behind(confidence)) break;
  }
  if (own_ == nullptr) session_->rewind(root_);  // the whole model verifies from here
}

std::span<const double> ModelDrafter::q_of(int node) const {
  if (!rejects() || keeps_) return {};
  return q_[static_cast<size_t>(node) - 1];
}

void ModelDrafter::accepted(std::span<const int> path, int32_t) {
  if (drafted_ == 0) return;  // no draft in this step, nothing to learn or to forget
  length_.verified(drafted_, static_cast<int>(path.size()), asked_);
  drafted_ = 0;
  if (!able_ || own_ == nullptr) return;
  own_->rewind(std::min(own_->length(), root_ + 1 + static_cast<int>(path.size())));
}

}  // namespace evalrun::methods
