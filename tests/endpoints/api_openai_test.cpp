#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/endpoints/asked_server.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::AskedServer;
using tests::event_reply;
using tests::json_reply;
using tests::Script;
using tests::small_request;

constexpr const char* kOpenAi = "api=openai,cache=kept";

std::string text_chunk(const std::string& text, const std::string& finish = "null",
                       const std::string& more = "") {
  return R"({"id":"c","object":"text_completion","model":"m","choices":[{"index":0,"text":")" +
         text + R"(","logprobs":null,"finish_reason":)" + finish + "}]" + more + "}";
}

constexpr const char* kUsage =
    R"({"model":"m","choices":[],"usage":{"prompt_tokens":4,"completion_tokens":5,)"
    R"("prompt_tokens_details":{"cached_tokens":2}}})";

Script openai_script(std::vector<std::string> events) {
  return {{"/v1/models", {json_reply(R"({"data":[{"id":"m"},{"id":"n"}]})")}},
          {"/v1/completions", {event_reply(std::move(events))}}};
}

EndpointReply openai_reply(std::vector<std::string> events,
                           const EndpointRequest& request = small_request()) {
  AskedServer server(kOpenAi, openai_script(std::move(events)));
  return server->complete(request);
}

TEST(ApiOpenAi, SendsTextAndWhatEveryServerKnows) {
  AskedServer server(kOpenAi, openai_script({text_chunk("a", R"("length")"), "[DONE]"}));
  EndpointRequest request = tests::sampled_request();
  request.sampling.top_k = 0;
  request.seed = 0xFFFFFFFF;
  request.stop_texts = {"###"};
  request.log_probs = 3;
  ASSERT_TRUE(server->complete(request).ok());
  EXPECT_EQ(server.body("/v1/completions"), nlohmann::json::parse(R"({
    "model": "m", "prompt": "Once upon", "max_tokens": 8, "temperature": 0.75, "top_p": 0.5,
    "seed": 2147483647, "stop": ["###"], "logprobs": 3, "stream": true,
    "stream_options": {"include_usage": true}})"));
  // The first model that is listed, asked for once.
  server->complete(request);
  EXPECT_EQ(server.seen("/v1/models").size(), 1u);
}

TEST(ApiOpenAi, TextPiecesAndUsage) {
  const EndpointReply reply = openai_reply(
      {text_chunk("one two"), text_chunk(" three"), text_chunk("", R"("stop")"), kUsage, "[DONE]"});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.text, "one two three");
  EXPECT_THAT(tests::arrived_texts(reply), ElementsAre("one two", " three"));
  EXPECT_THAT(tests::arrived_tokens(reply), ElementsAre(0, 0));  // nobody said
  EXPECT_THAT(reply.ids, IsEmpty());
  EXPECT_EQ(reply.stop, EndpointStop::kStopToken);
  EXPECT_EQ(reply.model, "m");
  EXPECT_EQ(reply.counts.prompt_tokens, 4);
  EXPECT_EQ(reply.counts.new_tokens, 5);
  EXPECT_EQ(reply.counts.cached_tokens, 2);
  EXPECT_EQ(reply.counts.drafted, std::nullopt);
  EXPECT_EQ(reply.counts.prompt_ms, std::nullopt);
}

TEST(ApiOpenAi, WithoutUsageTokensAreNotKnown) {
  const EndpointReply reply =
      openai_reply({text_chunk("a"), text_chunk("b", R"("length")"), "[DONE]"});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.counts.new_tokens, std::nullopt);
  EXPECT_EQ(reply.counts.prompt_tokens, std::nullopt);
  EXPECT_EQ(reply.stop, EndpointStop::kLimit);
}

// "stop" may be the stop token or a stop text.
TEST(ApiOpenAi, StopReasonsThatAreNotKnown) {
  EndpointRequest request = small_request();
  request.stop_texts = {"###"};
  EXPECT_EQ(openai_reply({text_chunk("a", R"("stop")"), "[DONE]"}, request).stop,
            EndpointStop::kUnknown);
  EXPECT_EQ(openai_reply({text_chunk("a", R"("content_filter")"), "[DONE]"}).stop,
            EndpointStop::kUnknown);
}

