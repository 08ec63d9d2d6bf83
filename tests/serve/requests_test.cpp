// Bodies that are refused: by which status, and naming which field.
#include "tests/serve/tiny_server.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

const runners::ServedModel& tiny_served() {
  static const runners::ServedModel served{"tiny", served_llama(), 256};
  return served;
}

// What a body is refused for; status 200 where it is taken.
runners::ApiError refusal_of(const std::string& body, bool chat = false) {
  try {
    chat ? runners::read_chat(body, tiny_served()) : runners::read_completion(body, tiny_served());
  } catch (const runners::ApiRefusal& e) {
    return e.error();
  }
  return {.status = 200, .message = "taken"};
}

json usual(bool chat) {
  json body;
  if (chat)
    body["messages"] = json::array({{{"role", "user"}, {"content", "hi"}}});
  else
    body["prompt"] = "hi";
  return body;
}

void expect_refused_field(const std::string& field, const std::string& value, bool chat = false) {
  json body = usual(chat);
  body[field] = json::parse(value);
  const runners::ApiError error = refusal_of(body.dump(), chat);
  EXPECT_EQ(error.status, 400) << field << ": " << value << ": " << error.message;
  EXPECT_EQ(error.param, field) << value;
  EXPECT_THAT(error.message, HasSubstr(field));
}

TEST(ServeRequests, WhatWouldChangeTheAnswerIsRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> fields = {
      {"best_of", "2"},
      {"frequency_penalty", "0.5"},
      {"guided_regex", "\"a+\""},
      {"logit_bias", "{\"5\": 1}"},
      {"min_p", "0.1"},
      {"n", "2"},
      {"presence_penalty", "-1"},
      {"prompt_logprobs", "1"},
      {"repetition_penalty", "1.1"},
      {"response_format", "{\"type\": \"json_object\"}"},
      {"skip_special_tokens", "false"},
      {"stop_token_ids", "[5]"},
      {"suffix", "\"end\""},
      {"tools", "[{\"type\": \"function\"}]"},
      {"use_beam_search", "true"},
  };
  for (const auto& [field, value] : fields) {
    expect_refused_field(field, value);
    expect_refused_field(field, value, true);
  }
  expect_refused_field("logprobs", "true", true);
  expect_refused_field("top_logprobs", "3", true);
}

TEST(ServeRequests, WhatChangesNothingIsTaken) {
  const json harmless = json::parse(R"({
    "best_of": 1, "frequency_penalty": 0, "logit_bias": {}, "n": 1, "presence_penalty": 0.0,
    "response_format": {"type": "text"}, "suffix": null, "tools": [], "tool_choice": "none",
    "user": "me", "metadata": {"a": "b"}, "store": false, "seed": null, "stop": null,
    "logprobs": null, "stream": null, "max_tokens": null, "top_k": -1})");
  for (const bool chat : {false, true}) {
    json body = usual(chat);
    body.update(harmless);
    EXPECT_EQ(refusal_of(body.dump(), chat).status, 200) << refusal_of(body.dump(), chat).message;
  }
}

TEST(ServeRequests, WrongValuesAreRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> fields = {
      {"echo", "1"},
      {"logprobs", "21"},
      {"logprobs", "true"},
      {"max_tokens", "-1"},
      {"max_tokens", "1.5"},
      {"max_tokens", "0"},  // without echo
      {"max_tokens", "18446744073709551615"},
      {"model", "5"},
      {"prompt", "5"},
      {"prompt", "[]"},
      {"prompt", "[\"a\", 5]"},
      {"prompt", "[512]"},
      {"prompt", "[-1]"},
      {"prompt", "[1, 2.5]"},
      {"prompt", "[[1], []]"},
      {"prompt", "null"},
      {"seed", "1.5"},
      {"stop", "\"\""},
      {"stop", "[1]"},
      {"stream", "\"yes\""},
      {"stream_options", "{\"include_usage\": true}"},  // without stream
      {"temperature", "-1"},
      {"temperature", "\"hot\""},
      {"top_k", "-2"},
      {"top_p", "0"},
      {"top_p", "1.5"},
  };
  for (const auto& [field, value] : fields) expect_refused_field(field, value);
  for (const char* value : {"[]", "5", "null"}) expect_refused_field("messages", value, true);
  const auto message_refused = [](const std::string& message, const std::string& param) {
    EXPECT_EQ(refusal_of("{\"messages\": [" + message + "]}", true).param, param) << message;
  };
  message_refused("5", "messages[0]");
  message_refused(R"({"content": "hi"})", "messages[0]");
  message_refused(R"({"role": "user"})", "messages[0].content");
  message_refused(R"({"role": "user", "content": [{"type": "image_url"}]})", "messages[0].content");
  message_refused(R"({"role": "assistant", "content": "", "tool_calls": [{}]})",
                  "messages[0].tool_calls");
}

TEST(ServeRequests, BodiesThatAreNoObjectsAreRefused) {
  for (const char* body : {"", "{", "[]", "5", "{\"prompt\": \"\xFF\"}"}) {
    EXPECT_EQ(refusal_of(body).status, 400) << body;
    EXPECT_THAT(refusal_of(body).message, HasSubstr("the body")) << body;
  }
  // Deep nesting costs no stack, wherever it stands.
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  for (const char* field : {"metadata", "prompt", "stop", "tools"}) {
    const runners::ApiError error = refusal_of(std::string("{\"") + field + "\": " + deep + "}");
    EXPECT_EQ(error.status, 400) << field;
    EXPECT_THAT(error.message, HasSubstr("nested too deeply")) << field;
  }
}

TEST(ServeRequests, AnotherModelIsNotFound) {
  const runners::ApiError error = refusal_of(R"({"model": "gpt-4", "prompt": "hi"})");
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_THAT(error.message, HasSubstr("tiny"));
}

TEST(ServeRequests, WhatIsLongerThanTheContextIsRefusedInOpenAIsWords) {
  json body = {{"prompt", std::vector<int>(252, 1)}, {"max_tokens", 4}};
  EXPECT_EQ(refusal_of(body.dump()).status, 200);
  body["max_tokens"] = 5;
  const runners::ApiError error = refusal_of(body.dump());
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_THAT(error.message,
              HasSubstr("maximum context length is 256 tokens. However, you requested 257 tokens "
                        "(252 in the prompt, 5 in the completion)"));
}

TEST(ServeRequests, DefaultsAreOpenAIs) {
  const auto completion = runners::read_completion(R"({"prompt": "hi"})", tiny_served());
  EXPECT_EQ(completion.max_new, 16);
  EXPECT_EQ(completion.sampling.temperature, 1);
  EXPECT_FALSE(completion.seed.has_value());
  const auto chat = runners::read_chat(usual(true).dump(), tiny_served());
  EXPECT_EQ(chat.max_new, 256 - static_cast<int>(chat.prompts[0].size()));
}

TEST(ServeRequests, AnErrorIsAnErrorObject) {
  const TinyServer server;
  const net::HttpResponse response =
      server.post("/v1/completions", {{"prompt", "hi"}, {"best_of", 3}});
  EXPECT_EQ(response.status, 400);
  const json error = json::parse(response.body)["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"], "best_of");
  EXPECT_TRUE(error["code"].is_null());
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("best_of"));
  EXPECT_EQ(server.ask("GET", "/v1/nothing").status, 404);
  EXPECT_EQ(server.ask("GET", "/v1/completions").status, 405);
  EXPECT_EQ(server.ask("POST", "/health", "{}").status, 405);
}

}  // namespace
}  // namespace evalrun::tests
