// Gated low-rank adapters on mask rows (after Samragh et al. 2025, arXiv 2507.11851, "Your LLM
// Knows the Future"): mask rows run through low-rank updates of every matrix, real rows do not, so
// the output is the target's own. Differs from the paper: no sampler head, drafts are a tree of the
// masks' own choices. No row of the BiTA or SPACE papers.
#include "methods/builtin_methods.h"
#include "methods/learned_drafter.h"
#include "methods/mask_drafter.h"

namespace evalrun::methods {

MethodInfo gated_lora_method() {
  MethodInfo info;
  info.name = "gated_lora";
  info.summary = "mask rows with low-rank updates of their own draft in the target's own forward";
  info.source = "Samragh et al. 2025, arXiv 2507.11851 (gated LoRA, without its sampler head)";
  info.needs = "trained masks and updates (scripts/train gated_lora)";
  info.notes =
      "The paper fine-tunes an 8B model with 8 masks and reports acceptance, not wall time. "
      "groups=auto and =N are ours, as for bita.";
  info.params = adapter_parameters();
  info.params.push_back(draft_parameter("best"));
  for (ParamInfo& parameter : mask_plan_parameters()) info.params.push_back(std::move(parameter));
  info.build = [](const MethodParams& params, const MethodBuildContext& context) {
    return build_mask_method("gated_lora", params, context, "efficient:3");
  };
  info.files = [](const MethodParams& params, const MethodBuildContext& context) {
    return adapter_file("gated_lora", params, context);
  };
  return info;
}

}  // namespace evalrun::methods