TEST(ApiOpenAi, LogProbabilitiesHaveTextAlone) {
  const std::string probs =
      R"({"model":"m","choices":[{"text":"ab","finish_reason":"length","logprobs":{)"
      R"("tokens":["a","b"],"token_logprobs":[-0.5,-1.5],)"
      R"("top_logprobs":[{"a":-0.5,"c":-0.25},null],"text_offset":[0,1]}}]})";
  EndpointRequest request = small_request();
  request.log_probs = 2;
  const EndpointReply reply = openai_reply({probs, "[DONE]"}, request);
  ASSERT_TRUE(reply.ok()) << reply.problem;
  ASSERT_EQ(reply.log_probs.size(), 2u);
  ASSERT_EQ(reply.log_probs[0].size(), 3u);
  EXPECT_EQ(reply.log_probs[0][0].text, "a");
  EXPECT_EQ(reply.log_probs[0][0].token, -1);
  EXPECT_EQ(reply.log_probs[0][1].text, "c");  // the best first
  EXPECT_EQ(reply.log_probs[0][1].log_prob, -0.25);
  EXPECT_EQ(reply.log_probs[1].size(), 1u);
  EXPECT_EQ(reply.log_probs[1][0].log_prob, -1.5);
}

TEST(ApiOpenAi, WhatItCannotDoIsRefusedBeforeItIsSent) {
  AskedServer server(kOpenAi, openai_script({text_chunk("a"), "[DONE]"}));
  EXPECT_THAT(server->complete(tests::sampled_request()).problem, HasSubstr("top_k"));
  EndpointRequest request = small_request();
  request.ignore_eos = true;
  EXPECT_THAT(server->complete(request).problem, HasSubstr("stop token"));
  request = small_request();
  request.prompt_text = "\xFF";
  EXPECT_THAT(server->complete(request).problem, HasSubstr("UTF-8"));
  EXPECT_TRUE(server.seen("/v1/completions").empty());
}

TEST(ApiOpenAi, Faults) {
  EXPECT_EQ(openai_reply({text_chunk("a"), text_chunk("b", R"("stop")"), kUsage}).fault,
            EndpointFault::kBroken);  // no [DONE]
  EXPECT_EQ(openai_reply({R"({"model":"other","choices":[{"text":"a"}]})", "[DONE]"}).fault,
            EndpointFault::kOtherModel);
  for (const char* wrong :
       {R"({"model":"m"})", R"({"choices":{}})", R"({"choices":[{"text":1}]})",
        R"({"choices":[{"text":"a"},{"text":"b"}]})",
        R"({"choices":[],"usage":{"completion_tokens":"5"}})",
        R"({"choices":[{"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[]}}]})",
        R"({"choices":[{"text":"a","logprobs":{"tokens":["a"],"token_logprobs":["x"]}}]})"})
    EXPECT_EQ(openai_reply({wrong, "[DONE]"}).fault, EndpointFault::kMalformed) << wrong;
  // Five tokens by its own count, where four were asked for.
  EXPECT_EQ(openai_reply({text_chunk("a"), kUsage, "[DONE]"}, small_request(4)).fault,
            EndpointFault::kOverLimit);
}

TEST(ApiOpenAi, CheckNamesTheModel) {
  AskedServer first(kOpenAi, openai_script({}));
  EXPECT_EQ(first->check(0), "m");
  AskedServer second(std::string(kOpenAi) + ",model=n", openai_script({}));
  EXPECT_EQ(second->check(0), "n");
  AskedServer third(std::string(kOpenAi) + ",model=x", openai_script({}));
  EXPECT_THROW(third->check(0), base::Error);
  // A server that lists nothing: the model must be named.
  AskedServer silent(kOpenAi, {});
  EXPECT_THROW(silent->check(0), base::Error);
  AskedServer named(std::string(kOpenAi) + ",model=x", {});
  EXPECT_EQ(named->check(0), "x");
  AskedServer empty(kOpenAi, {{"/v1/models", {json_reply(R"({"data":[]})")}}});
  EXPECT_THROW(empty->check(0), base::Error);
  EXPECT_EQ(empty->complete(small_request()).fault, EndpointFault::kMalformed);
}

}  // namespace
}  // namespace evalrun::runners
