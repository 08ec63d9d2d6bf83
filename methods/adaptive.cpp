#include "methods/adaptive.h"

#include <algorithm>

#include "engine/base/error.h"
#include "methods/idle_backoff.h"

namespace evalrun::methods {
namespace {

constexpr double kMostLoss = 1.03;  // where nothing is ever accepted (adaptive.h)
// Drafts that cost something may lose this share of an answer, and this share of what goes by
// plainly.
constexpr double kTrialShare = 0.02, kAllowance = 0.005;
constexpr int kAdvance = 64;  // tokens whose share is granted at the start
constexpr double kTrial = 8;  // steps side rows must be affordable for, to begin with

class AdaptiveDrafter final : public Drafter {
 public:
  AdaptiveDrafter(std::unique_ptr<Drafter> drafter, const engine::RowCostTable* costs)
      : drafter_(std::move(drafter)),
        costs_(costs),
        price_(costs),
        free_(drafter_->draft_cost() == 0) {
    EVALRUN_CHECK(!free_ || drafter_->group() == nullptr, "forwards that cost nothing");
    full_.reserve(engine::kMaxRows);
    watched_.reserve(engine::kMaxRows);
    choice_.reserve(engine::kMaxRows);
  }

  std::unique_ptr<Drafter> another(int slot) const override {
    return std::make_unique<AdaptiveDrafter>(drafter_->another(slot), costs_);
  }

  void start(const GenerationContext& context) override {
    GenerationContext passed_on = context;
    if (free_) passed_on.may_keep_dists = false;  // a part of a draft is no draw
    drafter_->start(passed_on);
    acceptance_.start(*drafter_);
    seen_ = context.prompt.size() + 1;
    watched_.forget();
    backoff_.start(drafter_->rarest_query());
    side_ = 0;
    // Not all of max_new: an answer may end long before.
    allowance_ = (free_ ? kFreeRows - 1 : kTrialShare) * std::min(context.max_new, kAdvance);
    credit_ = allowance_;
    tree_size_ = 1;
    side_tried_ = false;
    lag_ = 1;
    drafted_ = depth_ = 0;
    asked_ = false;
    interval_ = 1;  // at once: nothing has to be caught up with yet
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    const int riding = side_;
    settle(static_cast<int>(sequence.size() - seen_));
    for (; seen_ < sequence.size(); ++seen_) watched_.see(sequence[seen_], acceptance_);
    if (!free_) {
      const int depth = worthwhile_depth(max_depth);
      asked_ = depth > 0;
      if (asked_) drafter_->draft(sequence, depth, tree);
      return;
    }
    if (!backoff_.due(sequence)) return;
    full_.tree.reset(sequence.back());
    drafter_->draft(sequence, max_depth, full_.tree);
    full_.rate(*drafter_);
    watched_.watch(full_);
    // Beside as many side rows as there were last.
    choice_.choose(
        full_.tree, [this](int node) { return acceptance_.of(full_, node); },
        {.riding = riding, .deepest = drafter_->max_accepted()}, tree);
    tree_size_ = tree.size();
    backoff_.asked(sequence, full_.tree);
    backoff_.note_used(tree_size_ > 1);
  }

  DraftGroup* group() override { return drafter_->group(); }
  bool stage(TokenTree& tree) override {
    if (!asked_) return false;
    if (drafter_->stage(tree)) return true;
    asked_ = false;
    drafted_ = tree.drafted();
    depth_ = tree.depth();
    spent_ = price_(1 + drafted_) + cost_of(drafted_);
    return false;
  }
  void take(TokenTree& tree) override { drafter_->take(tree); }

