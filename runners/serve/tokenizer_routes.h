// What clients ask of the model's tokenizer, by the names that vLLM's server has for it
// (https://docs.vllm.ai/en/latest/serving/openai_compatible_server/, "Tokenizer API"): a harness
// that has no tokenizer of its own can count tokens with it. Answers are JSON.
#pragma once
#include <string>
#include <string_view>

#include "runners/serve/completion_request.h"

namespace evalrun::runners {

// POST /tokenize {"prompt": text, "add_special_tokens": true, "return_token_strs": false}.
// Special tokens written in the text become their ids. ApiRefusal as read_completion().
std::string tokenize_answer(std::string_view body, const ServedModel& served);
// POST /detokenize {"tokens": [ids]}: the text, special tokens included.
std::string detokenize_answer(std::string_view body, const ServedModel& served);
// GET /tokenizer_info: "bos_token", "eos_token" (of several tokens that end an answer the one with
// the lowest id), "vocab_size", "model_max_length".
std::string tokenizer_info(const ServedModel& served);

}  // namespace evalrun::runners
