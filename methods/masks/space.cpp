// SPACE (Yi et al. 2024, arXiv 2402.11809): the target is fine-tuned to fill masks; a step verifies
// k candidates and, behind every place where it may stop, computes k masks for the next one.
//
// Lossless against the tuned model: its plain decoding (ar_tuned) is the baseline of these
// rows. The mask of a step is the tree of methods/masks/mask_drafter.h; the paper's equation 6 lets
// the last masks of a group be seen by the first of the next for k >= 3 (its Figure 3 has k = 2).
// On a rejection the next token is drawn from what is left of the target's distribution; the
// paper's Algorithm 1 and its program draw it from the whole distribution, which is not lossless:
// sampling=as_published, for comparison only. The first group stands in a step of its own instead
// of behind the prompt.
#include <algorithm>

#include "engine/base/error.h"
#include "methods/builtin_methods.h"
#include "methods/heads/learned_drafter.h"
#include "methods/masks/mask_drafter.h"
#include "methods/masks/tuned_target.h"

namespace evalrun::methods {
namespace {

constexpr int kMostMasks = 64, kPaperMasks = 5;

bool in_vocabulary(const MethodParams& params) { return params.integer("mask_id") >= 0; }

// A checkpoint published with the mask as an ordinary row of its vocabulary.
MaskWeights weights_in_vocabulary(const MethodParams& params, const engine::Model& target) {
  MaskWeights weights;
  weights.masks = kMostMasks;
  weights.distinct = false;
  weights.embedding.resize(static_cast<size_t>(target.config().d_model));
  target.embed(params.integer("mask_id"), weights.embedding);
  weights.head = target.shared_head();
  return weights;
}

// k=N and its chain; the papers' groups unless others are asked for.
MethodParams with_k(const MethodParams& params) {
  if (params.integer("k") == 0) return params;
  MethodParams changed = params;
  changed.set("tree", fmt::format("chain:{}", params.integer("k")));
  if (params.text("groups") == "auto") changed.set("groups", "all");
  return changed;
}

std::unique_ptr<DecodingMethod> build(const MethodParams& params,
                                      const MethodBuildContext& context) {
  OpenedAdapter opened;
  MaskWeights weights;
  if (in_vocabulary(params)) {
    weights = weights_in_vocabulary(params, *tuned_by_parameters(params, context));
  } else {
    opened = open_adapter("space", params, context);
    weights = read_mask_weights(*opened.reader, *context.target, draft_storage(params));
    weights.bytes -= weights.low_rank.bytes();
    weights.low_rank = {};  // part of the tuned model, and of its size
  }
  const int k = params.integer("k");
  if (k > weights.masks)
    throw base::usage_error(
        fmt::format("space: k={}, but these weights were trained with {} masks", k, weights.masks),
        fmt::format("give k=1 to {}, or train more (scripts/train space --masks {})", weights.masks,
                    k));
  const double cost =
      weights.head_cost(*context.target, context.session.device, params.text("draft") == "drawn");
  MaskPlan plan =
      choose_mask_plan("space", with_k(params), opened.adapter.get(), context, weights.masks, cost,
                       fmt::format("chain:{}", std::min(kPaperMasks, weights.masks)));
  RejectionRule rule;
  rule.accept_scale = params.number("accept_scale");
  rule.whole_bonus = params.text("sampling") == "as_published";
  return make_speculative_method(
      std::make_unique<MaskDrafter>(std::move(weights), std::move(plan),
                                    params.text("draft") == "drawn", false,
                                    context.target->config().vocab_size),
      std::nullopt, rule);
}

void check(const MethodParams& params) {
  if (params.integer("k") > 0 && params.text("tree") != "auto")
    throw base::usage_error("space: k and tree are two ways to say the same",
                            "k=5 is tree=chain:5 with a group after every node");
  const bool drawn = params.text("draft") == "drawn";
  if (!drawn && params.text("sampling") == "as_published")
    throw base::usage_error("space: sampling=as_published needs draft=drawn",
                            "its fault is in how drawn drafts are rejected");
  if (!drawn && params.number("accept_scale") != 1)
    throw base::usage_error("space: accept_scale needs draft=drawn",
                            "drafts that are not drawn have no probability to scale");
}

}  // namespace

MethodInfo space_method() {
  using Type = ParamInfo::Type;
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
  info.params = tuned_target_parameters();
  for (ParamInfo& parameter : adapter_parameters())
    if (parameter.name == "dtype") info.params.push_back(std::move(parameter));
  info.params.push_back({"accept_scale",
                         "1",
                         "accept a drawn draft with min(1, c q/p): lossless up to 1, lossy above",
                         Type::kNumber,
                         0,
                         100,
                         {}});
  info.params.push_back(draft_parameter("drawn"));
  info.params.push_back({"k",
                         "0",
                         "candidates of a step, a chain; 0 = as tree= says",
                         Type::kInt,
                         0,
                         kMostMasks,
                         {}});
  info.params.push_back(
      {"sampling",
       "correct",
       "bonus after a rejection: from what is left of the target's distribution, or from "
       "all of it (as_published, lossy)",
       Type::kText,
       0,
       0,
       {"correct", "as_published"}});
  for (ParamInfo& parameter : mask_plan_parameters()) info.params.push_back(std::move(parameter));
  info.check = check;
  info.build = build;
  info.tuned = tuned_by_parameters;
  info.plain = [](const MethodParams& params) {
    return fmt::format("ar_tuned:adapter={},any_target={},mask_id={}", params.text("adapter"),
                       params.text("any_target"), params.text("mask_id"));
  };
  info.lossless_with = [](const MethodParams& params) {
    const bool lossy =
        params.text("sampling") == "as_published" || params.number("accept_scale") > 1;
    return lossy ? Lossless::kGreedy : Lossless::kBoth;
  };
  info.files = tuned_target_file;
  return info;
}

}  // namespace evalrun::methods
