#include "engine/base/error.h"
#include "methods/builtin_methods.h"

namespace evalrun::methods {

const base::Registry<MethodInfo>& method_registry() {
  static const base::Registry<MethodInfo> registry = [] {
    base::Registry<MethodInfo> r("method");
    // clang-format off
    for (MethodInfo info : {  // one a line, whatever their number
             autoregressive_method(),
             bita_method(),
             eagle_method(),
             eagle2_method(),
             eagle3_method(),
             falcon_method(),
             gated_lora_method(),
             jacobi_method(),
             joined_drafts_method(),
             logitspec_method(),
             lookahead_method(),
             medusa_method(),
             ngram_mod_method(),
             padding_ablation(),
             pass_method(),
             pia_method(),
             prompt_lookup_method(),
             recycling_method(),
             retrieval_method(),
             sam_method(),
             self_draft_method(),
             self_speculative_method(),
             space_method(),
             speculative_sampling_method(),
             stand_method(),
             suffix_method(),
             synthetic_acceptance(),
             tuned_autoregressive_method(),
         }) {
      // clang-format on
      const std::string name = info.name;
      r.add(name, std::move(info));
    }
    return r;
  }();
  return registry;
}

std::shared_ptr<const engine::Model> decoded_model(const MethodSpec& spec,
                                                   const MethodBuildContext& context) {
  if (!spec.info->tuned) return context.target;
  std::shared_ptr<const engine::Model> tuned = spec.info->tuned(spec.params, context);
  return tuned == nullptr ? context.target : tuned;
}

const char* to_string(Lossless lossless) {
  switch (lossless) {
    case Lossless::kNone:
      return "none";
    case Lossless::kGreedy:
      return "greedy";
    case Lossless::kBoth:
      return "both";
  }
  EVALRUN_CHECK(false, "unknown losslessness {}", static_cast<int>(lossless));
}

}  // namespace evalrun::methods
