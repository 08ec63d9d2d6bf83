#include "methods/speculative_method.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {

SpeculativeMethod::SpeculativeMethod(std::unique_ptr<Drafter> drafter,
                                     std::optional<TypicalAcceptance> typical, RejectionRule rule)
    : drafter_(std::move(drafter)), typical_(typical), rule_(rule) {
  EVALRUN_CHECK(drafter_ != nullptr);
}

std::unique_ptr<DecodingMethod> SpeculativeMethod::another(int slot) const {
  auto method = std::make_unique<SpeculativeMethod>(drafter_->another(slot), typical_, rule_);
  method->hook_ = hook_;
  method->may_keep_dists_ = may_keep_dists_;
  return method;
}

void SpeculativeMethod::start(const GenerationContext& context) {
  context_ = context;
  // Uniforms are one a level there, so every rule but the plain one stays with the host.
  context_.may_keep_dists = may_keep_dists_ && !context.sampling.greedy() &&
                            context.sampling.sampler == engine::Sampler::kInverse && !typical_ &&
                            rule_.accept_scale == 1 && !rule_.whole_bonus && !rule_.whole_paths &&
                            context.target->draws_cheaply();
  // Kept, as its buffers have their sizes.
  if (verifier_)
    verifier_->sample_as(context.sampling);
  else
    verifier_.emplace(context.sampling, drafter_->siblings(), typical_, rule_);
  uniform_.emplace(context.chance);
  step_ = 0;
  // A step emits at most what the loop still wants, so nothing below grows later.
  sequence_.clear();
  sequence_.reserve(context.prompt.size() + static_cast<size_t>(context.max_new));
  sequence_.assign(context.prompt.begin(), context.prompt.end());
  sequence_.push_back(context.first_token);
  tree_.reserve(engine::kMaxRows);
  rows_.reserve(engine::kMaxRows);
  side_.token.reserve(engine::kMaxRows);
  side_.parent.reserve(engine::kMaxRows);
  side_.read.reserve(engine::kMaxRows);
  tested_.reserve(engine::kMaxRows);
  path_.reserve(engine::kMaxRows);
  uniforms_.reserve(engine::kMaxRows);
  verifier_->reserve(engine::kMaxRows);
  rejection_tests_.clear();
  if (context_.may_keep_dists) {
    rejection_tests_.reserve(engine::kMaxRows);
    for (std::vector<int32_t>* list : {&children_, &first_child_, &dist_})
      list->reserve(engine::kMaxRows + 1);
  }
  drafter_->start(context_);
}

LargestStep SpeculativeMethod::largest_step() const {
  LargestStep step = drafter_->largest_step();
  step.rows = std::min(step.rows, static_cast<int>(engine::kMaxRows));
  return step;
}

SpeculativeMethod::Budget SpeculativeMethod::budget() const {
  const int emitted = static_cast<int>(sequence_.size() - context_.prompt.size());
  const int wanted = context_.max_new - emitted;
  const int left = context_.target->capacity() - context_.target->length(context_.sequence);
  const int room = std::min(left, static_cast<int>(engine::kMaxRows));
  EVALRUN_CHECK(wanted > 0 && room > 0, "a step with {} tokens wanted and room for {}", wanted,
                room);
  return {std::min(wanted, room) - 1, room};
}

bool SpeculativeMethod::target_draws() const {
  if (context_.sampling.greedy() || typical_ || !context_.target->draws_cheaply()) return false;
  for (int node = 1; node < tree_.size(); ++node)
    if (!drafter_->q_of(node).empty()) return false;
  return true;
}

// In order of nodes; children_ by their parents, those of one in order.
void SpeculativeMethod::add_rejection_tests(engine::ForwardRequest& request) {
  const auto n = static_cast<size_t>(tree_.size());
  first_child_.assign(n + 1, 0);
  for (size_t i = 1; i < n; ++i) ++first_child_[static_cast<size_t>(tree_.parent[i]) + 1];
  for (size_t i = 0; i < n; ++i) first_child_[i + 1] += first_child_[i];
  children_.resize(n - 1);
  dist_.assign(n, kNoChild);
  for (size_t i = 1; i < n; ++i) {
    const auto parent = static_cast<size_t>(tree_.parent[i]);
    const int dist = drafter_->distribution_of(static_cast<int>(i));
    EVALRUN_CHECK(dist_[parent] == kNoChild || dist_[parent] == dist,
                  "node {}: children from several distributions", parent);
    dist_[parent] = dist;
    children_[static_cast<size_t>(first_child_[parent]++)] = tree_.token[i];
  }
  rejection_tests_.clear();
  int begin = 0;  // first_child_ has moved on to the ends
  for (size_t node = 0; node < n; ++node) {
    const int end = first_child_[node];
    if (dist_[node] >= 0)
      rejection_tests_.push_back(
          {static_cast<int32_t>(node), dist_[node],
           std::span<const int32_t>(children_).subspan(static_cast<size_t>(begin),
                                                       static_cast<size_t>(end - begin))});
    begin = end;
  }
  request.dists = drafter_->dists();
  request.rejection_tests = rejection_tests_;
  request.independent = drafter_->siblings() == Siblings::kIndependent;
}

