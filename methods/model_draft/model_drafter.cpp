#include "methods/model_draft/model_drafter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {

ModelDrafter::ModelDrafter(std::unique_ptr<engine::Session> session, const Options& options)
    : ModelDrafter(std::make_shared<DraftModel>(std::move(session), options.slots),
                   std::make_shared<const Options>(options), 0) {}

ModelDrafter::ModelDrafter(std::shared_ptr<DraftModel> model,
                           std::shared_ptr<const Options> options, int slot)
    : model_(std::move(model)),
      shared_options_(std::move(options)),
      options_(*shared_options_),
      slot_(slot),
      length_(options_.length),
      most_(std::min(options_.length.schedule == DraftLengthRule::Schedule::kConstant
                         ? options_.length.k
                         : options_.length.most,
                     (engine::kMaxRows - 1) / std::max(options_.paths, 1))) {
  EVALRUN_CHECK(slot < model_->slots(), "slot {}, built for {}", slot, model_->slots());
  EVALRUN_CHECK(options_.common_vocab >= 1 && options_.common_vocab <= options_.draft_vocab);
  EVALRUN_CHECK(options_.ids.empty() ||
                options_.ids.size() == static_cast<size_t>(options_.common_vocab));
  EVALRUN_CHECK(options_.logits.empty() || options_.logits.size() == options_.ids.size());
  if (options_.foreign != nullptr) {
    EVALRUN_CHECK(model_->own() != nullptr, "a foreign vocabulary in the target's own session");
    foreign_.emplace(*options_.foreign);
    own_tree_.reserve(engine::kMaxRows);
    logits_.reserve(options_.logits.size());
  }
  EVALRUN_CHECK(options_.paths >= 1 && options_.paths <= kMostPaths, "{} paths", options_.paths);
  if (options_.guesses > 0) {
    EVALRUN_CHECK(options_.paths == 1 && !foreign_ && options_.guesses < DraftModel::kMostRows,
                  "{} guesses for {} paths", options_.guesses, options_.paths);
    lookup_.emplace();
  }
  // The root's, and one for each node that goes on.
  q_.resize(static_cast<size_t>(1 + options_.paths * (most_ - 1)));
  rows_.reserve(DraftModel::kMostRows);
  for (std::vector<int>* nodes : {&open_, &held_})
    nodes->reserve(static_cast<size_t>(options_.paths * most_));
  drawn_.reserve(static_cast<size_t>(options_.paths * most_));
}

std::unique_ptr<Drafter> ModelDrafter::another(int slot) const {
  return std::unique_ptr<Drafter>(new ModelDrafter(model_, shared_options_, slot));
}

void ModelDrafter::start(const GenerationContext& context) {
  engine::Session* const own = model_->own();
  session_ = own != nullptr ? own : context.target;
  sequence_ = own != nullptr ? slot_ : context.sequence;
  sampling_ = context.sampling;
  if (!sampling_.greedy() && options_.temperature) sampling_.temperature = *options_.temperature;
  rule_ = rule_in(options_.rule, context.sampling);
  paths_ = options_.rule == DraftRule::kManyPaths && rejects() ? options_.paths : 1;
  target_capacity_ = context.target->capacity();
  chance_ = context.chance;
  prompt_ = context.prompt.size();
  length_.start();
  if (lookup_) lookup_->start(static_cast<int>(context.prompt.size()) + context.max_new);
  drafted_ = 0;
  drafting_ = false;
  keeps_ = can_keep_dists(context);
  if (keeps_)
    model_->dists().make(*session_, static_cast<int>(q_.size()), options_.draft_vocab,
                         options_.ids);
  if (rejects() && !keeps_)
    for (std::vector<double>& row : q_) row.reserve(static_cast<size_t>(options_.draft_vocab));
  able_ = true;
  if (own == nullptr) return;  // the target's cache is all it needs
  own->rewind(0, sequence_);
  if (foreign_) return foreign_->start(*own, sequence_, context.prompt);
  able_ = static_cast<int>(context.prompt.size()) <= own->capacity() &&
          std::all_of(context.prompt.begin(), context.prompt.end(),
                      [this](int32_t token) { return known(token); });
  if (able_) own->prefill(context.prompt, sequence_);
}

