// Targets that an adapter changes: SPACE fine-tunes the model it decodes (scripts/train space), and
// its control is the same training without masks. The low-rank updates are merged into the weights
// once per process and shared by the arms that use them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "methods/heads/adapter.h"
#include "methods/method.h"

namespace evalrun::methods {

// adapter=, any_target=, mask_id=.
std::vector<ParamInfo> tuned_target_parameters();
// What they ask for; for MethodInfo::tuned and MethodInfo::files.
std::shared_ptr<const engine::Model> tuned_by_parameters(const MethodParams& params,
                                                         const MethodBuildContext& context);
std::map<std::string, std::string> tuned_target_file(const MethodParams& params,
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