void SpeculativeMethod::begin_step() {
  limit_ = budget();
  position_ = static_cast<int64_t>(sequence_.size() - context_.prompt.size());
  uniform_->begin_step(position_);
  tree_.reset(sequence_.back());
  side_.clear();
  if (limit_.depth > 0) drafter_->draft(sequence_, limit_.depth, tree_);
}

bool SpeculativeMethod::stage() {
  if (limit_.depth > 0 && drafter_->stage(tree_)) return true;
  EVALRUN_CHECK(tree_.depth() <= limit_.depth, "draft of depth {}, at most {} asked for",
                tree_.depth(), limit_.depth);
  // By place, never by value: what is left was drawn as if it were all.
  tree_.truncate(limit_.rows);
  // Side rows help later steps only, and before the last token there is no later step.
  if (limit_.depth > 0) drafter_->side_rows(limit_.rows - tree_.size(), side_);
  EVALRUN_CHECK(side_.size() <= limit_.rows - tree_.size(), "{} side rows, room for {}",
                side_.size(), limit_.rows - tree_.size());
  return false;
}

void SpeculativeMethod::add_side_rows(const SideInputs& inputs) {
  for (size_t i = 0; i < side_.token.size(); ++i) {
    engine::Row row;
    row.parent =
        side_.parent[i] < 0 ? SideRows::under(side_.parent[i]) : tree_.size() + side_.parent[i];
    row.logits = false;
    if (side_.token[i] >= 0) {
      row.token = side_.token[i];
      row.top = side_.read[i] != 0;
    } else {
      row.embedding = SideRows::mask(side_.token[i]);
      row.prefix = inputs.prefix != nullptr;
      row.low_rank = inputs.low_rank != nullptr;
      (inputs.best > 0 ? row.best : row.hidden) = side_.read[i] != 0;
    }
    rows_.push_back(row);
  }
}

engine::ForwardRequest SpeculativeMethod::rows() {
  ahead_ = target_draws();
  EVALRUN_CHECK(ahead_ || drafter_->dists() == nullptr,
                "drafts of kept distributions, and nobody to try them");
  if (ahead_) {
    uniforms_.clear();
    for (int level = 0; level <= tree_.depth(); ++level)
      uniforms_.push_back(uniform_->target(level));
  }
  rows_.clear();
  const TargetWants wanted = wants();
  for (size_t i = 0; i < tree_.token.size(); ++i) {
    engine::Row row;
    row.token = tree_.token[i];
    row.parent = tree_.parent[i];
    row.top = context_.sampling.greedy() || ahead_;
    row.logits = !row.top;
    row.best = wanted.best > 0 && !row.logits;
    if (ahead_) row.uniform = uniforms_[static_cast<size_t>(tree_.level[i])];
    rows_.push_back(row);
  }
  const SideInputs inputs = drafter_->side_inputs();
  add_side_rows(inputs);
  engine::ForwardRequest request;
  request.rows = rows_;
  request.sampling = &context_.sampling;
  if (drafter_->dists() != nullptr) add_rejection_tests(request);
  request.best = wanted.best;
  request.log_sums = wanted.log_sums;
  if (std::ranges::any_of(side_.token, [](int32_t token) { return token < 0; })) {
    request.embeddings = inputs.embeddings;
    request.prefix = inputs.prefix;
    request.low_rank = inputs.low_rank;
    EVALRUN_CHECK(inputs.best == 0 || wanted.best == 0,
                  "the best {} of masks beside the best {} of drafts", inputs.best, wanted.best);
    if (inputs.best > 0) request.best = inputs.best;
  }
  return request;
}