// Drafts are drawn on the device by the whole of the draft model's distribution, not where its ids
// are cut to the target's. Nor where the entropy is asked for: it is summed over the logits here.
// Nor where one forward drafts several tokens.
bool ModelDrafter::can_keep_dists(const GenerationContext& context) const {
  return context.may_keep_dists && rejects() && !length_.watches_entropy() && !foreign_ &&
         !lookup_ && session_->options().device == context.target->options().device &&
         options_.common_vocab == session_->model().config().n_logits();
}

engine::ForwardRequest ModelDrafter::request() {
  rows_.clear();
  for (size_t i = 0; i < fresh_.size() + guesses_.size(); ++i) {
    engine::Row row;
    row.token = i < fresh_.size() ? fresh_[i] : guesses_[i - fresh_.size()];
    row.parent = static_cast<int32_t>(i) - 1;
    const bool asked = i + 1 >= fresh_.size();
    row.best = asked && (by_top() || keeps_) && length_.watches_confidence();
    row.top = asked && by_top() && !row.best;
    row.logits = asked && !by_top() && !keeps_;
    if (asked && keeps_) row.uniform = draft_number(0);
    rows_.push_back(row);
  }
  engine::ForwardRequest request;
  request.rows = rows_;
  request.best = 1;
  request.log_sums = true;
  if (!options_.skip.empty()) request.skip = &options_.skip;
  if (keeps_) {
    draw_ = {static_cast<int32_t>(rows_.size()) - 1, dist(forwards_), {&rows_.back().uniform, 1}};
    request.sampling = &sampling_;
    request.dists = model_->dists().store();
    request.distribution_draws = {&draw_, 1};
  }
  return request;
}

int32_t ModelDrafter::read(const engine::ForwardResult& result, size_t row, bool& stops) {
  const int at = static_cast<int>(row);
  if (keeps_) {
    if (rows_[row].best) {
      // Without temperature: from the likeliest token's, and how far below it this one stands.
      const engine::RowScores scores = result.scores(at);
      stops = length_.stops_behind(
          std::exp(static_cast<double>(scores.best[0].logit) - scores.log_sum) *
          std::pow(result.weight[row], sampling_.temperature));
    }
    return result.drawn[row];
  }
  if (rows_[row].top) return id_of(result.top[row]);
  if (rows_[row].best) {
    const engine::RowScores scores = result.scores(at);
    stops =
        length_.stops_behind(std::exp(static_cast<double>(scores.best[0].logit) - scores.log_sum));
    return id_of(scores.best[0].token);
  }
  const std::span<const float> logits = outputs_of(result.logits_row(at));
  const int32_t output = choose(logits);
  if (length_.watches_confidence())
    stops = length_.stops_behind(std::exp(static_cast<double>(logits[static_cast<size_t>(output)]) -
                                          engine::log_sum(logits)));
  if (length_.watches_entropy()) stops = stops || length_.stops_at_entropy(entropy_of(logits));
  return id_of(output);
}

std::span<const float> ModelDrafter::outputs_of(std::span<const float> logits) {
  if (options_.logits.empty()) return logits.first(static_cast<size_t>(options_.common_vocab));
  logits_.clear();
  for (const int32_t id : options_.logits) logits_.push_back(logits[static_cast<size_t>(id)]);
  return logits_;
}

int32_t ModelDrafter::choose(std::span<const float> logits) {
  if (!draws()) return engine::argmax(logits);
  if (rule_ == DraftRule::kGumbel) {
    engine::draw_by_noise(logits, sampling_, chance_.target(position() + level_), 1, options_.ids,
                          outputs_, scratch_);
    return outputs_.front();
  }
  return engine::draw(draw_from(logits), draft_number(0));
}

std::span<const double> ModelDrafter::draw_from(std::span<const float> logits) {
  std::vector<double>& q = q_[static_cast<size_t>(forwards_)];
  if (options_.ids.empty() && rejects()) {
    engine::warp(logits, sampling_, q, scratch_);
    return q;
  }
  engine::warp(logits, sampling_, drawn_from_, scratch_);
  if (!rejects()) return drawn_from_;
  q.assign(static_cast<size_t>(options_.draft_vocab), 0.0);
  for (size_t i = 0; i < drawn_from_.size(); ++i)
    q[static_cast<size_t>(options_.ids[i])] = drawn_from_[i];
  return drawn_from_;
}

