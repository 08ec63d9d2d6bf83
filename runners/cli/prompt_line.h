// One prompt of a JSON Lines file, as `evalrun generate` reads them.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "runners/cli/jsonl.h"

namespace evalrun::cli {

// Token ids of "prompt" (encoded as a document of its own), "messages" (through the model's chat
// template) or "tokens" (as they are); at least one. `system` stands in front of messages that
// begin with another role; "" takes the place of a text the template would put there. Throws
// data_error (file, line) when the object has none or several of these fields or they are not what
// they should be, usage_error when the model has no chat template.
std::vector<int32_t> read_prompt(const JsonlReader& reader, const nlohmann::json& object,
                                 const engine::Model& model,
                                 const std::optional<std::string>& system = {});

// Token ids of "answer", a data set's reference, as the model would have to give them behind the
// prompt of "messages": the text, no special tokens in it, and what the chat template ends a turn
// with, up to the first of the model's stop tokens. Throws as above, and without "messages":
// nothing else says how an answer ends.
std::vector<int32_t> read_answer(const JsonlReader& reader, const nlohmann::json& object,
                                 const engine::Model& model,
                                 const std::optional<std::string>& system = {});

}  // namespace evalrun::cli
