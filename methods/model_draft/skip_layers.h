// Skip sets of self-speculative decoding as text, and what they save.
#pragma once
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/session.h"

namespace evalrun::methods {

// "auto", "none" or layers and ranges (engine/base/number_range.h) joined by '+': "8-15+20" or
// "8..15+20". Throws usage_error.
void check_layer_list(const std::string& key, const std::string& text);
// Throws usage_error for layers the model does not have, and for a set that leaves nothing out.
engine::SkipSet skip_set(const std::string& attention, const std::string& mlp,
                         const engine::ModelConfig& config);
// "8-15+20" of a set, "none" for an empty one.
std::string to_text(const std::vector<bool>& layers);

// Share of the weights a forward reads that is left when the sublayers are skipped.
double kept_share(const engine::SkipSet& skip, const engine::ModelConfig& config);

}  // namespace evalrun::methods