  void side_rows(int max_rows, SideRows& rows) override {
    const double spare = credit_ / (side_tried_ ? 1 : kTrial);
    const double limit = credit_ > 0 ? std::max(kFreeRows, 1 + spare) : 1;
    const int affordable = price_.affordable(limit) - tree_size_;
    drafter_->side_rows(std::min(max_rows, affordable), rows);
    side_ = rows.size();
  }
  void side_tops(int32_t root, std::span<const int32_t> rows) override {
    drafter_->side_tops(root, rows);
  }
  TargetWants wants() const override {
    return free_ && tree_size_ == 1 ? drafter_->idle_wants() : drafter_->wants();
  }
  void learn(std::span<const int32_t> sequence, const TokenTree& tree, std::span<const int> path,
             TargetAnswers& answers) override {
    drafter_->learn(sequence, tree, path, answers);
  }
  engine::FeatureSet needs() const override { return drafter_->needs(); }
  LargestStep largest_step() const override {
    LargestStep step = drafter_->largest_step();
    step.limit = kMostLoss;
    return step;
  }
  int max_accepted() const override { return drafter_->max_accepted(); }
  std::span<const double> q_of(int node) const override {
    return free_ ? std::span<const double>() : drafter_->q_of(node);
  }
  DraftDraw draw_of(int node) const override { return drafter_->draw_of(node); }
  Siblings siblings() const override { return drafter_->siblings(); }
  engine::DistributionStore* dists() const override { return drafter_->dists(); }
  int distribution_of(int node) const override { return drafter_->distribution_of(node); }
  void accepted(std::span<const int> path, int32_t bonus) override {
    if (!free_) {
      const int n = static_cast<int>(path.size());
      for (int depth = 1; depth <= std::min(depth_, n + 1); ++depth)
        acceptance_.note(0, depth, 0, depth <= n);
      if (probing_ && drafted_ > 0) interval_ = n > 0 ? 1 : std::min(2 * interval_, kLastProbe);
    }
    drafter_->accepted(path, bonus);
  }
  size_t extra_parameter_bytes() const override { return drafter_->extra_parameter_bytes(); }
  size_t extra_kv_bytes() const override { return drafter_->extra_kv_bytes(); }
  void add_kept(KeptMemory& kept) const override { drafter_->add_kept(kept); }

 private:
  static constexpr int kLastProbe = 128;

  // Of n drafted tokens, in plain steps; what went by without a draft is computed first.
  double cost_of(int n) const {
    const double catch_up = lag_ > 1 && drafter_->must_catch_up() ? price_(lag_) : 0;
    return drafter_->draft_cost() * (n + catch_up);
  }

  int worthwhile_depth(int max_depth) {
    int best = 0;
    double expected = 1, joint = 1, best_speed = 1;
    for (int d = 1; d <= max_depth; ++d) {
      joint *= acceptance_.of(0, d, 0);
      expected += joint;
      const double speed = expected / (price_(1 + d) + drafter_->draft_cost() * d);
      if (speed > best_speed) {
        best_speed = speed;
        best = d;
      }
      if (joint < 1e-3) break;
    }
    probing_ = best == 0;
    if (probing_ && lag_ < interval_) return 0;
    int depth = probing_ ? std::min(max_depth, 1) : best;
    // At worst nothing of it is accepted.
    while (depth > 0 && credit_ < price_(1 + depth) + cost_of(depth) - 1) --depth;
    return depth;
  }

  // What the last step earned or lost against plain decoding, where it tried something expensive.
  void settle(int emitted) {
    allowance_ += (free_ ? kFreeRows - 1 : kAllowance) * emitted;
    if (side_ > 0) {  // gains pay back what was lost, and finance no more than that
      credit_ = std::min(credit_ + emitted - price_(tree_size_ + side_), allowance_);
      side_tried_ = true;
    }
    if (!free_) {
      lag_ += emitted;
      if (drafted_ > 0) lag_ = 1;
      if (drafted_ > 0)
        credit_ += emitted - spent_;
      else if (credit_ < allowance_)
        credit_ += kAllowance * emitted;
    }
    drafted_ = depth_ = 0;
    side_ = 0;
    tree_size_ = 1;
  }

  std::unique_ptr<Drafter> drafter_;
  const engine::RowCostTable* costs_;
  RowPrice price_;
  bool free_;
  Acceptance acceptance_;
  RatedDraft full_;
  WatchedDraft watched_;
  DraftChoice choice_{price_};
  IdleBackoff backoff_;
  size_t seen_ = 0;               // tokens of the text that are accounted for
  int side_ = 0, tree_size_ = 1;  // rows of the last step
  // Plain steps that may still be lost, and that could be lost so far if nothing was gained.
  double credit_ = 0, allowance_ = 0;
  bool side_tried_ = false;
  double spent_ = 0;                          // by the last step that drafted
  int depth_ = 0;                             // of its draft
  int drafted_ = 0, lag_ = 1, interval_ = 1;  // lag_: tokens since the last draft
  bool probing_ = false;
  bool asked_ = false;  // the drafter, which has not completed its draft
};

}  // namespace

std::unique_ptr<Drafter> make_adaptive(std::unique_ptr<Drafter> drafter,
                                       const engine::RowCostTable* costs) {
  return std::make_unique<AdaptiveDrafter>(std::move(drafter), costs);
}

std::unique_ptr<DecodingMethod> finish_method(std::unique_ptr<Drafter> drafter, bool adaptive,
                                              const MethodBuildContext& context,
                                              RejectionRule rule) {
  if (adaptive) drafter = make_adaptive(std::move(drafter), context.row_cost);
  return make_speculative_method(std::move(drafter), std::nullopt, rule);
}

}  // namespace evalrun::methods
