#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/endpoints/asked_server.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::AskedServer;
using tests::event_reply;
using tests::json_reply;
using tests::small_request;

constexpr const char* kTgi = "api=tgi,cache=kept";

std::string tgi_event(const std::string& text, int id, const std::string& details = "null",
                      bool special = false, const std::string& more = "") {
  return R"({"index":1,"token":{"id":)" + std::to_string(id) + R"(,"text":")" + text +
         R"(","logprob":-0.5,"special":)" + (special ? "true" : "false") + "}" + more +
         R"(,"generated_text":null,"details":)" + details + "}";
}

std::string tgi_details(const std::string& reason, int tokens) {
  return R"({"finish_reason":")" + reason + R"(","generated_tokens":)" + std::to_string(tokens) +
         R"(,"input_length":4,"seed":null})";
}

EndpointReply tgi_reply(std::vector<std::string> events,
                        const EndpointRequest& request = small_request()) {
  AskedServer server(kTgi, {{"/generate_stream", {event_reply(std::move(events))}}});
  return server->complete(request);
}

TEST(ApiTgi, SendsTextAndSampling) {
  AskedServer server(
      kTgi, {{"/generate_stream", {event_reply({tgi_event("a", 5, tgi_details("length", 1))})}}});
  EndpointRequest request = tests::sampled_request();
  request.stop_texts = {"###"};
  request.log_probs = 3;
  ASSERT_TRUE(server->complete(request).ok());
  EXPECT_EQ(server.body("/generate_stream"), nlohmann::json::parse(R"({
    "inputs": "Once upon",
    "parameters": {"max_new_tokens": 8, "do_sample": true, "temperature": 0.75, "top_k": 40,
      "top_p": 0.5, "seed": 12345, "stop": ["###"], "top_n_tokens": 3, "details": true,
      "decoder_input_details": false, "return_full_text": false}})"));
  // Greedy: it refuses a temperature of 0.
  server->complete(small_request());
  EXPECT_EQ(server.body("/generate_stream")["parameters"], nlohmann::json::parse(R"({
    "max_new_tokens": 8, "do_sample": false, "details": true, "decoder_input_details": false,
    "return_full_text": false})"));
}

TEST(ApiTgi, ATokenAnEvent) {
  const EndpointReply reply = tgi_reply({tgi_event("one", 5), tgi_event(" two", 6),
                                         tgi_event("</s>", 2, tgi_details("eos_token", 3), true)});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.text, "one two");
  EXPECT_THAT(reply.ids, ElementsAre(5, 6, 2));
  EXPECT_THAT(tests::arrived_tokens(reply), ElementsAre(1, 1, 1));
  EXPECT_EQ(reply.stop, EndpointStop::kStopToken);
  EXPECT_EQ(reply.counts.new_tokens, 3);
  EXPECT_EQ(reply.counts.prompt_tokens, 4);
  EXPECT_EQ(reply.counts.accepted, std::nullopt);
  EXPECT_TRUE(reply.log_probs.empty());
  EXPECT_EQ(tgi_reply({tgi_event("a", 5, tgi_details("length", 1))}).stop, EndpointStop::kLimit);
  EXPECT_EQ(tgi_reply({tgi_event("a", 5, tgi_details("stop_sequence", 1))}).stop,
            EndpointStop::kStopText);
}

TEST(ApiTgi, LogProbabilities) {
  EndpointRequest request = small_request();
  request.log_probs = 1;
  const EndpointReply reply = tgi_reply(
      {tgi_event("a", 5, tgi_details("length", 1), false,
                 R"(,"top_tokens":[{"id":7,"text":"c","logprob":-0.25,"special":false}])")},
      request);
  ASSERT_TRUE(reply.ok()) << reply.problem;
  ASSERT_EQ(reply.log_probs.size(), 1u);
  ASSERT_EQ(reply.log_probs[0].size(), 2u);
  EXPECT_EQ(reply.log_probs[0][0].token, 5);
  EXPECT_EQ(reply.log_probs[0][0].log_prob, -0.5);
  EXPECT_EQ(reply.log_probs[0][1].token, 7);
  EXPECT_EQ(reply.log_probs[0][1].text, "c");
}

TEST(ApiTgi, Faults) {
  EXPECT_EQ(tgi_reply({tgi_event("a", 5)}).fault, EndpointFault::kBroken);
  EXPECT_EQ(tgi_reply({R"({"index":1})"}).fault, EndpointFault::kMalformed);
  EXPECT_EQ(tgi_reply({tgi_event("a", 5, R"({"finish_reason":"length"})")}).fault,
            EndpointFault::kMalformed);
  EXPECT_EQ(tgi_reply({R"({"error":"Model is overloaded","error_type":"overloaded"})"}).fault,
            EndpointFault::kBusy);
  const EndpointReply invalid =
      tgi_reply({R"({"error":"`inputs` must be shorter","error_type":"validation"})"});
  EXPECT_EQ(invalid.fault, EndpointFault::kRefused);
  EXPECT_THAT(invalid.problem, HasSubstr("must be shorter"));
  EXPECT_EQ(tgi_reply({R"({"error":"Request failed","error_type":"generation"})"}).fault,
            EndpointFault::kServerError);
  // Its status of a failed generation is 424.
  AskedServer failed(kTgi, {{"/generate_stream", {json_reply(R"({"error":"oom"})", 424)}}});
  EXPECT_EQ(failed->complete(small_request()).fault, EndpointFault::kServerError);
}

TEST(ApiTgi, CheckReadsTheModel) {
  AskedServer server(kTgi, {{"/health", {json_reply("")}},
                            {"/info", {json_reply(R"({"model_id":"org/m","version":"3"})")}}});
  EXPECT_EQ(server->check(0), "org/m");
  AskedServer other("api=tgi,cache=kept,model=org/n",
                    {{"/info", {json_reply(R"({"model_id":"org/m"})")}}});
  EXPECT_THROW(other->check(0), base::Error);
}

}  // namespace
}  // namespace evalrun::runners
