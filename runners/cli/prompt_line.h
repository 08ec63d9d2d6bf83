// One prompt of a JSON Lines file, as `evalrun generate` reads them.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/model/model.h"
#include "runners/cli/jsonl.h"

namespace evalrun::cli {

// Token ids of "prompt" (encoded as a document of its own), "messages" (through the model's chat
// template) or "tokens" (as they are); at least one. Throws data_error (file, line) when the object
// has none or several of these fields or they are not what they should be, usage_error when the
// model has no chat template.
std::vector<int32_t> read_prompt(const JsonlReader& reader, const nlohmann::json& object,
                                 const engine::Model& model);

}  // namespace evalrun::cli
