// BiTA (Lin et al. 2024, arXiv 2401.12522): the frozen target drafts through mask rows that see a
// trained prefix in every layer. Real rows see neither masks nor prefix, so the output is the
// target's own.
//
// Differs from the released program: keys and values are cached (--no-kv-cache is its setting, for
// both arms); the first group of masks stands in a step of its own instead of inside the prefill;
// sampling by sample and match (the paper's Algorithm 1) and by multi-candidate rejection, beside
// greedy decoding.
#include "methods/builtin_methods.h"
#include "methods/masks/mask_drafter.h"

namespace evalrun::methods {

MethodInfo bita_method() {
  MethodInfo info = mask_method("bita", "upper-triangle:5");
  info.summary = "mask rows that see a trained prefix draft a tree in the target's own forward";
  info.source = "BiTA, Lin et al. 2024, arXiv 2401.12522";
  info.needs = "trained masks and prefix (scripts/train bita, or published BiTA weights)";
  info.notes =
      "The paper's tree is efficient:5 (64 rows with 3 masks), the released scripts' "
      "upper-triangle:5 (52 rows), both with groups=all. The released decoders keep no keys and "
      "values: compare with --no-kv-cache to see what that does to a speedup. groups=auto and =N "
      "are ours.";
  return info;
}

}  // namespace evalrun::methods