void ModelDrafter::draft(std::span<const int32_t> sequence, int max_depth, TokenTree&) {
  root_ = static_cast<int>(sequence.size()) - 1;
  drafted_ = forwards_ = 0;
  drafting_ = false;
  drawn_.clear();
  open_.clear();
  held_.clear();
  asked_ = std::min(length_.length(), max_depth);
  most_text_ = std::min(max_depth, most_);
  if (!(foreign_ ? follow_foreign(sequence) : follow(sequence))) return;
  if (fresh_.size() > (paths_ > 1 ? size_t{DraftModel::kMostRows} : kChainRows)) {
    const std::span<const int32_t> before = fresh_.first(fresh_.size() - 1);
    session_->prefill(before, sequence_);
    if (foreign_) foreign_->computed(before);
    fresh_ = fresh_.last(1);
  }
  node_ = level_ = 0;
  open_.push_back(0);
  drafting_ = true;
  if (lookup_) lookup_->begin(sequence);
}

bool ModelDrafter::follow(std::span<const int32_t> sequence) {
  own_root_ = root_;
  asked_ = std::min(asked_, session_->capacity() - root_);
  if (paths_ > 1) asked_ = std::min(asked_, levels_of_paths());
  if (!able_ || asked_ <= 0) return false;
  // New since the last draft: the root. When all draft tokens were accepted, the last of them comes
  // before it, because it was not fed then. There are more where steps went by without a draft, or
  // where the accepted path is not the last that was drafted.
  const int length = session_->length(sequence_);
  fresh_ = sequence.subspan(static_cast<size_t>(length));
  EVALRUN_CHECK(!fresh_.empty(), "the drafting model is ahead of the text");
  able_ = std::all_of(fresh_.begin(), fresh_.end(), [this](int32_t t) { return known(t); }) &&
          length + static_cast<int>(fresh_.size()) <= session_->capacity();
  return able_;
}

bool ModelDrafter::follow_foreign(std::span<const int32_t> sequence) {
  sequence_text_ = sequence;
  fresh_ = foreign_->follow(sequence);
  if (fresh_.empty()) return false;
  own_root_ = foreign_->last();
  asked_ = std::min(asked_, session_->capacity() - own_root_);
  if (paths_ > 1) asked_ = std::min(asked_, levels_of_paths());
  own_tree_.reset(fresh_.back());
  return asked_ > 0;
}

int ModelDrafter::levels_of_paths() const {
  return (std::min(static_cast<int>(engine::kMaxRows), target_capacity_ - root_) - 1) / paths_;
}

void ModelDrafter::go_on(const TokenTree& tree) {
  node_ = open_.back();
  open_.pop_back();
  if (node_ == 0) return;  // fresh_ is what draft() has found
  level_ = tree.level[static_cast<size_t>(node_)];
  const int before = own_root_ + level_;
  if (session_->length(sequence_) > before) {
    session_->rewind(before, sequence_);
    if (foreign_) foreign_->rewound(before);
  }
  held_.resize(static_cast<size_t>(level_ - 1));
  held_.push_back(node_);
  fresh_ = {&tree.token[static_cast<size_t>(node_)], 1};
}

// As many as the draft may have tokens after the next.
void ModelDrafter::find_guesses(const TokenTree& tree) {
  const auto drafted = std::span<const int32_t>(tree.token).subspan(1, static_cast<size_t>(level_));
  const int room =
      std::min(asked_ - level_ - 1, DraftModel::kMostRows - static_cast<int>(fresh_.size()));
  const auto found = lookup_->guess(drafted, std::min(room, options_.guesses));
  const auto known_end =
      std::find_if_not(found.begin(), found.end(), [this](int32_t t) { return known(t); });
  guesses_ = found.first(static_cast<size_t>(known_end - found.begin()));
}

bool ModelDrafter::stage(TokenTree& tree) {
  if (!drafting_) return false;
  if (!open_.empty()) {
    go_on(foreign_ ? own_tree_ : tree);
    if (lookup_) find_guesses(tree);
    part_ = model_->add(*session_, request(), sequence_);
    return true;
  }
  drafting_ = false;
  if (by_text()) add_text(tree);
  // The whole model verifies from here.
  if (model_->own() == nullptr) session_->rewind(root_, sequence_);
  return false;
}

