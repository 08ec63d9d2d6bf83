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

std::unique_ptr<DecodingMethod> build(const MethodParams& params,
                                      const MethodBuildContext& context) {
  if (!context.session.kv_cache)
    throw base::usage_error("self_spec: needs the KV cache",
                            "the draft is kept in the target's cache until it is verified");
  ModelDrafter::Options drafting;
  drafting.length.k = params.integer("k");
  drafting.length.most = params.integer("k");
  drafting.length.threshold = params.number("threshold");
  drafting.length.adapt_threshold = params.boolean("adaptive_threshold");
  drafting.length.carry_threshold = params.boolean("carry_threshold");
  drafting.draft_vocab = drafting.common_vocab = context.target->config().vocab_size;
  drafting.point_mass = params.text("verify") == "match";
  drafting.skip = skip_set(params.text("attention"), params.text("mlp"), context.target->config());
  drafting.cost = kept_share(drafting.skip, context.target->config());
  return finish_method(std::make_unique<ModelDrafter>(nullptr, drafting), params, context);
}

}  // namespace

MethodInfo self_speculative_method() {
  using Type = ParamInfo::Type;
  MethodInfo info;
  info.name = "self_spec";
  info.summary = "the target drafts for itself with sublayers left out";
  info.source = "Zhang et al. 2024, arXiv 2309.08168, sections 3 and 4";
  info.needs = "nothing (a skip set for the model: evalrun tune self_spec)";
  info.notes =
      "Draft & Verify, \"Self-SD\" in some papers. Their rows use sets found by Bayesian "
      "optimisation for the model at hand, k=12, a threshold from 0.6 that adapts and is carried "
      "from prompt to prompt. verify=rejection is the released program's \"sss\", match its "
      "\"essg\".";
  const std::string list = "layers (0-based) drafted without their ";
  info.params = {
      adaptive_parameter(),
      {"adaptive_threshold",
       "true",
       "the threshold follows the acceptance rate",
       Type::kBool,
       0,
       0,
       {}},
      {"attention",
       "auto",
       list + "attention: auto, none or a list like 8-15+20",
       Type::kText,
       0,
       0,
       {}},
      {"carry_threshold",
       "false",
       "the threshold goes on from answer to answer; runs then depend on order",
       Type::kBool,
       0,
       0,
       {},
       Steps::kCarryState,
       "true"},
      {"k", "12", "longest draft, in tokens", Type::kInt, 1, engine::kMaxRows - 1, {}},
      {"mlp", "auto", list + "MLP: auto, none or a list like 8-15+20", Type::kText, 0, 0, {}},
      {"threshold",
       "0.6",
       "drafting stops after a token the draft gives less probability; 0 = never",
       Type::kNumber,
       0,
       1,
       {}},
      {"verify",
       "rejection",
       "when sampling: rejection of drawn drafts, or match of likely ones",
       Type::kText,
       0,
       0,
       {"rejection", "match"}},
  };
  info.check = [](const MethodParams& params) {
    for (const char* key : {"attention", "mlp"}) check_layer_list(key, params.text(key));
  };
  info.build = build;
  return info;
}

}  // namespace evalrun::methods
