// Medusa (Cai et al. 2024, arXiv 2401.10774): heads on the target's final hidden state, one per
// depth, each a stack of residual blocks before an output matrix. Head k at position t predicts
// token t + 2 + k whatever the tokens between are. So one look drafts a whole tree.
#include <algorithm>

#include "methods/builtin_methods.h"
#include "methods/heads/learned_drafter.h"
#include "methods/heads/medusa_heads.h"
#include "methods/heads/static_draft.h"

namespace evalrun::methods {
namespace {

class MedusaDrafter final : public Drafter {
 public:
  MedusaDrafter(std::shared_ptr<MedusaHeads> heads, RankTree tree, DraftRule rule, int vocab_size,
                std::shared_ptr<SlotDists> dists, int slot)
      : heads_(std::move(heads)),
        tree_(std::move(tree)),
        rule_(rule),
        vocab_size_(vocab_size),
        dists_(std::move(dists)),
        choices_(slot, dists_) {}
  std::unique_ptr<Drafter> another(int slot) const override {
    return std::make_unique<MedusaDrafter>(heads_, tree_.plan(), rule_, vocab_size_, dists_, slot);
  }

  engine::FeatureSet needs() const override { return {.hidden = true, .residual_layers = {}}; }
  void add_kept(KeptMemory&) const override {}
  void start(const GenerationContext& context) override {
    target_ = context.target;
    sequence_ = context.sequence;
    prompt_ = context.prompt.size();
    choices_.start(context, rule_, tree_.depth(), tree_.depth(), tree_.plan().width(),
                   heads_->ids(), vocab_size_);
    heads_->want_best(choices_.best());
    heads_->want_draws(choices_.dists(), choices_.sampling());
  }
  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree&) override {
    position_ = static_cast<int64_t>(sequence.size() - prompt_);
    depth_ = std::min(max_depth, tree_.depth());
    place_ = -1;
    choices_.clear(position_);
    tree_.clear();
  }
  DraftGroup* group() override { return heads_.get(); }
  bool stage(TokenTree& tree) override {
    if (place_ < 0) {
      const engine::MatrixView known = target_->hidden_features(sequence_);
      place_ = heads_->add(*target_, known.row(known.rows - 1), depth_);
      if (choices_.keeps())
        for (int head = 0; head < depth_; ++head) heads_->ask(place_, head, choices_.ask(head, 0));
      return true;
    }
    for (int level = 1; level <= depth_; ++level)
      tree_.add_level(
          level, choices_, [&](int) { return level - 1; }, tree);
    return false;
  }
  void take(TokenTree&) override {
    for (int head = 0; head < depth_; ++head)
      choices_.note(head, position_ + head, heads_->scores(place_, head));
  }
  LargestStep largest_step() const override {
    return {
        .rows = 1 + tree_.plan().size(), .draft_cost = heads_->relative_cost(), .draft_rows = {1}};
  }
  std::span<const double> q_of(int node) const override {
    return choices_.q(tree_.list_of_node(node));
  }
  DraftDraw draw_of(int node) const override { return tree_.draw_of_node(node); }
  engine::DistributionStore* dists() const override { return choices_.dists(); }
  int distribution_of(int node) const override { return choices_.dist(tree_.list_of_node(node)); }
  size_t extra_parameter_bytes() const override { return heads_->bytes(); }

 private:
  const std::shared_ptr<MedusaHeads> heads_;
  StaticTree tree_;
  const DraftRule rule_;
  const int vocab_size_;
  const std::shared_ptr<SlotDists> dists_;
  RankedChoices choices_;
  engine::Session* target_ = nullptr;
  int sequence_ = 0;   // of the target
  size_t prompt_ = 0;  // tokens
  // Of the current draft.
  int64_t position_ = 0;  // of its first token
  int depth_ = 0;
  int place_ = -1;  // in the look; -1 = not looked yet
};

struct MedusaOptions {
  AdapterOptions adapter;
  bool typical = false;  // accept=typical
  double epsilon = 0.09, delta = 0.3;
  DraftOptions draft;
};

std::unique_ptr<Drafter> medusa_drafter(const MedusaOptions& options,
                                        const MethodBuildContext& context) {
  const OpenedAdapter opened = open_adapter("medusa", options.adapter, context);
  auto heads =
      std::make_shared<MedusaHeads>(*opened.reader, *context.target, options.adapter.format);
  const double cost = heads->relative_cost();
  RankTree tree = choose_tree(
      "medusa", options.draft.tree, *opened.adapter, context, heads->n_heads(),
      [cost](int) { return cost; }, "mc_sim_7b_63");
  return std::make_unique<MedusaDrafter>(std::move(heads), std::move(tree), options.draft.rule,
                                         context.target->config().vocab_size,
                                         std::make_shared<SlotDists>(context.slots), 0);
}

std::unique_ptr<DecodingMethod> build_medusa(const MedusaOptions& options,
                                             const MethodBuildContext& context) {
  std::optional<TypicalAcceptance> typical;
  if (options.typical) typical = TypicalAcceptance{options.epsilon, options.delta};
  return make_speculative_method(medusa_drafter(options, context), typical,
                                 rejection_by(options.draft.rule));
}

}  // namespace

MethodInfo medusa_method() {
  MethodInfo info;
  info.name = "medusa";
  info.version = "2";
  info.summary = "heads on the last hidden state draft a tree, each its own depth";
  info.source = "Medusa, Cai et al. 2024, arXiv 2401.10774 (Medusa-1)";
  info.needs = "trained heads (scripts/train medusa, or published medusa_lm_head weights)";
  info.notes =
      "The paper's trees have 63 nodes (tree=mc_sim_7b_63, vicuna_7b_stage1, ...). Its typical "
      "acceptance changes the output distribution: accept=typical rows are lossy and in no ranking "
      "of lossless methods. Medusa-2 checkpoints are lossless against their own fine-tuned model "
      "only.";
  using Shape = MedusaOptions;
  const auto parameters =
      Parameters<Shape>{}
          .add(adapter_parameters(), &Shape::adapter)
          .choice("accept", &Shape::typical, {{"exact", false}, {"typical", true}},
                  "exact, or typical: when sampling, a draft token passes with probability above "
                  "min(epsilon, delta exp(-entropy)); lossy")
          .add("epsilon", &Shape::epsilon, {0, 1}, "of typical acceptance")
          .add("delta", &Shape::delta, {0, 1}, "of typical acceptance")
          .add(draft_parameter(), &Shape::draft)
          .add(tree_parameter(), &Shape::draft);
  info.params = parameters.infos();
  info.sampled = parameters.bound([](const Shape& options, const engine::SamplingParams& sampling) {
    return sampled_answers(options.draft.rule, sampling);
  });
  info.drafter = parameters.bound(medusa_drafter);
  info.build = parameters.bound(build_medusa);
  info.lossless_with = parameters.bound(
      [](const Shape& options) { return options.typical ? Lossless::kGreedy : Lossless::kBoth; });
  info.files = parameters.bound([](const Shape& options, const MethodBuildContext& context) {
    return adapter_file("medusa", options.adapter, context);
  });
  return info;
}

}  // namespace evalrun::methods
