#include "runners/serve/completion_request.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/tokenizer.h"
#include "runners/serve/body_fields.h"

namespace evalrun::runners {
namespace {

constexpr int kMostTokens = 1 << 30;  // the context is the real limit, with OpenAI's words

// Fields that would change an answer and are not supported, with the values at which they do not.
// Null is one of them everywhere. Names as of OpenAI's API and of vLLM's and llama.cpp's servers.
const BodyJson& neutral_values() {
  static const BodyJson table = BodyJson::parse(R"({
    "add_generation_prompt": [true], "allowed_token_ids": [[]], "audio": [], "bad_words": [[]],
    "best_of": [1], "chat_template": [], "chat_template_kwargs": [{}],
    "continue_final_message": [false], "documents": [[]], "frequency_penalty": [0],
    "function_call": ["none", "auto"], "functions": [[]], "grammar": [""], "guided_choice": [[]],
    "guided_grammar": [""], "guided_json": [], "guided_regex": [""],
    "include_stop_str_in_output": [false], "json_schema": [], "length_penalty": [1],
    "logit_bias": [{}, []], "min_p": [0], "min_tokens": [0], "mirostat": [0],
    "modalities": [["text"]], "n": [1], "presence_penalty": [0], "prompt_embeds": [],
    "prompt_logprobs": [], "repeat_penalty": [1], "repetition_penalty": [1],
    "response_format": [{"type": "text"}], "skip_special_tokens": [true], "stop_token_ids": [[]],
    "structured_outputs": [], "suffix": [""], "tool_choice": ["none", "auto"], "tools": [[]],
    "truncate_prompt_tokens": [], "typical_p": [1], "use_beam_search": [false]})");
  return table;
}

void refuse_what_changes_answers(const BodyFields& fields) {
  for (const auto& [field, values] : neutral_values().items()) {
    const BodyJson* given = fields.find(field);
    if (given != nullptr && std::find(values.begin(), values.end(), *given) == values.end())
      refuse_field(field, fmt::format("is not supported with this value: {}. Leave it out",
                                      BodyFields::shortened(*given)));
  }
}

engine::SamplingParams read_sampling(const BodyFields& fields) {
  engine::SamplingParams sampling;
  sampling.temperature = fields.number("temperature", 1);
  if (!(sampling.temperature >= 0 && sampling.temperature <= 100))
    refuse_field("temperature", fmt::format("must be 0 to 100, not {}", sampling.temperature));
  sampling.top_p = fields.number("top_p", 1);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    refuse_field("top_p", fmt::format("must be above 0 and at most 1, not {}", sampling.top_p));
  // -1 is off in vLLM, 0 is off here and in llama.cpp.
  sampling.top_k = std::max(0, fields.integer("top_k", -1, 1 << 30).value_or(0));
  return sampling;
}

std::optional<uint64_t> read_seed(const BodyFields& fields) {
  const BodyJson* seed = fields.find("seed");
  if (seed == nullptr) return std::nullopt;
  if (!seed->is_number_integer())
    refuse_field("seed", fmt::format("must be an integer, not {}", seed->type_name()));
  return seed->is_number_unsigned() ? seed->get<uint64_t>()
                                    : static_cast<uint64_t>(seed->get<int64_t>());
}

std::vector<std::string> read_stop(const BodyFields& fields) {
  const BodyJson* stop = fields.find("stop");
  if (stop == nullptr) return {};
  const BodyJson list = stop->is_array() ? *stop : BodyJson::array({*stop});
  if (list.size() > static_cast<size_t>(kMostStopTexts))
    refuse_field("stop", fmt::format("has {} texts; {} are the most", list.size(), kMostStopTexts));
  std::vector<std::string> texts;
  for (const BodyJson& text : list) {
    if (!text.is_string())
      refuse_field("stop",
                   fmt::format("must be a text or a list of texts, not {}", text.type_name()));
    texts.push_back(text.get<std::string>());
    if (texts.back().empty()) refuse_field("stop", "has an empty text");
    if (texts.back().size() > kLongestStop)
      refuse_field("stop", fmt::format("has a text of {} bytes; {} are the most",
                                       texts.back().size(), kLongestStop));
  }
  return texts;
}

// What both kinds of requests have.
CompletionRequest read_common(const BodyFields& fields, const ServedModel& served) {
  refuse_what_changes_answers(fields);
  check_served_model(fields, served);
  CompletionRequest request;
  request.sampling = read_sampling(fields);
  request.seed = read_seed(fields);
  request.stop = read_stop(fields);
  request.ignore_eos = fields.flag("ignore_eos");
  request.stream = fields.flag("stream");
  request.return_token_ids = fields.flag("return_token_ids");
  if (const BodyJson* options = fields.find("stream_options")) {
    if (!request.stream) refuse_field("stream_options", "is for \"stream\": true");
    if (!options->is_object())
      refuse_field("stream_options",
                   fmt::format("must be an object, not {}", options->type_name()));
    const auto usage = options->find("include_usage");
    if (usage != options->end() && !usage->is_null() && !usage->is_boolean())
      refuse_field("stream_options",
                   fmt::format("include_usage must be true or false, not {}", usage->type_name()));
    request.include_usage = usage != options->end() && usage->is_boolean() && usage->get<bool>();
  }
  return request;
}

// A text, a list of texts, a list of token ids, or a list of such lists.
void read_prompts(const BodyJson& prompt, const engine::Model& model, CompletionRequest& request) {
  const engine::Tokenizer& tokenizer = *model.tokenizer();
  const bool is_list = prompt.is_array() && (prompt.empty() || !prompt.front().is_number());
  const BodyJson list = is_list ? prompt : BodyJson::array({prompt});
  if (list.empty()) refuse_field("prompt", "is an empty list");
  if (list.size() > static_cast<size_t>(kMostPrompts))
    refuse_field("prompt",
                 fmt::format("has {} prompts; {} are the most", list.size(), kMostPrompts));
  for (const BodyJson& one : list) {
    if (one.is_string()) {
      request.texts.push_back(one.get<std::string>());
      request.prompts.push_back(tokenizer.encode(request.texts.back(), {.add_special = true}));
    } else if (one.is_array()) {
      request.prompts.push_back(ids_of(one, "prompt", model.config().vocab_size));
      request.texts.push_back(tokenizer.decode(request.prompts.back()));
    } else {
      refuse_field("prompt",
                   fmt::format("must be a text, a list of texts, a list of token ids or a list "
                               "of such lists; found {}",
                               one.type_name()));
    }
  }
}

void check_lengths(const CompletionRequest& request, const std::string& field,
                   const ServedModel& served) {
  for (const std::vector<int32_t>& prompt : request.prompts) {
    if (prompt.empty()) refuse_field(field, "has no tokens");
    const int64_t n = static_cast<int64_t>(prompt.size());
    if (n + request.max_new > served.context)
      throw ApiRefusal(ApiError{
          .message = fmt::format("This model's maximum context length is {} tokens. However, you "
                                 "requested {} tokens ({} in the prompt, {} in the completion). "
                                 "Please reduce the length of the prompt or the completion.",
                                 served.context, n + request.max_new, n, request.max_new),
          .param = field,
          .code = "context_length_exceeded"});
  }
}

// A text, or a list of parts of which all are texts.
std::string read_content(const BodyJson& message, size_t number) {
  const auto place = [&] { return fmt::format("messages[{}].content", number); };
  const auto content = message.find("content");
  if (content != message.end() && content->is_string()) return content->get<std::string>();
  if (content == message.end() || !content->is_array()) refuse_field(place(), "must be a text");
  std::string text;
  for (const BodyJson& part : *content) {
    const bool is_text = part.is_object() && part.contains("type") &&
                         part["type"] == BodyJson("text") && part.contains("text") &&
                         part["text"].is_string();
    if (!is_text) refuse_field(place(), "may have parts of type text alone");
    text += part["text"].get<std::string>();
  }
  return text;
}

std::vector<int32_t> read_messages(const BodyJson& messages, const engine::Model& model) {
  if (model.chat_template() == nullptr)
    throw ApiRefusal(
        ApiError{.message = "this model has no chat template: " + model.chat_template_error() +
                            "; start the server with --chat-template, or use /v1/completions",
                 .param = "messages"});
  if (!messages.is_array() || messages.empty())
    refuse_field("messages", "must be a non-empty list");
  std::vector<engine::ChatMessage> chat;
  for (size_t i = 0; i < messages.size(); ++i) {
    const BodyJson& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      refuse_field(fmt::format("messages[{}]", i), "must be {\"role\": text, \"content\": text}");
    for (const char* field : {"tool_calls", "function_call", "tool_call_id"})
      if (message.contains(field) && !message[field].empty())
        refuse_field(fmt::format("messages[{}].{}", i, field), "is not supported");
    chat.push_back({message["role"].get<std::string>(), read_content(message, i)});
  }
  try {
    const std::string text = model.chat_template()->render(chat, true);
    return model.tokenizer()->encode(text, {.add_special = model.chat_template()->add_special()});
  } catch (const base::Error& e) {
    throw ApiRefusal(
        ApiError{.message = "the chat template says: " + e.message(), .param = "messages"});
  }
}

}  // namespace

