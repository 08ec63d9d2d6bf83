// Bodies of POST /v1/completions and POST /v1/chat/completions. What would change the answer and is
// not known here is refused by name; what cannot change it (user, metadata) is ignored.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampling.h"
#include "runners/serve/api_error.h"
#include "runners/serve/served_model.h"

namespace evalrun::runners {

struct CompletionRequest {
  bool chat = false;
  std::vector<std::vector<int32_t>> prompts;  // one choice each; not empty, none of them empty
  std::vector<std::string> texts;  // of prompts, as given, or what their ids say; of no chat
  int max_new = 16;  // tokens of each answer; 0 = the prompts' own log-probabilities alone
  engine::SamplingParams sampling = {.temperature = 1};
  // Prompt i draws as line i of `evalrun generate --seed` does.
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool stream = false, include_usage = false;
  bool echo = false;              // the answer begins with the prompt
  std::optional<int> logprobs;    // this many best tokens beside each token; absent = none at all
  bool return_token_ids = false;  // as vLLM has it
};

inline constexpr int kMostPrompts = 512;      // of a request
inline constexpr int kMostStopTexts = 16;     // of a request
inline constexpr size_t kLongestStop = 1024;  // bytes

// Both throw ApiRefusal: 400 naming the field, 404 for another model.
CompletionRequest read_completion(std::string_view body, const ServedModel& served);
CompletionRequest read_chat(std::string_view body, const ServedModel& served);

}  // namespace evalrun::runners
