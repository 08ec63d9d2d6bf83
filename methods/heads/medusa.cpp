// Medusa (Cai et al. 2024, arXiv 2401.10774): heads on the target's final hidden state, one per
// depth, each a stack of residual blocks in front of an output matrix. Head k at position t
// predicts token t + 2 + k whatever the tokens between are, so one look drafts a whole tree.
#include <algorithm>

#include "methods/builtin_methods.h"
#include "methods/heads/learned_drafter.h"
#include "methods/heads/medusa_heads.h"
#include "methods/heads/static_draft.h"

namespace evalrun::methods {
namespace {

class MedusaDrafter final : public Drafter {
 public:
  MedusaDrafter(std::unique_ptr<MedusaHeads> heads, RankTree tree, bool draws, int vocab_size)
      : heads_(std::move(heads)), tree_(std::move(tree)), draws_(draws), vocab_size_(vocab_size) {}

  engine::FeatureSet needs() const override { return {.hidden = true, .residual_layers = {}}; }
  void start(const GenerationContext& context) override {
    target_ = context.target;
    choices_.start(context, draws_, tree_.depth(), tree_.depth(), tree_.plan().width(),
                   heads_->ids(), vocab_size_);
  }
  void draft(std::span<const int32_t>, int max_depth, TokenTree& tree) override {
    const int depth = std::min(max_depth, tree_.depth());
    const engine::MatrixView known = target_->hidden_features();
    const auto look = [&](int head, const engine::RowScores& scores) {
      choices_.note(head, scores);
    };
    choices_.clear();
    const auto state = known.row(known.rows - 1);
    if (choices_.keeps())
      heads_->draw(
          *target_, state, depth, choices_.dists(), choices_.sampling(),
          [&](int head) { return choices_.ask(head, 0); }, look);
    else
      heads_->look(*target_, state, depth, choices_.best(), look);
    tree_.clear();
    for (int level = 1; level <= depth; ++level)
      tree_.add_level(
          level, choices_, [&](int) { return level - 1; }, tree);
  }
  std::span<const double> q_of(int node) const override {
    return choices_.q(tree_.list_of_node(node));
  }
  engine::DistributionStore* dists() const override { return choices_.dists(); }
  int distribution_of(int node) const override { return choices_.dist(tree_.list_of_node(node)); }
  size_t extra_parameter_bytes() const override { return heads_->bytes(); }

 private:
  std::unique_ptr<MedusaHeads> heads_;
  StaticTree tree_;
  const bool draws_;
  const int vocab_size_;
  RankedChoices choices_;
  engine::Session* target_ = nullptr;
};

std::optional<TypicalAcceptance> typical_acceptance(const MethodParams& params) {
  if (params.text("accept") != "typical") return std::nullopt;
  return TypicalAcceptance{params.number("epsilon"), params.number("delta")};
}

std::unique_ptr<DecodingMethod> build(const MethodParams& params,
                                      const MethodBuildContext& context) {
  const OpenedAdapter opened = open_adapter("medusa", params, context);
  auto heads =
      std::make_unique<MedusaHeads>(*opened.reader, *context.target, draft_storage(params));
  const double cost = heads->relative_cost();
  RankTree tree = choose_tree(
      "medusa", params, *opened.adapter, context, heads->n_heads(), [cost](int) { return cost; },
      "mc_sim_7b_63");
  auto drafter = std::make_unique<MedusaDrafter>(std::move(heads), std::move(tree),
                                                 params.text("draft") == "drawn",
                                                 context.target->config().vocab_size);
  return make_speculative_method(std::move(drafter), typical_acceptance(params));
}

}  // namespace

MethodInfo medusa_method() {
  using Type = ParamInfo::Type;
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
  info.params = adapter_parameters();
  info.params.push_back(
      {"accept",
       "exact",
       "exact, or typical: when sampling, a draft token passes with probability above "
       "min(epsilon, delta exp(-entropy)); lossy",
       Type::kText,
       0,
       0,
       {"exact", "typical"}});
  info.params.push_back({"epsilon", "0.09", "of typical acceptance", Type::kNumber, 0, 1, {}});
  info.params.push_back({"delta", "0.3", "of typical acceptance", Type::kNumber, 0, 1, {}});
  info.params.push_back(draft_parameter("best"));
  info.params.push_back(tree_parameter());
  info.build = build;
  info.lossless_with = [](const MethodParams& params) {
    return params.text("accept") == "typical" ? Lossless::kGreedy : Lossless::kBoth;
  };
  info.files = [](const MethodParams& params, const MethodBuildContext& context) {
    return adapter_file("medusa", params, context);
  };
  return info;
}

}  // namespace evalrun::methods
