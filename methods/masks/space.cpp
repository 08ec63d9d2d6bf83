// SPACE (Yi et al. 2024, arXiv 2402.11809): the target is fine-tuned to fill masks; a step verifies
// k candidates and, after every place where it may stop, computes k masks for the next one.
//
// Lossless against the tuned model: its plain decoding (ar_tuned) is the baseline of these
// rows. The mask of a step is the tree of methods/masks/mask_drafter.h; the paper's equation 6 lets
// the last masks of a group be seen by the first of the next for k >= 3 (its Figure 3 has k = 2).
// On a rejection the next token is drawn from what is left of the target's distribution; the
// paper's Algorithm 1 and its program draw it from the whole distribution, which is not lossless:
// sampling=as_published, for comparison only. The first group stands in a step of its own instead
// of after the prompt.
#include <algorithm>

#include "engine/base/error.h"
#include "methods/builtin_methods.h"
#include "methods/heads/learned_drafter.h"
#include "methods/masks/mask_drafter.h"
#include "methods/masks/tuned_target.h"

namespace evalrun::methods {
namespace {

constexpr int kPaperMasks = 5;

struct SpaceOptions {
  TunedOptions tuned;
  double accept_scale = 1;
  int k = 0;
  bool as_published = false;  // sampling=
  MaskOptions masks;
  SpaceOptions() { masks.draft.rule = DraftRule::kAuto; }
};

// A checkpoint published with the mask as an ordinary row of its vocabulary.
MaskWeights weights_in_vocabulary(int mask_id, const engine::Model& target) {
  MaskWeights weights;
  weights.masks = kMostMasks;
  weights.distinct = false;
  weights.embedding.resize(static_cast<size_t>(target.config().d_model));
  target.embed(mask_id, weights.embedding);
  weights.head = target.shared_head();
  return weights;
}

// k=N and its chain; the papers' groups unless others are asked for.
MaskOptions with_k(MaskOptions masks, int k) {
  if (k == 0) return masks;
  masks.draft.tree = fmt::format("chain:{}", k);
  if (masks.groups == "auto") masks.groups = "all";
  return masks;
}

// What changes how drafts are rejected asks for rejection, whatever the run's sampler is.
DraftRule rule_of(const SpaceOptions& options) {
  const bool rejects = options.as_published || options.accept_scale != 1;
  return rejects ? DraftRule::kRejection : options.masks.draft.rule;
}

std::unique_ptr<DecodingMethod> build_space(const SpaceOptions& options,
                                            const MethodBuildContext& context) {
  OpenedAdapter opened;
  MaskWeights weights;
  if (options.tuned.in_vocabulary()) {
    weights =
        weights_in_vocabulary(options.tuned.mask_id, *tuned_by_options(options.tuned, context));
  } else {
    opened = open_adapter("space", options.tuned.adapter, context);
    weights = read_mask_weights(*opened.reader, *context.target, options.tuned.adapter.format);
    weights.bytes -= weights.low_rank.bytes();
    weights.low_rank = {};  // part of the tuned model, and of its size
  }
  const int k = options.k;
  if (k > weights.masks)
    throw base::usage_error(
        fmt::format("space: k={}, but these weights were trained with {} masks", k, weights.masks),
        fmt::format("give k=1 to {}, or train more (scripts/train space --masks {})", weights.masks,
                    k));
  const DraftRule rule = rule_of(options);
  const double cost =
      weights.head_cost(*context.target, context.session.device, rule != DraftRule::kArgmax);
  MaskPlan plan = choose_mask_plan("space", with_k(options.masks, k), opened.adapter.get(), context,
                                   weights.masks, cost,
                                   fmt::format("chain:{}", std::min(kPaperMasks, weights.masks)));
  RejectionRule rejection = rejection_by(rule);
  rejection.accept_scale = options.accept_scale;
  rejection.whole_bonus = options.as_published;
  return make_speculative_method(std::make_unique<MaskDrafter>(MaskParts{
                                     std::move(weights), std::move(plan), rule, false,
                                     context.target->config().vocab_size, cost, context.slots}),
                                 std::nullopt, rejection);
}

void check_space(const SpaceOptions& options) {
  if (options.k > 0 && options.masks.draft.tree != "auto")
    throw base::usage_error("space: k and tree are two ways to say the same",
                            "k=5 is tree=chain:5 with a group after every node");
  if (options.masks.draft.rule == DraftRule::kAuto) return;
  if (options.as_published)
    throw base::usage_error("space: sampling=as_published needs draft=drawn",
                            "its fault is in how drawn drafts are rejected");
  if (options.accept_scale != 1)
    throw base::usage_error("space: accept_scale needs draft=drawn",
                            "drafts that are not drawn have no probability to scale");
}

}  // namespace

MethodInfo space_method() {
  MethodInfo info;
  info.name = "space";
  info.summary = "a target tuned to fill masks drafts in its own forward (changes the target)";
  info.source = "SPACE, Yi et al. 2024, arXiv 2402.11809";
  info.needs = "a tuned target (scripts/train space), or a checkpoint with a mask token (mask_id)";
  info.notes =
      "Lossless against the tuned model, whose plain decoding is ar_tuned: speedup and same "
      "tokens of these rows are against that arm, quality against the original. The paper's "
      "setting is k=5 (36 rows a step); k=0 takes what pays here. Its sampling is "
      "draft=drawn,sampling=as_published and changes the output's distribution.";
  using Shape = SpaceOptions;
  const auto parameters =
      Parameters<Shape>{}
          .add(tuned_target_parameters(), &Shape::tuned)
          .add(Parameters<TunedOptions>{}.add(format_parameter(), &TunedOptions::adapter),
               &Shape::tuned)
          .add("accept_scale", &Shape::accept_scale, {0, 100},
               "accept a drawn draft with min(1, c q/p): lossless up to 1, lossy above")
          .add(Parameters<MaskOptions>{}.add(draft_parameter(), &MaskOptions::draft), &Shape::masks)
          .add("k", &Shape::k, {0, kMostMasks}, "candidates of a step, a chain; 0 = as tree= says")
          .choice("sampling", &Shape::as_published, {{"correct", false}, {"as_published", true}},
                  "bonus after a rejection: from what is left of the target's distribution, or "
                  "from all of it (as_published, lossy)")
          .add(mask_plan_parameters(), &Shape::masks);
  info.params = parameters.infos();
  info.check = parameters.bound(check_space);
  info.alone = "it changes the target, and other drafters are not made for the changed one";
  info.build = parameters.bound(build_space);
  info.tuned = parameters.bound([](const Shape& options, const MethodBuildContext& context) {
    return tuned_by_options(options.tuned, context);
  });
  info.plain = parameters.bound([](const Shape& options) {
    const auto& [adapter, mask_id] = options.tuned;
    return fmt::format("ar_tuned:adapter={},any_target={},mask_id={}", adapter.adapter,
                       adapter.any_target, mask_id);
  });
  info.sampled = parameters.bound([](const Shape& options, const engine::SamplingParams& sampling) {
    return sampled_answers(rule_of(options), sampling);
  });
  info.lossless_with = parameters.bound([](const Shape& options) {
    return options.as_published || options.accept_scale > 1 ? Lossless::kGreedy : Lossless::kBoth;
  });
  info.files = parameters.bound([](const Shape& options, const MethodBuildContext& context) {
    return tuned_target_file(options.tuned, context);
  });
  return info;
}

}  // namespace evalrun::methods
