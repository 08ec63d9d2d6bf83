#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/endpoints/asked_server.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using tests::arrived_texts;
using tests::arrived_tokens;
using tests::AskedServer;
using tests::event_reply;
using tests::small_request;

constexpr const char* kSglang = "api=sglang,cache=kept";

std::string sglang_event(const std::string& text, const std::string& ids, int total,
                         const std::string& finish = "null", const std::string& more = "") {
  return R"({"text":")" + text + R"(","output_ids":[)" + ids +
         R"(],"meta_info":{"id":"r","prompt_tokens":3,"cached_tokens":1,"completion_tokens":)" +
         std::to_string(total) + R"(,"finish_reason":)" + finish + more + "}}";
}
constexpr const char* kLength = R"({"type":"length","length":3})";

EndpointReply sglang_reply(std::vector<std::string> events) {
  AskedServer server(kSglang, {{"/generate", {event_reply(std::move(events))}}});
  return server->complete(small_request());
}

TEST(ApiSglang, SendsIdsAndSampling) {
  AskedServer server(
      kSglang, {{"/generate", {event_reply({sglang_event("a", "5", 1, kLength), "[DONE]"})}}});
  EndpointRequest request = tests::sampled_request();
  request.stop_texts = {"###"};
  request.ignore_eos = true;
  ASSERT_TRUE(server->complete(request).ok());
  EXPECT_EQ(server.body("/generate"), nlohmann::json::parse(R"({
    "input_ids": [1, 22, 333], "stream": true,
    "sampling_params": {"max_new_tokens": 8, "temperature": 0.75, "top_k": 40, "top_p": 0.5,
      "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
      "ignore_eos": true, "sampling_seed": 12345, "stop": ["###"]}})"));
}

TEST(ApiSglang, EventsThatRepeatTheAnswer) {
  const EndpointReply reply = sglang_reply(
      {sglang_event("a", "5", 1), sglang_event("abc", "5,6,7", 3),
       sglang_event("abcd", "5,6,7,8", 4, R"({"type":"stop","matched":2})"), "[DONE]"});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.text, "abcd");
  EXPECT_THAT(arrived_texts(reply), ElementsAre("a", "bc", "d"));
  EXPECT_THAT(arrived_tokens(reply), ElementsAre(1, 2, 1));
  EXPECT_THAT(reply.ids, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(reply.stop, EndpointStop::kStopToken);
  EXPECT_EQ(reply.counts.prompt_tokens, 3);
  EXPECT_EQ(reply.counts.cached_tokens, 1);
  EXPECT_EQ(reply.counts.new_tokens, 4);
  EXPECT_EQ(reply.counts.accepted, std::nullopt);
}

