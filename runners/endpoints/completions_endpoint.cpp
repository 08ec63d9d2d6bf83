#include "runners/endpoints/completions_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "engine/base/parse_number.h"
#include "runners/endpoints/event_fields.h"

namespace evalrun::runners {
namespace {

// vLLM's return_tokens_as_token_ids writes tokens as "token_id:17".
EndpointLogProb named_prob(const std::string& token, double log_prob) {
  constexpr std::string_view kId = "token_id:";
  EndpointLogProb prob;
  prob.log_prob = log_prob;
  if (token.starts_with(kId))
    prob.token =
        base::parse_number<int32_t>(std::string_view(token).substr(kId.size())).value_or(-1);
  if (prob.token < 0) prob.text = token;
  return prob;
}

EndpointStop finish_of(const std::string& reason, const nlohmann::json* matched,
                       const EndpointRequest& request) {
  if (reason == "length") return EndpointStop::kLimit;
  if (reason != "stop") return EndpointStop::kUnknown;
  // vLLM's stop_reason: the text or the token id that matched; null for the stop token.
  if (matched != nullptr && matched->is_string()) return EndpointStop::kStopText;
  if (matched != nullptr) return EndpointStop::kStopToken;
  return request.stop_texts.empty() ? EndpointStop::kStopToken : EndpointStop::kUnknown;
}

}  // namespace

nlohmann::json CompletionsEndpoint::common_body(const EndpointRequest& request) const {
  nlohmann::json body = {{"model", model()},
                         {"max_tokens", request.max_new},
                         {"temperature", request.sampling.temperature},
                         {"top_p", request.sampling.top_p},
                         {"stream", true},
                         {"stream_options", {{"include_usage", true}}}};
  // 31 bits: some servers read a 32-bit number, with a sign.
  if (!request.sampling.greedy()) body["seed"] = request.seed & 0x7FFFFFFF;
  if (!request.stop_texts.empty()) body["stop"] = request.stop_texts;
  if (request.log_probs > 0) body["logprobs"] = request.log_probs;
  return body;
}

void CompletionsEndpoint::read_usage(const nlohmann::json& usage, EndpointCounts& counts) const {
  base::ObjectReader reader(usage, spec().url, "event.usage");
  counts.prompt_tokens = read_count(reader, "prompt_tokens");
  counts.new_tokens = read_count(reader, "completion_tokens");
  const nlohmann::json* details = reader.raw("prompt_tokens_details");
  if (details == nullptr || details->is_null()) return;
  base::ObjectReader cache(*details, spec().url, "event.usage.prompt_tokens_details");
  counts.cached_tokens = read_count(cache, "cached_tokens");
}

// {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{token: log-probability}]}; of
// llama-server's own route {"content": [...]}.
std::vector<std::vector<EndpointLogProb>> CompletionsEndpoint::read_log_probs(
    const nlohmann::json& given) const {
  const std::string& url = spec().url;
  base::ObjectReader reader(given, url, "event.choices[0].logprobs");
  if (const nlohmann::json* content = reader.raw("content"); content != nullptr)
    return read_token_probs(*content, url, "event.choices[0].logprobs.content");
  const auto tokens = reader.required<std::vector<std::string>>("tokens");
  const auto own = reader.required<std::vector<double>>("token_logprobs");
  const nlohmann::json* top = reader.raw("top_logprobs");
  const bool has_top = top != nullptr && !top->is_null();
  if (own.size() != tokens.size() || (has_top && (!top->is_array() || top->size() != own.size())))
    reader.fail("token_logprobs", "is not as long as the tokens");
  std::vector<std::vector<EndpointLogProb>> probs;
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<EndpointLogProb> best;
    if (has_top && !(*top)[i].is_null())
      for (const auto& [token, log_prob] : (*top)[i].get<std::map<std::string, double>>())
        best.push_back(named_prob(token, log_prob));
    std::ranges::stable_sort(best, std::ranges::greater{}, &EndpointLogProb::log_prob);
    best.insert(best.begin(), named_prob(tokens[i], own[i]));
    probs.push_back(std::move(best));
  }
  return probs;
}

void CompletionsEndpoint::read_choice(const nlohmann::json& choice, ArrivingAnswer& answer) const {
  const std::string place = "event.choices[0]";
  base::ObjectReader reader(choice, spec().url, place);
  AnswerPiece piece;
  piece.text = reader.optional<std::string>("text", "");
  piece.ids = read_token_ids(reader.raw("token_ids"), spec().url, place + ".token_ids");
  if (const nlohmann::json* probs = reader.raw("logprobs"); probs != nullptr && !probs->is_null())
    piece.log_probs = read_log_probs(*probs);
  answer.add(std::move(piece));
  if (const auto reason = reader.optional<std::string>("finish_reason", ""); !reason.empty())
    answer.reply.stop = finish_of(reason, reader.raw("stop_reason"), answer.request);
}

void CompletionsEndpoint::read(const nlohmann::json& event, ArrivingAnswer& answer) {
  base::ObjectReader reader(event, spec().url, "event");
  if (const auto name = reader.optional<std::string>("model", ""); !name.empty())
    answer.reply.model = name;
  if (const nlohmann::json* usage = reader.raw("usage"); usage != nullptr && !usage->is_null())
    read_usage(*usage, answer.reply.counts);
  const nlohmann::json& choices = list_of(reader.raw("choices"), spec().url, "event.choices");
  if (choices.size() > 1) reader.fail("choices", "has more than the one answer asked for");
  if (!choices.empty()) read_choice(choices.front(), answer);
  read_more(reader, answer);
}

std::vector<std::string> CompletionsEndpoint::models(const nlohmann::json& listed) const {
  return listed_models(listed, spec().url);
}

}  // namespace evalrun::runners