// The children of every node on the path: those were the questions the verification asked.
void SpeculativeMethod::note_tested() {
  tested_.clear();
  // Nothing is tested beyond the most that a step accepts.
  const size_t levels = std::min(path_.size(), static_cast<size_t>(drafter_->max_accepted()));
  for (size_t level = 0; level < levels; ++level) {
    const int accepted = level + 1 < path_.size() ? path_[level + 1] : -1;
    int rank = 0;
    for (int i = path_[level] + 1; i < tree_.size(); ++i) {
      if (tree_.parent[static_cast<size_t>(i)] != path_[level]) continue;
      tested_.push_back({static_cast<int>(level) + 1, rank++, i == accepted});
    }
  }
}

std::span<const int> SpeculativeMethod::accept(const engine::ForwardResult& result) {
  const auto logits_of = [&result](int node) { return result.logits_row(node); };
  const auto top_of = [&result](int node) { return result.top[static_cast<size_t>(node)]; };
  const auto drawn_of = [&result](int node) { return result.drawn[static_cast<size_t>(node)]; };
  const auto tried = [&](int node) {
    const auto at =
        std::lower_bound(rejection_tests_.begin(), rejection_tests_.end(), node,
                         [](const engine::RejectionTest& t, int n) { return t.row < n; });
    if (at == rejection_tests_.end() || at->row != node) return TargetView::kNotTried;
    return result.passed[static_cast<size_t>(node)];
  };
  const TargetView target = ahead_ ? TargetView::with_draws(top_of, drawn_of, tried)
                            : context_.sampling.greedy() ? TargetView::with_top(top_of)
                                                         : TargetView::with_logits(logits_of);
  const auto q_of = [this](int node) { return drafter_->q_of(node); };
  const Verifier::Result verdict =
      verifier_->verify(tree_, target, q_of, *uniform_, drafter_->max_accepted());
  path_.assign(1, 0);
  path_.insert(path_.end(), verdict.path.begin(), verdict.path.end());
  bonus_ = verdict.bonus;
  if (hook_) hook_({tree_, target, path_, bonus_, step_, context_, *drafter_, rule_, position_});
  note_tested();
  return path_;
}

void SpeculativeMethod::read_side_rows(const engine::ForwardResult& result) {
  const auto accepted = std::span<const int>(path_).subspan(1);
  if (const TargetWants wanted = wants(); wanted.any()) {
    answers_.begin(result, tree_, context_.sampling, *uniform_, wanted);
    drafter_->learn(sequence_, tree_, accepted, answers_);
  }
  if (side_.size() == 0) return;
  const int32_t root = result.top[0] >= 0 ? result.top[0] : engine::argmax(result.logits_row(0));
  drafter_->side_tops(root, result.top.subspan(static_cast<size_t>(tree_.size())));
  drafter_->side_states(result, tree_.size(), accepted);
}

StepOutcome SpeculativeMethod::finish_step() {
  const auto accepted = std::span<const int>(path_).subspan(1);
  const size_t before = sequence_.size();
  for (int node : accepted) sequence_.push_back(tree_.token[static_cast<size_t>(node)]);
  sequence_.push_back(bonus_);
  drafter_->accepted(accepted, bonus_);
  ++step_;

  StepOutcome outcome;
  outcome.tokens = std::span<const int32_t>(sequence_).subspan(before);
  outcome.rows = tree_.size() + side_.size();
  outcome.drafted = tree_.drafted();
  outcome.drafted_depth = tree_.depth();
  outcome.accepted = static_cast<int>(accepted.size());
  outcome.tested = tested_;
  return outcome;
}

SpeculativeMethod& with_verdicts(DecodingMethod& method, const std::string& what) {
  DecodingMethod* innermost = &method;
  while (DecodingMethod* inner = innermost->wrapped()) innermost = inner;
  auto* speculative = dynamic_cast<SpeculativeMethod*>(innermost);
  if (speculative == nullptr)
    throw base::usage_error(fmt::format("{} is not possible for this method", what),
                            "it needs a method made of a drafter and the common verifier");
  return *speculative;
}

std::unique_ptr<DecodingMethod> make_speculative_method(std::unique_ptr<Drafter> drafter,
                                                        std::optional<TypicalAcceptance> typical,
                                                        RejectionRule rule) {
  return std::make_unique<SpeculativeMethod>(std::move(drafter), typical, rule);
}

}  // namespace evalrun::methods
