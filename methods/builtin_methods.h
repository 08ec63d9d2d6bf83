// The built-in methods. A new one is a source file that defines its MethodInfo, and three lines: in
// its family's CMakeLists.txt, here and in registry.cpp (docs/add-a-method.md). Tests, `list` and
// the runner find it from there.
#pragma once
#include "methods/registration.h"

namespace evalrun::methods {

MethodInfo autoregressive_method();
MethodInfo bita_method();
MethodInfo eagle_method();
MethodInfo eagle2_method();
MethodInfo eagle3_method();
MethodInfo falcon_method();
MethodInfo gated_lora_method();
MethodInfo jacobi_method();
MethodInfo joined_drafts_method();
MethodInfo logitspec_method();
MethodInfo lookahead_method();
MethodInfo medusa_method();
MethodInfo ngram_mod_method();
MethodInfo padding_ablation();
MethodInfo pass_method();
MethodInfo pia_method();
MethodInfo prompt_lookup_method();
MethodInfo recycling_method();
MethodInfo retrieval_method();
MethodInfo sam_method();
MethodInfo self_draft_method();
MethodInfo self_speculative_method();
MethodInfo space_method();
MethodInfo speculative_sampling_method();
MethodInfo stand_method();
MethodInfo suffix_method();
MethodInfo synthetic_acceptance();
MethodInfo tuned_autoregressive_method();

}  // namespace evalrun::methods
