#include "methods/masks/mask_drafter.h"

#include <algorithm>

#include "engine/base/error.h"
#include "methods/heads/learned_drafter.h"

namespace evalrun::methods {

namespace {

struct FrozenTargetOptions {
  AdapterOptions adapter;
  MaskOptions masks;
};

std::unique_ptr<DecodingMethod> build_mask_method(const std::string& name,
                                                  const std::string& fallback_tree,
                                                  const FrozenTargetOptions& options,
                                                  const MethodBuildContext& context) {
  const OpenedAdapter opened = open_adapter(name, options.adapter, context);
  MaskWeights weights = read_mask_weights(*opened.reader, *context.target, options.adapter.format);
  const bool gated = name == "gated_lora";
  const DraftRule rule = options.masks.draft.rule;
  double cost =
      weights.head_cost(*context.target, context.session.device, rule != DraftRule::kArgmax);
  if (gated)
    cost += static_cast<double>(weights.low_rank.bytes()) /
            static_cast<double>(context.target->streamed_bytes());
  MaskPlan plan = choose_mask_plan(name, options.masks, opened.adapter.get(), context,
                                   weights.masks, cost, fallback_tree);
  return make_speculative_method(std::make_unique<MaskDrafter>(MaskParts{
                                     std::move(weights), std::move(plan), rule, gated,
                                     context.target->config().vocab_size, cost, context.slots}),
                                 std::nullopt, rejection_by(rule));
}

}  // namespace

MethodInfo mask_method(const std::string& name, const std::string& fallback_tree) {
  using Shape = FrozenTargetOptions;
  MethodInfo info;
  info.name = name;
  const auto parameters =
      Parameters<Shape>{}
          .add(adapter_parameters(), &Shape::adapter)
          .add(Parameters<MaskOptions>{}.add(draft_parameter(), &MaskOptions::draft), &Shape::masks)
          .add(mask_plan_parameters(), &Shape::masks);
  info.params = parameters.infos();
  info.sampled = parameters.bound([](const Shape& options, const engine::SamplingParams& sampling) {
    return sampled_answers(options.masks.draft.rule, sampling);
  });
  info.alone =
      "its masks hang on the nodes of its own tree in the target's forward, and a joined tree "
      "leaves some of them out";
  info.build = parameters.bound([=](const Shape& options, const MethodBuildContext& context) {
    return build_mask_method(name, fallback_tree, options, context);
  });
  info.files = parameters.bound([=](const Shape& options, const MethodBuildContext& context) {
    return adapter_file(name, options.adapter, context);
  });
  return info;
}

MaskDrafter::MaskDrafter(MaskParts parts)
    : MaskDrafter(std::make_shared<Shared>(std::move(parts)), 0) {}

MaskDrafter::MaskDrafter(std::shared_ptr<Shared> shared, int slot)
    : shared_(std::move(shared)),
      weights_(shared_->parts.weights),
      plan_(shared_->parts.plan),
      tree_(plan_.tree),
      choices_(slot, shared_->dists) {
  groups_.reserve(plan_.groups.size());
}

std::unique_ptr<Drafter> MaskDrafter::another(int slot) const {
  return std::unique_ptr<Drafter>(new MaskDrafter(shared_, slot));
}

void MaskDrafter::start(const GenerationContext& context) {
  target_ = context.target;
  const MaskParts& parts = shared_->parts;
  const int width = tree_.plan().width();
  in_the_forward_ = !weights_.own_head && target_->draws_cheaply() && width <= engine::kMostBest &&
                    plan_.rows() <= engine::kPlannedRows &&
                    rule_in(parts.rule, context.sampling) == DraftRule::kArgmax;
  static const std::vector<int32_t> kAllTokens;
  prompt_ = context.prompt.size();
  position_ = 1;
  choices_.start(context, parts.rule, plan_.masks, plan_.masks, width,
                 in_the_forward_ ? kAllTokens : weights_.ids, parts.vocab_size);
  shared_->head.want_best(choices_.best());
  shared_->head.want_draws(choices_.dists(), choices_.sampling());
  states_.resize(static_cast<size_t>(plan_.masks) * static_cast<size_t>(weights_.head->in()));
  have_ = Have::kNothing;
  skipped_ = 0;
  groups_.clear();
}

void MaskDrafter::draft(std::span<const int32_t> sequence, int max_depth, TokenTree&) {
  position_ = static_cast<int64_t>(sequence.size() - prompt_);
  tree_.clear();
  depth_ = std::min({max_depth, tree_.depth(), plan_.masks - skipped_});
}

bool MaskDrafter::stage(TokenTree& tree) {
  if (have_ == Have::kNothing) return false;
  if (have_ == Have::kStates) {
    first_read_ = shared_->head.add(*target_, states_);
    choices_.clear(position_);
    if (choices_.keeps())
      for (int j = skipped_; j < plan_.masks; ++j)
        shared_->head.ask(choices_.ask(j, first_read_ + j));
    return true;
  }
  for (int level = 1; level <= depth_; ++level)
    tree_.add_level(
        level, choices_, [&](int) { return skipped_ + level - 1; }, tree);
  return false;
}

void MaskDrafter::take(TokenTree&) {
  for (int j = skipped_; j < plan_.masks; ++j)
    note(j, position_, shared_->head.scores(first_read_ + j));
  have_ = Have::kChoices;
}

void MaskDrafter::side_rows(int max_rows, SideRows& rows) {
  groups_.clear();
  const auto add_group = [&](int node) {
    if (rows.size() + plan_.masks > max_rows) return;
    int parent = SideRows::under(node);
    const int first = rows.size();
    for (int j = 0; j < plan_.masks; ++j)
      parent = rows.add(SideRows::mask(weights_.distinct ? j : 0), parent, true);
    groups_.push_back({node, first});
  };
  if (have_ == Have::kNothing) return add_group(0);
  for (const int plan_node : plan_.groups)
    if (const int node = tree_.node(plan_node); node >= 0) add_group(node);
}

SideInputs MaskDrafter::side_inputs() const {
  return {weights_.embeddings(weights_.head->in()),
          weights_.prefix.length > 0 ? &weights_.prefix : nullptr,
          shared_->parts.low_rank ? &weights_.low_rank : nullptr,
          in_the_forward_ ? choices_.best() : 0};
}

// The step without drafts has the root and one group.
LargestStep MaskDrafter::largest_step() const {
  return {.rows = std::max(plan_.rows(), 1 + plan_.masks),
          .draft_cost = shared_->parts.draft_cost,
          .draft_rows = {plan_.masks}};
}

int MaskDrafter::group_at(int node) const {
  for (size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].node == node) return static_cast<int>(g);
  return -1;
}

