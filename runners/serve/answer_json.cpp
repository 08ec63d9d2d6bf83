#include "runners/serve/answer_json.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "engine/base/utf8.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::runners {
namespace {

const char* finish_reason(results::StopReason stop) {
  const bool ended =
      stop == results::StopReason::kStopToken || stop == results::StopReason::kStopString;
  return ended ? "stop" : "length";
}

int64_t code_points(std::string_view text) {
  int64_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

std::string dump(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

double milliseconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

}  // namespace

AnswerJson::AnswerJson(const CompletionRequest& request, const ServedModel& served,
                       std::string method, int64_t number, int64_t created)
    : request_(request),
      served_(served),
      tokenizer_(*served.model->tokenizer()),
      method_(std::move(method)),
      number_(number),
      created_(created) {
  for (size_t i = 0; i < request.prompts.size(); ++i)
    choices_.push_back({.text = AnswerText(tokenizer_, request.stop)});
}

void AnswerJson::add(const StepTokens& step) {
  Choice& one = choice(step.choice);
  one.ids.insert(one.ids.end(), step.ids.begin(), step.ids.end());
  one.whole += one.text.push(step.ids);
}

void AnswerJson::add(const ChoiceEnd& end) {
  Choice& one = choice(end.choice);
  one.whole += one.text.finish();
  one.end = end;
}

AnswerJson::Json AnswerJson::frame(const char* kind) const {
  const std::string object =
      request_.chat ? std::string("chat.completion") + kind : std::string("text_completion");
  return {{"id", fmt::format("{}-{}", request_.chat ? "chatcmpl" : "cmpl", number_)},
          {"object", object},
          {"created", created_},
          {"model", served_.name}};
}

AnswerJson::Json AnswerJson::usage(const AnswerCounts& counts) const {
  return {{"prompt_tokens", counts.prompt_tokens},
          {"completion_tokens", counts.new_tokens},
          {"total_tokens", counts.prompt_tokens + counts.new_tokens}};
}

AnswerJson::Json AnswerJson::about(const JobEnd& end) const {
  const AnswerCounts& counts = end.counts;
  Json about = {{"method", method_}, {"tau", nullptr}};
  if (counts.steps > 0)
    about["tau"] = static_cast<double>(counts.emitted) / static_cast<double>(counts.steps);
  about["steps"] = counts.steps;
  about["drafted"] = counts.drafted;
  about["accepted"] = counts.accepted;
  about["prefill_ms"] = milliseconds_of(counts.prefill_ns);
  about["decode_ms"] = milliseconds_of(counts.decode_ns);
  if (!request_.sampling.greedy()) about["seed"] = end.seed;
  return about;
}

// Of the tokens of `scores`. `before` is a token before them that has no score (-1 = none): the
// first one of a prompt.
AnswerJson::Json AnswerJson::logprobs(std::span<const TokenScore> scores, int32_t before) const {
  const auto text_of_token = [&](int32_t id) {
    return base::utf8_repair(tokenizer_.token_bytes(id));
  };
  Json tokens = Json::array(), values = Json::array(), top = Json::array();
  Json offsets = Json::array(), greedy = Json::array();
  int64_t offset = 0;
  const auto add_token = [&](int32_t id) {
    const std::string text = text_of_token(id);
    offsets.push_back(offset);
    offset += code_points(text);
    tokens.push_back(text);
  };
  if (before >= 0) {
    add_token(before);
    for (Json* list : {&values, &top, &greedy}) list->push_back(nullptr);
  }
  for (const TokenScore& score : scores) {
    add_token(score.token);
    values.push_back(score.log_prob);
    greedy.push_back(score.greedy);
    // Tokens that look alike share a key: the likelier one has it.
    Json best = Json::object();
    for (const auto& [id, log_prob] : score.best)
      if (const std::string text = text_of_token(id); !best.contains(text)) best[text] = log_prob;
    if (const std::string text = text_of_token(score.token); !best.contains(text))
      best[text] = score.log_prob;
    top.push_back(std::move(best));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)},
          {"is_greedy", std::move(greedy)}};
}

AnswerJson::Json AnswerJson::choice_json(size_t number) const {
  const Choice& one = choices_[number];
  const std::vector<int32_t>& prompt = request_.prompts[number];
  Json part = {{"index", number}};
  if (request_.chat)
    part["message"] = {{"role", "assistant"}, {"content", one.whole}};
  else
    part["text"] = request_.echo ? request_.texts[number] + one.whole : one.whole;
  part["logprobs"] = nullptr;
  part["finish_reason"] = nullptr;
  if (one.end) {
    part["finish_reason"] = finish_reason(one.end->stop);
    if (request_.logprobs)
      part["logprobs"] = logprobs(one.end->scores, request_.echo ? prompt.front() : -1);
  }
  if (request_.return_token_ids) {
    part["token_ids"] = one.ids;
    if (!request_.chat) part["prompt_token_ids"] = prompt;
  }
  return part;
}

std::string AnswerJson::document(const JobEnd& end) const {
  Json all = frame("");
  all["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) all["choices"].push_back(choice_json(i));
  if (request_.return_token_ids && request_.chat)
    all["prompt_token_ids"] = request_.prompts.front();
  all["usage"] = usage(end.counts);
  all["evalrun"] = about(end);
  return dump(all);
}

std::string AnswerJson::chunk(int number, const std::string& text, std::span<const int32_t> ids,
                              const Json& scores, const Json& finish) {
  Choice& one = choice(number);
  const bool first = !std::exchange(one.begun, true);
  Json all = frame(".chunk");
  Json part = {{"index", number}};
  if (request_.chat) {
    part["delta"] = Json::object();
    if (first) part["delta"]["role"] = "assistant";
    if (first || !ids.empty() || !text.empty()) part["delta"]["content"] = text;
  } else {
    part["text"] = text;
  }
  part["logprobs"] = scores;
  part["finish_reason"] = finish;
  if (request_.return_token_ids) {
    part["token_ids"] = std::vector<int32_t>(ids.begin(), ids.end());
    if (first)
      (request_.chat ? all : part)["prompt_token_ids"] =
          request_.prompts[static_cast<size_t>(number)];
  }
  all["choices"] = Json::array();
  all["choices"].push_back(std::move(part));
  return dump(all);
}

std::vector<std::string> AnswerJson::chunks(const StepTokens& step) {
  if (request_.logprobs) {
    choice(step.choice).kept.push_back(step);
    return {};
  }
  return {chunk(step.choice, choice(step.choice).text.push(step.ids), step.ids, nullptr, nullptr)};
}

std::vector<std::string> AnswerJson::chunks(const ChoiceEnd& end) {
  Choice& one = choice(end.choice);
  std::vector<std::string> list;
  std::span<const TokenScore> scores = end.scores;
  for (const StepTokens& step : one.kept) {
    list.push_back(chunk(end.choice, one.text.push(step.ids), step.ids,
                         logprobs(scores.first(step.ids.size()), -1), nullptr));
    scores = scores.subspan(step.ids.size());
  }
  one.kept.clear();
  list.push_back(chunk(end.choice, one.text.finish(), {}, nullptr, finish_reason(end.stop)));
  return list;
}

std::vector<std::string> AnswerJson::chunks(const JobEnd& end) const {
  if (!request_.include_usage) return {};
  Json all = frame(".chunk");
  all["choices"] = Json::array();
  all["usage"] = usage(end.counts);
  all["evalrun"] = about(end);
  return {dump(all)};
}

}  // namespace evalrun::runners
