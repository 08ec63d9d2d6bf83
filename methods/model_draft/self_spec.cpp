// Self-speculative decoding, "Draft & Verify" (Zhang et al. 2024, arXiv 2309.08168): the target
// with some sublayers left out drafts, reading the whole model's keys and values of the committed
// text; the whole model verifies. No other weights, no other cache: draft tokens are committed to
// the target's session under the skip set and rewound before the verification.
//
// Which sublayers may go depends on model and machine: `evalrun tune self_spec` searches a set.
// attention=auto and mlp=auto are a rule of thumb in the manner of the published sets (most of the
// upper half's attention, every second of its MLPs).
#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/model_draft/model_drafter.h"
#include "methods/model_draft/skip_layers.h"

namespace evalrun::methods {
namespace {

struct SelfSpecOptions {
  bool adaptive = false;
  bool adaptive_threshold = true, carry_threshold = false;
  std::string attention = "auto", mlp = "auto";
  int k = 12;
  int paths = 2;
  double threshold = 0.6;
  DraftRule rule = DraftRule::kAuto;
};

std::unique_ptr<Drafter> self_spec_drafter(const SelfSpecOptions& options,
                                           const MethodBuildContext& context) {
  if (!context.session.kv_cache)
    throw base::usage_error("self_spec: needs the KV cache",
                            "the draft is kept in the target's cache until it is verified");
  ModelDrafter::Options drafting;
  drafting.length.k = drafting.length.most = options.k;
  drafting.length.threshold = options.threshold;
  drafting.length.adapt_threshold = options.adaptive_threshold;
  drafting.length.carry_threshold = options.carry_threshold;
  drafting.draft_vocab = drafting.common_vocab = context.target->config().vocab_size;
  drafting.rule = options.rule;
  if (options.rule == DraftRule::kManyPaths) drafting.paths = options.paths;
  drafting.slots = context.slots;
  drafting.skip = skip_set(options.attention, options.mlp, context.target->config());
  drafting.cost = kept_share(drafting.skip, context.target->config());
  return std::make_unique<ModelDrafter>(nullptr, drafting);
}

}  // namespace

MethodInfo self_speculative_method() {
  MethodInfo info;
  info.name = "self_spec";
  info.summary = "the target drafts for itself with sublayers left out";
  info.source = "Zhang et al. 2024, arXiv 2309.08168, sections 3 and 4";
  info.needs = "nothing (a skip set for the model: evalrun tune self_spec)";
  info.notes =
      "Draft & Verify, \"Self-SD\" in some papers. Their rows use sets found by Bayesian "
      "optimisation for the model at hand, k=12, a threshold from 0.6 that adapts and is carried "
      "from prompt to prompt. verify=rejection is the released program's \"sss\", argmax "
      "its \"essg\".";
  const std::string list = "layers (0-based) drafted without their ";
  using Shape = SelfSpecOptions;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("adaptive_threshold", &Shape::adaptive_threshold,
               "the threshold follows the acceptance rate")
          .add("attention", &Shape::attention,
               list + "attention: auto, none or a list like 8-15+20")
          .add("carry_threshold", &Shape::carry_threshold,
               "the threshold goes on from answer to answer; runs then depend on order")
          .with(&ParamInfo::steps_at, {"true", StepReproducibility::kCarryState})
          .add("k", &Shape::k, {1, engine::kMaxRows - 1}, "longest draft, in tokens")
          .add("mlp", &Shape::mlp, list + "MLP: auto, none or a list like 8-15+20")
          .add("paths", &Shape::paths, {1, kMostPaths}, kPathsText)
          .add("threshold", &Shape::threshold, {0, 1},
               "drafting stops after a token the draft gives less probability; 0 = never")
          .choice("verify", &Shape::rule, kRules, kRuleText);
  info.params = parameters.infos();
  info.check = parameters.bound([](const Shape& options) {
    check_layer_list("attention", options.attention);
    check_layer_list("mlp", options.mlp);
  });
  draft_by(info, parameters, self_spec_drafter);
  info.sampled = parameters.bound([](const Shape& options, const engine::SamplingParams& sampling) {
    return sampled_answers(options.rule, sampling);
  });
  return info;
}

}  // namespace evalrun::methods
