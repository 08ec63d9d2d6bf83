#include "engine/answers.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/rejection.h"
#include "engine/sampling_arith.h"

namespace evalrun::engine {

void Answers::begin(const ForwardRequest& request, int vocab) {
  bool any_best = false;
  for (const Row& row : request.rows) {
    any_best |= row.best;
    EVALRUN_CHECK(row.uniform < 1, "a uniform number of {}", row.uniform);
    EVALRUN_CHECK(row.uniform < 0 || (request.sampling != nullptr && !request.sampling->greedy()),
                  "a draw without sampling parameters");
  }
  EVALRUN_CHECK(!any_best || (request.best >= 1 && request.best <= kMostBest),
                "the best {} of 1..{}", request.best, kMostBest);
  n_best_ = any_best ? std::min(request.best, vocab) : 0;
  wants_sums_ = request.log_sums;
  for (std::vector<int32_t>* list : {&top_, &drawn_, &passed_, &best_of_})
    list->assign(request.rows.size(), -1);
  weight_.assign(request.rows.size(), -1);
  best_.clear(), log_sums_.clear(), drawn_tokens_.clear();
  next_draw_ = next_rejection_test_ = 0;
}

void Answers::add_best(int row, std::span<const TokenLogit> best, double log_sum) {
  EVALRUN_CHECK(best.size() == static_cast<size_t>(n_best_), "the best {} of {}", best.size(),
                n_best_);
  best_of_[static_cast<size_t>(row)] =
      static_cast<int32_t>(best_.size() / static_cast<size_t>(n_best_));
  best_.insert(best_.end(), best.begin(), best.end());
  if (wants_sums_) log_sums_.push_back(log_sum);
}

void Answers::answer(const ForwardRequest& request, int row, std::span<const float> logits) {
  const Row& r = request.rows[static_cast<size_t>(row)];
  if (r.best) {
    top_k(logits, n_best_, row_best_, scratch_);
    add_best(row, row_best_, wants_sums_ ? log_sum(logits) : 0);
  }
  if (r.top) set_top(row, r.best ? row_best_.front().token : argmax(logits));
  if (r.uniform >= 0) answer_by_dist(request, row, logits);
}

namespace {

void keep_and_draw(HostDistributions& dists, const DistributionDraw& draw,
                   std::span<const uint64_t> mass, uint64_t total, std::vector<int32_t>& tokens) {
  dists.keep(draw.slot, mass, total);
  draw_without_replacement(dists.dist(draw.slot), draw.uniforms, tokens);
}

}  // namespace

void Answers::answer_by_dist(const ForwardRequest& request, int row,
                             std::span<const float> logits) {
  const double uniform = request.rows[static_cast<size_t>(row)].uniform;
  const bool draws = next_draw_ < request.distribution_draws.size() &&
                     request.distribution_draws[next_draw_].row == row;
  const bool tries = next_rejection_test_ < request.rejection_tests.size() &&
                     request.rejection_tests[next_rejection_test_].row == row;
  if (!draws && !tries) return set_drawn(row, draw(logits, *request.sampling, uniform, scratch_));
  auto* dists = dynamic_cast<HostDistributions*>(request.dists);
  EVALRUN_CHECK(dists != nullptr && !(draws && tries),
                "row {}: distributions of a device, or two tasks", row);
  const uint64_t total = dist_masses(logits, *request.sampling, mass_, scratch_);
  if (draws) {
    const DistributionDraw& d = request.distribution_draws[next_draw_++];
    keep_and_draw(*dists, d, mass_, total, tokens_);
    set_drawn(row, tokens_[0]);
    set_weight(row, dists->dist(d.slot).mass[static_cast<size_t>(tokens_[0])]);
    for (const int32_t token : tokens_) add_drawn_token(token);
    return;
  }
  const RejectionTest& t = request.rejection_tests[next_rejection_test_++];
  const RejectionOutcome verdict =
      try_children(mass_, total, dists->dist(t.slot), t.children, request.independent, uniform);
  set_passed(row, verdict.passed);
  set_drawn(row, verdict.token);
}

void Answers::set_weight(int row, uint64_t mass) {
  weight_[static_cast<size_t>(row)] = static_cast<double>(mass) * kMassUnit;
}

void Answers::publish(ForwardResult& result) const {
  result.top = top_;
  result.drawn = drawn_;
  result.passed = passed_;
  result.drawn_tokens = drawn_tokens_;
  result.weight = weight_;
  result.best = {{}, best_, n_best_, log_sums_};
  result.best_of = best_of_;
}

std::span<const int32_t> HostScores::draw(MatrixView logits, const DistributionDraws& draws) {
  auto* dists = dynamic_cast<HostDistributions*>(draws.dists);
  EVALRUN_CHECK(dists != nullptr, "distributions of a device");
  tokens_.clear();
  for (const DistributionDraw& d : draws.rows) {
    const uint64_t total = dist_masses(logits.row(d.row), *draws.sampling, mass_, scratch_);
    keep_and_draw(*dists, d, mass_, total, row_tokens_);
    tokens_.insert(tokens_.end(), row_tokens_.begin(), row_tokens_.end());
  }
  return tokens_;
}

Scores HostScores::of(MatrixView logits, int n_best) {
  EVALRUN_CHECK(n_best >= 0 && n_best <= kMostBest, "the best {} of 1..{}", n_best, kMostBest);
  if (n_best == 0) return {logits, {}, 0, {}};
  best_.clear();
  for (int i = 0; i < logits.rows; ++i) {
    top_k(logits.row(i), n_best, row_best_, scratch_);
    best_.insert(best_.end(), row_best_.begin(), row_best_.end());
  }
  return {{}, best_, std::min(n_best, logits.cols), {}};
}

RowScores Scores::row(int i) const {
  RowScores row;
  if (logits.data != nullptr) row.logits = logits.row(i);
  row.best = best.subspan(static_cast<size_t>(i) * static_cast<size_t>(n_best),
                          static_cast<size_t>(n_best));
  if (!log_sums.empty()) row.log_sum = log_sums[static_cast<size_t>(i)];
  return row;
}

RowScores ForwardResult::scores(int row) const {
  const auto i = static_cast<size_t>(row);
  if (best_of[i] >= 0) return best.row(best_of[i]);
  RowScores scores;
  scores.logits = logits_row(row);
  return scores;
}

namespace {

template <typename T>
std::span<const T> part_of(std::span<const T> values, int first, int n) {
  EVALRUN_CHECK(
      first >= 0 && n >= 0 && static_cast<size_t>(first) + static_cast<size_t>(n) <= values.size(),
      "{} from {} on of {}", n, first, values.size());
  return values.subspan(static_cast<size_t>(first), static_cast<size_t>(n));
}

}  // namespace

// Places inside logits, hidden states and best stay those of the whole.
ForwardResult slice(const ForwardResult& whole, int first, int n, int first_drawn_token,
                    int n_drawn_tokens) {
  EVALRUN_CHECK(whole.residual.empty(), "a part of a result with residual streams");
  ForwardResult part = whole;
  part.logits_of = part_of(whole.logits_of, first, n);
  part.hidden_of = part_of(whole.hidden_of, first, n);
  part.top = part_of(whole.top, first, n);
  part.drawn = part_of(whole.drawn, first, n);
  part.passed = part_of(whole.passed, first, n);
  part.weight = part_of(whole.weight, first, n);
  part.best_of = part_of(whole.best_of, first, n);
  part.drawn_tokens = part_of(whole.drawn_tokens, first_drawn_token, n_drawn_tokens);
  return part;
}

}  // namespace evalrun::engine
