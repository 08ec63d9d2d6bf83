// What the server answers, against the engine asked without it.
#include <algorithm>
#include <cctype>

#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "engine/net/event_stream.h"
#include "methods/decode_loop.h"
#include "tests/serve/tiny_server.h"

namespace evalrun::tests {
namespace {

const std::vector<std::string>& two_methods() {
  static const std::vector<std::string> names = {"ar", "pld:k=3"};
  return names;
}

std::vector<int32_t> prompt_ids(size_t number) {
  static const json expected =
      json::parse(base::read_file(EVALRUN_TEST_DATA "/models/tiny-llama/expected.json"));
  return expected["input_ids"][number].get<std::vector<int32_t>>();
}

// What `evalrun generate` decodes with these parameters as line `line`.
std::vector<int32_t> generated(const std::string& method, std::span<const int32_t> prompt,
                               int max_new, const engine::SamplingParams& sampling, uint64_t seed,
                               uint64_t line) {
  const methods::MethodSpec spec = methods::parse_method(method);
  const auto session = engine::Session::create(served_llama(), one_thread(1024));
  methods::MethodBuildContext build;
  build.target = served_llama();
  build.session = session->options();
  const auto decoder = spec.info->build(spec.params, build);
  methods::TurnRequest request;
  request.prompt = prompt;
  request.max_new = max_new;
  request.sampling = sampling;
  request.seed = base::combine_seeds({seed, line});
  base::SteadyClock clock;
  return methods::decode_turn(*decoder, *session, request, clock).tokens;
}

TEST(ServeAnswers, GreedyTokensOfTransformers) {
  const json expected =
      json::parse(base::read_file(EVALRUN_TEST_DATA "/models/tiny-llama/expected.json"));
  for (const std::string& method : two_methods()) {
    const TinyServer server(TinyServerOptions{.method = method});
    const json answer = server.complete({{"model", "tiny"},
                                         {"prompt", expected["input_ids"]},
                                         {"max_tokens", 32},
                                         {"temperature", 0},
                                         {"ignore_eos", true},
                                         {"return_token_ids", true}});
    ASSERT_EQ(answer["choices"].size(), expected["input_ids"].size());
    for (size_t i = 0; i < answer["choices"].size(); ++i) {
      const json& choice = answer["choices"][i];
      EXPECT_EQ(choice["index"], i);
      EXPECT_EQ(choice["token_ids"], expected["greedy_32"][i]) << method;
      EXPECT_EQ(choice["prompt_token_ids"], expected["input_ids"][i]);
      EXPECT_EQ(choice["finish_reason"], "length");
      EXPECT_EQ(choice["text"], served_llama()->tokenizer()->decode(
                                    choice["token_ids"].get<std::vector<int32_t>>(), true));
    }
    const auto n = static_cast<int>(answer["choices"].size());
    EXPECT_EQ(answer["usage"]["completion_tokens"], 32 * n);
    EXPECT_EQ(answer["evalrun"]["method"], server.method());
    EXPECT_FALSE(answer["evalrun"].contains("seed"));
    const double steps = answer["evalrun"]["steps"];
    EXPECT_DOUBLE_EQ(answer["evalrun"]["tau"].get<double>(), 31 * n / steps);
    if (method == "ar") EXPECT_EQ(steps, 31 * n);
  }
}

TEST(ServeAnswers, SampledTokensOfGenerate) {
  const std::vector<int32_t> first = prompt_ids(0), second = prompt_ids(1);
  const engine::SamplingParams sampling = {.temperature = 0.8, .top_k = 40, .top_p = 0.9};
  for (const std::string& method : two_methods()) {
    const TinyServer server(TinyServerOptions{.method = method});
    const json answer = server.complete({{"prompt", {first, second}},
                                         {"max_tokens", 24},
                                         {"temperature", 0.8},
                                         {"top_k", 40},
                                         {"top_p", 0.9},
                                         {"seed", 7},
                                         {"ignore_eos", true},
                                         {"return_token_ids", true}});
    EXPECT_EQ(answer["choices"][0]["token_ids"], generated(method, first, 24, sampling, 7, 0));
    EXPECT_EQ(answer["choices"][1]["token_ids"], generated(method, second, 24, sampling, 7, 1));
    EXPECT_EQ(answer["evalrun"]["seed"], 7);
  }
}

// A request without a seed says which one it had, and that one gives the answer again.
TEST(ServeAnswers, TheSeedThatWasDrawnRepeatsTheAnswer) {
  const TinyServer server;
  json body = {{"prompt", "the cat"}, {"max_tokens", 24}};
  const json once = server.complete(body), other = server.complete(body);
  EXPECT_NE(once["evalrun"]["seed"], other["evalrun"]["seed"]);
  body["seed"] = once["evalrun"]["seed"];
  EXPECT_EQ(server.complete(body)["choices"], once["choices"]);
}

struct Streamed {
  std::vector<json> chunks;
  bool done = false;
};

Streamed stream(const TinyServer& server, json body, const std::string& path) {
  body["stream"] = true;
  const net::HttpResponse response = server.post(path, body);
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.content_type, "text/event-stream");
  Streamed streamed;
  net::EventStream events;
  events.feed(response.body, [&](const net::Event& event) {
    streamed.done = event.data == "[DONE]";
    if (!streamed.done) streamed.chunks.push_back(json::parse(event.data));
    return true;
  });
  EXPECT_FALSE(events.has_rest());
  EXPECT_TRUE(streamed.done);
  return streamed;
}

TEST(ServeAnswers, AStreamIsTheDocumentInSteps) {
  for (const std::string& method : two_methods()) {
    const TinyServer server(TinyServerOptions{.method = method});
    json body = {{"prompt", "the cat sat on the mat and the cat sat on the mat and the"},
                 {"max_tokens", 40},
                 {"temperature", 0},
                 {"ignore_eos", true},
                 {"return_token_ids", true}};
    const json whole = server.complete(body)["choices"][0];
    body["stream_options"] = {{"include_usage", true}};
    const Streamed streamed = stream(server, body, "/v1/completions");
    std::string text;
    json ids = json::array();
    int with_tokens = 0;
    for (size_t i = 0; i + 1 < streamed.chunks.size(); ++i) {
      const json& choice = streamed.chunks[i]["choices"][0];
      text += choice["text"].get<std::string>();
      for (const json& id : choice["token_ids"]) ids.push_back(id);
      with_tokens += choice["token_ids"].empty() ? 0 : 1;
    }
    EXPECT_EQ(text, whole["text"]);
    EXPECT_EQ(ids, whole["token_ids"]);
    EXPECT_EQ(streamed.chunks[0]["choices"][0]["prompt_token_ids"], whole["prompt_token_ids"]);
    EXPECT_EQ(streamed.chunks[streamed.chunks.size() - 2]["choices"][0]["finish_reason"], "length");
    // One for the first token, one for each step.
    const json& last = streamed.chunks.back();
    EXPECT_TRUE(last["choices"].empty());
    EXPECT_EQ(last["usage"]["completion_tokens"], 40);
    EXPECT_EQ(last["evalrun"]["steps"], with_tokens - 1);
  }
}

TEST(ServeAnswers, AStreamHasTheLogProbabilitiesOfTheDocument) {
  const TinyServer server(TinyServerOptions{.method = "pld:k=3"});
  const json body = {{"prompt", "the cat sat on the mat and the cat"},
                     {"max_tokens", 12},
                     {"temperature", 0},
                     {"logprobs", 2}};
  const json whole = server.complete(body)["choices"][0]["logprobs"];
  const size_t n = whole["token_logprobs"].size();
  ASSERT_GT(n, 0u);
  // Greedy tokens are the likeliest, whatever the method accepted them from.
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(whole["is_greedy"][i], true);
  json values = json::array(), top = json::array();
  for (const json& chunk : stream(server, body, "/v1/completions").chunks) {
    const json& part = chunk["choices"][0]["logprobs"];
    if (part.is_null()) continue;
    for (const json& value : part["token_logprobs"]) values.push_back(value);
    for (const json& value : part["top_logprobs"]) top.push_back(value);
  }
  EXPECT_EQ(values, whole["token_logprobs"]);
  EXPECT_EQ(top, whole["top_logprobs"]);
}

TEST(ServeAnswers, ChatGoesThroughTheTemplate) {
  const TinyServer server;
  const json messages = json::array({{{"role", "user"}, {"content", "hi"}}});
  const json limits = {{"max_tokens", 8}, {"temperature", 0}, {"return_token_ids", true}};
  json chat = limits, raw = limits;
  chat["messages"] = messages;
  raw["prompt"] = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
  const json answer = server.complete(chat, "/v1/chat/completions");
  const json expected = server.complete(raw)["choices"][0];
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], expected["text"]);
  EXPECT_EQ(answer["choices"][0]["token_ids"], expected["token_ids"]);
  EXPECT_EQ(answer["prompt_token_ids"], expected["prompt_token_ids"]);

  std::string text;
  const Streamed streamed = stream(server, chat, "/v1/chat/completions");
  for (const json& chunk : streamed.chunks) {
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    text += chunk["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, expected["text"]);
  EXPECT_EQ(streamed.chunks[0]["choices"][0]["delta"]["role"], "assistant");

  // A content in parts is the same text.
  chat["messages"][0]["content"] =
      json::array({{{"type", "text"}, {"text", "h"}}, {{"type", "text"}, {"text", "i"}}});
  EXPECT_EQ(server.complete(chat, "/v1/chat/completions")["choices"], answer["choices"]);
}

// As lm-eval asks for a log-likelihood: the prompt's own tokens, by the plain logits of forwards of
// one row.
TEST(ServeAnswers, EchoedLogProbabilitiesAreThoseOfThePlainLogits) {
  const TinyServer server(TinyServerOptions{.method = "pld:k=3"});
  const std::vector<int32_t> ids = prompt_ids(0);
  const json choice = server.complete({{"prompt", ids},
                                       {"max_tokens", 0},
                                       {"echo", true},
                                       {"logprobs", 1},
                                       {"temperature", 0}})["choices"][0];
  const json& found = choice["logprobs"];
  ASSERT_EQ(found["token_logprobs"].size(), ids.size());
  EXPECT_TRUE(found["token_logprobs"][0].is_null());
  EXPECT_TRUE(found["top_logprobs"][0].is_null());
  EXPECT_EQ(choice["text"], served_llama()->tokenizer()->decode(ids));
  const auto session = engine::Session::create(served_llama(), one_thread(1024));
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    engine::Row row;
    row.token = ids[i];
    engine::ForwardRequest request;
    request.rows = {&row, 1};
    const auto logits = session->forward(request).logits_row(0);
    const double sum = engine::log_sum(logits);
    const int32_t best = engine::argmax(logits);
    EXPECT_EQ(found["token_logprobs"][i + 1].get<double>(),
              static_cast<double>(logits[static_cast<size_t>(ids[i + 1])]) - sum);
    EXPECT_EQ(found["is_greedy"][i + 1], best == ids[i + 1]);
    double largest = -1e300;
    for (const auto& [text, value] : found["top_logprobs"][i + 1].items())
      largest = std::max(largest, value.get<double>());
    EXPECT_EQ(largest, static_cast<double>(logits[static_cast<size_t>(best)]) - sum);
    const int root = 0;
    session->commit({&root, 1});
  }
}