TEST(ApiSglang, EventsWithWhatIsNewAlone) {
  const EndpointReply reply =
      sglang_reply({sglang_event("a", "5", 1), sglang_event("bc", "6,7", 3),
                    sglang_event("d", "8", 4, R"({"type":"stop","matched":"###"})"), "[DONE]"});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.text, "abcd");
  EXPECT_THAT(arrived_tokens(reply), ElementsAre(1, 2, 1));
  EXPECT_THAT(reply.ids, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(reply.stop, EndpointStop::kStopText);
}

// Older servers send no ids; their count of tokens remains.
TEST(ApiSglang, EventsWithoutIds) {
  const EndpointReply reply =
      sglang_reply({R"({"text":"a","meta_info":{"completion_tokens":1,"finish_reason":null}})",
                    R"({"text":"abc","meta_info":{"completion_tokens":3,"finish_reason":)"
                    R"({"type":"length","length":3}}})",
                    "[DONE]"});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.text, "abc");
  EXPECT_THAT(reply.ids, IsEmpty());
  EXPECT_THAT(arrived_tokens(reply), ElementsAre(1, 2));
  EXPECT_EQ(reply.counts.new_tokens, 3);
  EXPECT_EQ(reply.stop, EndpointStop::kLimit);
}

// One token of the prefill, then three steps of 2 + 1, 0 + 1 and 1 + 1: seven, of which three were
// drafted.
TEST(ApiSglang, CountsOfDrafts) {
  const auto counts = [](const std::string& more) {
    const EndpointReply reply =
        sglang_reply({sglang_event("abcdefg", "1,2,3,4,5,6,7", 7, kLength, more), "[DONE]"});
    EXPECT_TRUE(reply.ok()) << reply.problem;
    return reply.counts;
  };
  const EndpointCounts derived = counts(R"(,"spec_verify_ct":3)");
  EXPECT_EQ(derived.drafts, 3);
  EXPECT_EQ(derived.accepted, 3);
  EXPECT_EQ(derived.drafted, std::nullopt);
  EXPECT_EQ(target_steps(7, derived), 4);
  const EndpointCounts given =
      counts(R"(,"spec_verify_ct":3,"spec_accept_token_num":3,"spec_draft_token_num":9)");
  EXPECT_EQ(given.accepted, 3);
  EXPECT_EQ(given.drafted, 9);
  const EndpointCounts newer =
      counts(R"(,"spec_verify_ct":3,"spec_num_correct_drafts":3,"spec_num_proposed_drafts":9)");
  EXPECT_EQ(newer.accepted, 3);
  EXPECT_EQ(newer.drafted, 9);
}

TEST(ApiSglang, LogProbabilities) {
  const std::string probs =
      R"(,"output_token_logprobs":[[-0.5,5,"a"],[-1.5,6,null]],)"
      R"("output_top_logprobs":[[[-0.25,7,"c"],[-0.5,5,"a"]],[[-1.5,6,"b"]]])";
  AskedServer server(kSglang,
                     {{"/generate",
                       {event_reply({sglang_event("a", "5", 1, "null",
                                                  R"(,"output_token_logprobs":[[-0.5,5,"a"]],)"
                                                  R"("output_top_logprobs":[[[-0.25,7,"c"]]])"),
                                     sglang_event("ab", "5,6", 2, kLength, probs), "[DONE]"})}}});
  EndpointRequest request = small_request();
  request.log_probs = 2;
  const EndpointReply reply = server->complete(request);
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(server.body("/generate")["top_logprobs_num"], 2);
  ASSERT_EQ(reply.log_probs.size(), 2u);
  EXPECT_EQ(reply.log_probs[0][0].token, 5);
  EXPECT_EQ(reply.log_probs[0][1].token, 7);
  ASSERT_EQ(reply.log_probs[1].size(), 2u);
  EXPECT_EQ(reply.log_probs[1][0].token, 6);
  EXPECT_EQ(reply.log_probs[1][0].log_prob, -1.5);
  EXPECT_EQ(reply.log_probs[1][1].text, "b");
}

TEST(ApiSglang, Faults) {
  const auto fault = [](const std::string& event) {
    return sglang_reply({sglang_event("ab", "5,6", 2), event, "[DONE]"}).fault;
  };
  EXPECT_EQ(fault(sglang_event("abc", "5,6,7", 4)), EndpointFault::kMalformed);
  EXPECT_EQ(fault(sglang_event("xbc", "5,6,7", 3)), EndpointFault::kMalformed);
  EXPECT_EQ(fault(R"({"text":"abc"})"), EndpointFault::kMalformed);
  EXPECT_EQ(fault(sglang_event("ab", "5,6", 2, R"({"type":"abort","message":"gone"})")),
            EndpointFault::kMalformed);
  EXPECT_EQ(fault(R"({"error":{"message":"too long","code":400}})"), EndpointFault::kRefused);
  EXPECT_EQ(fault(sglang_event("ab", "5,6,1,2,3,4,7,8,9", 9)), EndpointFault::kOverLimit);
  EXPECT_EQ(sglang_reply({sglang_event("a", "5", 1, kLength)}).fault, EndpointFault::kBroken);
}

// What the event before said is no part of the next answer, nor of the next attempt.
TEST(ApiSglang, AnswersDoNotMix) {
  AskedServer server(kSglang, {{"/generate",
                                {event_reply({sglang_event("ab", "5,6", 2)}),
                                 event_reply({sglang_event("c", "7", 1, kLength), "[DONE]"})}}});
  for (int i = 0; i < 2; ++i) {
    const EndpointReply reply = server->complete(small_request());
    ASSERT_TRUE(reply.ok()) << reply.problem;
    EXPECT_EQ(reply.text, "c");
    EXPECT_THAT(reply.ids, ElementsAre(7));
    EXPECT_EQ(reply.attempts, i == 0 ? 2 : 1);
  }
}

}  // namespace
}  // namespace evalrun::runners