std::string ApiError::body() const {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
  };
  const nlohmann::json error = {{"message", message},
                                {"type", status >= 500 ? "server_error" : "invalid_request_error"},
                                {"param", or_null(param)},
                                {"code", or_null(code)}};
  return nlohmann::json({{"error", error}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

CompletionRequest read_completion(std::string_view body, const ServedModel& served) {
  const BodyFields fields(body);
  CompletionRequest request = read_common(fields, served);
  request.echo = fields.flag("echo");
  request.max_new = fields.integer("max_tokens", 0, kMostTokens).value_or(16);
  request.logprobs = fields.integer("logprobs", 0, 20);
  if (request.max_new == 0 && !request.echo)
    refuse_field("max_tokens", "must be 1 or more without \"echo\": true");
  if (request.echo && request.stream)
    refuse_field("echo", "is not supported together with \"stream\": true");
  read_prompts(fields.required("prompt"), *served.model, request);
  check_lengths(request, "prompt", served);
  return request;
}

CompletionRequest read_chat(std::string_view body, const ServedModel& served) {
  const BodyFields fields(body);
  CompletionRequest request = read_common(fields, served);
  request.chat = true;
  for (const char* field : {"logprobs", "top_logprobs", "echo"})
    if (const BodyJson* given = fields.find(field);
        given != nullptr && *given != BodyJson(false) && *given != BodyJson(0))
      refuse_field(field, "is not supported here; /v1/completions has it");
  request.prompts = {read_messages(fields.required("messages"), *served.model)};
  // Without a limit to the end of the context, as OpenAI has it.
  const int left = std::max(1, served.context - static_cast<int>(request.prompts[0].size()));
  std::optional<int> limit = fields.integer("max_completion_tokens", 1, kMostTokens);
  if (!limit) limit = fields.integer("max_tokens", 1, kMostTokens);
  request.max_new = limit.value_or(left);
  check_lengths(request, "messages", served);
  return request;
}

}  // namespace evalrun::runners
