// Gated low-rank adapters on mask rows (after Samragh et al. 2025, arXiv 2507.11851, "Your LLM
// Knows the Future"): mask rows run through low-rank updates of every matrix, real rows do not, so
// the output is the target's own. Differs from the paper: no sampler head, no consistency loss,
// drafts are a tree of the masks' own choices. No row of the BiTA or SPACE papers.
#include "methods/builtin_methods.h"
#include "methods/masks/mask_drafter.h"

namespace evalrun::methods {

MethodInfo gated_lora_method() {
  MethodInfo info = mask_method("gated_lora", "efficient:3");
  info.summary = "mask rows with low-rank updates of their own draft in the target's own forward";
  info.source = "Samragh et al. 2025, arXiv 2507.11851 (gated LoRA, without its sampler head)";
  info.needs = "trained masks and updates (scripts/train gated_lora)";
  info.notes =
      "The paper's abstract claims nearly 5 times on code and maths and almost 2.5 on chat, with "
      "its sampler head, which is not built here. groups=auto and =N are ours, as for bita.";
  return info;
}

}  // namespace evalrun::methods
