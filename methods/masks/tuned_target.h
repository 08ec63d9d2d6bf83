// Targets that an adapter changes: SPACE fine-tunes the model it decodes (scripts/train space), and
// its control is the same training without masks. The low-rank updates are merged into the weights
// once per process and shared by the arms that use them.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "methods/heads/learned_drafter.h"
#include "methods/registration.h"

namespace evalrun::methods {

struct TunedOptions {
  AdapterOptions adapter;
  int mask_id = -1;
  bool in_vocabulary() const { return mask_id >= 0; }
};
Parameters<TunedOptions> tuned_target_parameters();  // adapter=, any_target=, mask_id=
// What they ask for; for MethodInfo::tuned and MethodInfo::files.
std::shared_ptr<const engine::Model> tuned_by_options(const TunedOptions& options,
                                                      const MethodBuildContext& context);
std::map<std::string, std::string> tuned_target_file(const TunedOptions& options,
                                                     const MethodBuildContext& context);

// The target with the adapter's updates merged; null when it has none (then it was trained for
// weights that are changed already). `value` as of adapter=.
std::shared_ptr<const engine::Model> tuned_target(const std::string& value, bool any_target,
                                                  const MethodBuildContext& context);

// A target whose ids from `mask_id` on are never produced: checkpoints published with the mask as a
// row of a larger vocabulary. usage_error when that id belongs to text or ends answers.
std::shared_ptr<const engine::Model> without_mask_ids(int mask_id,
                                                      const MethodBuildContext& context);

}  // namespace evalrun::methods
