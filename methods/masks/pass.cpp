// PaSS (Monea, Joulin, Grave 2023, arXiv 2311.13581): the frozen target drafts a chain through L
// trained look-ahead embeddings at the end of its input, and verifies it itself. Look-ahead rows
// see the text and the look-ahead rows before them, and real rows see none of them, so the output
// is the target's own.
//
// In the paper a draft costs two forwards (Algorithm 1). The first one gives the next token, which
// is the target's own and needs no test, and the drafts of the L tokens after it. The second
// verifies these. calls=two is that. With calls=one the verifying forward has a group of look-ahead
// rows after every node, as BiTA has: each forward verifies and drafts. calls=auto takes what pays
// here, with groups after some of the nodes too.
//
// Differs from BiTA: no prefix before the text, and a chain instead of a tree.
// Differs from the paper: calls=one and calls=auto; drafts come from the adapter's draft vocabulary
// where it has one; draft=best, matched and traversal beside the paper's rejection sampling.
#include "methods/builtin_methods.h"
#include "methods/heads/learned_drafter.h"
#include "methods/masks/mask_drafter.h"

namespace evalrun::methods {
namespace {

struct PassOptions {
  AdapterOptions adapter;
  DraftOptions draft;
  DraftCalls calls = DraftCalls::kAuto;
  int look_ahead = 0;
  PassOptions() { draft.rule = DraftRule::kAuto; }
};

// Weights of another method that were given this one's name would draft, and be called PaSS.
void refuse_more_than_embeddings(const AdapterReader& reader) {
  for (const char* name : {"banks.0.k", "prefix", "lora.0.q.a"})
    if (reader.has(name))
      reader.fail(fmt::format("tensor {}", name),
                  "is no part of pass, which trains look-ahead embeddings alone",
                  "train it with scripts/train pass; a prefix is for bita, low-rank updates are "
                  "for gated_lora and space");
}

std::unique_ptr<DecodingMethod> build_pass(const PassOptions& options,
                                           const MethodBuildContext& context) {
  const OpenedAdapter opened = open_adapter("pass", options.adapter, context);
  refuse_more_than_embeddings(*opened.reader);
  MaskWeights weights = read_mask_weights(*opened.reader, *context.target, options.adapter.format);
  const DraftRule rule = options.draft.rule;
  const double cost =
      weights.head_cost(*context.target, context.session.device, rule != DraftRule::kArgmax);
  MaskPlan plan = choose_chain_plan("pass", options.look_ahead, options.calls, *opened.adapter,
                                    context, weights.masks, cost);
  return make_speculative_method(std::make_unique<MaskDrafter>(MaskParts{
                                     std::move(weights), std::move(plan), rule, false,
                                     context.target->config().vocab_size, cost, context.slots}),
                                 std::nullopt, rejection_by(rule));
}

}  // namespace

MethodInfo pass_method() {
  MethodInfo info;
  info.name = "pass";
  info.summary = "trained look-ahead embeddings draft a chain in the target's own forward";
  info.source = "PaSS, Monea, Joulin, Grave 2023, arXiv 2311.13581";
  info.needs = "trained look-ahead embeddings (scripts/train pass)";
  info.notes =
      "The paper's form is calls=two: one forward drafts and gives one token, the next verifies. "
      "tau counts both. calls=one and calls=auto are ours: look-ahead rows after nodes of the "
      "draft, as BiTA has them, so that drafting rides along with verification.";
  using Shape = PassOptions;
  const auto parameters =
      Parameters<Shape>{}
          .add(adapter_parameters(), &Shape::adapter)
          .choice(
              "calls", &Shape::calls,
              {{"auto", DraftCalls::kAuto}, {"one", DraftCalls::kOne}, {"two", DraftCalls::kTwo}},
              "forwards of a draft: two (one drafts, the next verifies, as published), one "
              "(look-ahead rows after every node of the draft), or auto (after as many nodes "
              "as pay at this machine's T(n)/T(1), from none to all; none where the chances "
              "of the chain are unknown)")
          .with(&ParamInfo::steps_at, {"auto", StepReproducibility::kFollowMachine})
          .add(draft_parameter(), &Shape::draft)
          .add("look_ahead", &Shape::look_ahead, {0, kMostMasks},
               "look-ahead tokens L, the longest draft; 0 = as many as pay here, all where the "
               "chances of the chain are unknown")
          .with(&ParamInfo::steps_at, {"0", StepReproducibility::kFollowMachine});
  info.params = parameters.infos();
  info.sampled = parameters.bound([](const Shape& options, const engine::SamplingParams& sampling) {
    return sampled_answers(options.draft.rule, sampling);
  });
  info.alone =
      "its look-ahead rows hang on the nodes of its own draft in the target's forward, and a "
      "joined tree leaves some of them out";
  info.build = parameters.bound(build_pass);
  info.files = parameters.bound([](const Shape& options, const MethodBuildContext& context) {
    return adapter_file("pass", options.adapter, context);
  });
  return info;
}

}  // namespace evalrun::methods