int MaskDrafter::group_after(std::span<const int> path) {
  skipped_ = 0;
  int group = group_at(path.empty() ? 0 : path.back());
  if (plan_.reuse)
    for (size_t up = path.size(); group < 0 && up-- > 0;) {
      ++skipped_;
      group = group_at(up == 0 ? 0 : path[up - 1]);
    }
  return skipped_ < plan_.masks ? group : -1;
}

// The next draft is that of the masks after the last accepted node.
void MaskDrafter::side_states(const engine::ForwardResult& result, int first_row,
                              std::span<const int> path) {
  have_ = Have::kNothing;
  const int group = group_after(path);
  if (group < 0) return;
  const int first = first_row + groups_[static_cast<size_t>(group)].first;
  if (in_the_forward_) {
    const int64_t next = position_ + static_cast<int64_t>(path.size()) + 1;
    choices_.clear(next);
    for (int j = skipped_; j < plan_.masks; ++j) note(j, next, result.scores(first + j));
    have_ = Have::kChoices;
    return;
  }
  const int d = weights_.head->in();
  for (int j = 0; j < plan_.masks; ++j) {
    const std::span<const float> state = result.hidden_row(first + j);
    std::copy(state.begin(), state.end(), states_.begin() + static_cast<ptrdiff_t>(j) * d);
  }
  have_ = Have::kStates;
}

void MaskDrafter::accepted(std::span<const int> path, int32_t) {
  if (groups_.empty()) have_ = Have::kNothing;  // nor were there states to read
  position_ += static_cast<int64_t>(path.size()) + 1;
  groups_.clear();  // the last step of an answer has no masks, and must not meet these
}

std::span<const double> MaskDrafter::q_of(int node) const {
  return choices_.q(tree_.list_of_node(node));
}

}  // namespace evalrun::methods