TEST(ServeAnswers, EchoWithAnAnswerHasTheLogProbabilitiesOfBoth) {
  const TinyServer server;
  const json body = {{"prompt", "the cat sat"}, {"max_tokens", 1},  {"echo", true},
                     {"logprobs", 1},           {"temperature", 0}, {"return_token_ids", true}};
  const json choice = server.complete(body)["choices"][0];
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), choice["prompt_token_ids"].size() + 1);
  EXPECT_EQ(choice["logprobs"]["is_greedy"].back(), true);
  EXPECT_THAT(choice["text"].get<std::string>(), ::testing::StartsWith("the cat sat"));
}

TEST(ServeAnswers, AStopTextEndsTheAnswerBeforeIt) {
  const TinyServer server(TinyServerOptions{.method = "pld:k=3"});
  json body = {
      {"prompt", "the cat sat"}, {"max_tokens", 40}, {"temperature", 0}, {"ignore_eos", true}};
  const std::string whole = server.complete(body)["choices"][0]["text"];
  // Two letters or so from the middle, which are no part of longer characters.
  size_t at = 4;
  const auto plain = [&](size_t i) {
    return i < whole.size() && std::isprint(static_cast<unsigned char>(whole[i])) != 0;
  };
  while (at + 1 < whole.size() && !(plain(at) && plain(at + 1))) ++at;
  const std::string stop = whole.substr(at, 2);
  ASSERT_EQ(stop.size(), 2u) << whole;
  body["stop"] = stop;
  const json answer = server.complete(body);
  EXPECT_EQ(answer["choices"][0]["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_LT(answer["usage"]["completion_tokens"].get<int>(), 40);
}

TEST(ServeAnswers, ModelsHealthAndMetrics) {
  const TinyServer server(TinyServerOptions{.method = "pld:k=3"});
  const json models = json::parse(server.ask("GET", "/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], 1024);
  EXPECT_EQ(json::parse(server.ask("GET", "/health").body)["status"], "ok");
  EXPECT_EQ(server.metric("steps_total"), 0);
  const json answer = server.complete({{"prompt", "the cat and the cat and the"},
                                       {"max_tokens", 30},
                                       {"temperature", 0},
                                       {"ignore_eos", true}});
  EXPECT_EQ(server.metric("generated_tokens_total"), 30);
  EXPECT_EQ(server.metric("step_tokens_total"), 29);
  EXPECT_EQ(server.metric("prompt_tokens_total"), answer["usage"]["prompt_tokens"]);
  EXPECT_EQ(server.metric("steps_total"), answer["evalrun"]["steps"]);
  EXPECT_EQ(server.metric("drafted_tokens_total"), answer["evalrun"]["drafted"]);
  EXPECT_EQ(server.metric("accepted_tokens_total"), answer["evalrun"]["accepted"]);
  EXPECT_EQ(server.metric("waiting_requests"), 0);
  EXPECT_GT(server.metric("requests_total{status=\"200\"}"), 3);
}

}  // namespace
}  // namespace evalrun::tests
