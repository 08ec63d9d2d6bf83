// Autoregressive decoding of a target that an adapter changed: the baseline of methods that decode
// that target.
#include "methods/builtin_methods.h"
#include "methods/masks/tuned_target.h"

namespace evalrun::methods {

MethodInfo tuned_autoregressive_method() {
  MethodInfo info;
  info.name = "ar_tuned";
  info.summary = "plain autoregressive decoding of a tuned target (the baseline of space)";
  info.source = "definition";
  info.needs = "a tuned target (scripts/train space), or a checkpoint with a mask token (mask_id)";
  info.notes =
      "Added to a run by itself where space needs it. Its own speedup and same tokens are against "
      "itself, its quality against the original target: adapter= takes controls that were trained "
      "without masks (scripts/train space --p-ar 1), too.";
  const auto parameters = tuned_target_parameters();
  info.params = parameters.infos();
  info.alone = "it drafts nothing";
  info.build = autoregressive_method().build;
  info.tuned = parameters.bound(tuned_by_options);
  info.files = parameters.bound(tuned_target_file);
  return info;
}

}  // namespace evalrun::methods