void ModelDrafter::take(TokenTree& tree) {
  if (foreign_) foreign_->computed(fresh_);
  const engine::ForwardResult result = model_->part(part_);
  if (paths_ > 1) {
    read_paths(result, tree);
    ++forwards_;
    return;
  }
  for (size_t row = fresh_.size() - 1;; ++row) {
    bool stops = false;
    const int32_t token = read(result, row, stops);
    add_node(tree, token, 1, stops);
    ++forwards_;
    const size_t guess = row + 1 - fresh_.size();
    if (guess == guesses_.size()) return;
    if (open_.empty() || guesses_[guess] != token) break;
    node_ = open_.back();  // which the session has computed
    open_.pop_back();
    held_.push_back(node_);
    ++level_;
  }
  session_->rewind(own_root_ + level_ + 1, sequence_);  // without the wrong guesses
}

void ModelDrafter::add_node(TokenTree& tree, int32_t token, uint32_t paths, bool stops) {
  const int node = foreign_ ? own_tree_.add(own_, node_) : tree.add(token, node_);
  if (by_text())
    stops = stops || options_.foreign->ends_draft(own_);
  else if (foreign_)
    tree.add(token, node_);  // the same node
  drawn_.push_back({forwards_, {level_, std::countr_zero(paths)}, paths});
  drafted_ = std::max(drafted_, level_ + 1);
  if (level_ + 1 < asked_ && !stops) open_.push_back(node);
}

// From here on the draft is what the tree has of it.
void ModelDrafter::add_text(TokenTree& tree) {
  const auto drafted = std::span<const int32_t>(own_tree_.token).subspan(1);
  options_.foreign->retokenize(sequence_text_, drafted, static_cast<size_t>(most_text_), text_);
  int node = 0;
  for (const int32_t token : text_) node = tree.add(token, node);
  drafted_ = static_cast<int>(text_.size());
  drawn_.assign(text_.size(), {});
}

// One token for each path through the current node; paths that draw the same one stay together.
// Whether they go on depends on the token alone.
void ModelDrafter::read_paths(const engine::ForwardResult& result, TokenTree& tree) {
  const std::span<const float> logits =
      outputs_of(result.logits_row(static_cast<int>(rows_.size()) - 1));
  const std::span<const double> law = draw_from(logits);
  const double log_sum = length_.watches_confidence() ? engine::log_sum(logits) : 0;
  const bool unsure = length_.watches_entropy() && length_.stops_at_entropy(entropy_of(logits));
  const uint32_t here = node_ == 0 ? (uint32_t{1} << paths_) - 1 : drawn(node_).paths;
  std::array<int32_t, kMostPaths> outputs{};
  for (int path = 0; path < paths_; ++path)
    if (((here >> path) & 1) != 0)
      outputs[static_cast<size_t>(path)] = engine::draw(law, draft_number(path));
  for (uint32_t left = here; left != 0;) {
    const int32_t output = outputs[static_cast<size_t>(std::countr_zero(left))];
    uint32_t with_it = 0;
    for (int path = 0; path < paths_; ++path)
      if (((left >> path) & 1) != 0 && outputs[static_cast<size_t>(path)] == output)
        with_it |= uint32_t{1} << path;
    bool stops = unsure;
    if (length_.watches_confidence())
      stops = stops || length_.stops_behind(std::exp(
                           static_cast<double>(logits[static_cast<size_t>(output)]) - log_sum));
    add_node(tree, id_of(output), with_it, stops);
    left &= ~with_it;
  }
}

std::span<const double> ModelDrafter::q_of(int node) const {
  if (!rejects() || keeps_) return {};
  return q_[static_cast<size_t>(drawn(node).forward)];
}

void ModelDrafter::accepted(std::span<const int> path, int32_t) {
  if (drafted_ == 0) return;  // no draft in this step, nothing to learn or to forget
  length_.verified(drafted_, static_cast<int>(path.size()), asked_);
  drafted_ = 0;
  engine::Session* const own = model_->own();
  if (!able_ || own == nullptr || foreign_) return;
  const auto shared = std::mismatch(path.begin(), path.end(), held_.begin(), held_.end()).first;
  own->rewind(std::min(own->length(sequence_), root_ + 1 + static_cast<int>(shared - path.begin())),
              sequence_);
}

}  // namespace evalrun::methods
