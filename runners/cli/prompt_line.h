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

// Token ids of "answer", a data set's reference, as the model would have to give them after the
// prompt of "messages": the text, and what the chat template ends a turn with, up to the first of
// the model's stop tokens. Throws as above; also without "messages", because nothing else says how
// an answer ends, and for templates that write other things before an answer than they leave
// open for one (Qwen3's empty thoughts).
std::vector<int32_t> read_answer(const JsonlReader& reader, const nlohmann::json& object,
                                 const engine::Model& model);

}  // namespace evalrun::cli
