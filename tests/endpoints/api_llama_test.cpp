#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/endpoints/asked_server.h"
#include "tests/scoped_variable.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::arrived_tokens;
using tests::AskedServer;
using tests::event_reply;
using tests::json_reply;
using tests::llama_last;
using tests::llama_piece;
using tests::small_request;

constexpr const char* kLlamaModels = R"({"object":"list","data":[{"id":"m.gguf"}]})";

std::string llama_check_error(AskedServer& server, double wait_s = 0) {
  try {
    return "no error: " + server->check(wait_s);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kData) << error.what();
    return error.what();
  }
}

EndpointReply llama_reply(std::vector<std::string> events) {
  AskedServer server("api=llama", {{"/completion", {event_reply(std::move(events))}}});
  const EndpointReply reply = server->complete(small_request());
  EXPECT_TRUE(reply.ok()) << reply.problem;
  return reply;
}

TEST(ApiLlama, SendsIdsAndTheSamplingThatWasAsked) {
  AskedServer server("api=llama", {{"/completion", {event_reply({llama_last(0)})}}});
  EndpointRequest request = tests::sampled_request();
  request.stop_texts = {"\n\n"};
  request.ignore_eos = true;
  server->complete(request);
  const nlohmann::json body = server.body("/completion");
  EXPECT_EQ(body["prompt"], nlohmann::json({1, 22, 333}));
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["return_tokens"], true);
  EXPECT_EQ(body["n_predict"], 8);
  EXPECT_EQ(body["temperature"], 0.75);
  EXPECT_EQ(body["top_k"], 40);
  EXPECT_EQ(body["top_p"], 0.5);
  EXPECT_EQ(body["samplers"], nlohmann::json({"temperature", "top_k", "top_p"}));
  EXPECT_EQ(body["seed"], 12345);
  EXPECT_EQ(body["stop"], nlohmann::json::array({"\n\n"}));
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["cache_prompt"], false);
  EXPECT_EQ(body["min_p"], 0.0);
  EXPECT_EQ(body["typical_p"], 1.0);
  EXPECT_EQ(body["repeat_penalty"], 1.0);
  EXPECT_EQ(body["dry_multiplier"], 0.0);
  EXPECT_EQ(body["xtc_probability"], 0.0);
  EXPECT_EQ(body["mirostat"], 0);
  EXPECT_FALSE(body.contains("n_probs"));
  EXPECT_FALSE(body.contains("model"));
}

TEST(ApiLlama, GreedyHasNoSamplerButTheTemperature) {
  AskedServer server("api=llama,cache=kept,model=m.gguf",
                     {{"/completion", {event_reply({llama_last(0)})}}});
  EndpointRequest request = tests::sampled_request();
  request.sampling.temperature = 0;
  server->complete(request);
  const nlohmann::json body = server.body("/completion");
  EXPECT_EQ(body["temperature"], 0.0);
  EXPECT_EQ(body["samplers"], nlohmann::json::array({"temperature"}));
  EXPECT_EQ(body["top_k"], 0);
  EXPECT_EQ(body["top_p"], 1.0);
  EXPECT_FALSE(body.contains("seed"));
  EXPECT_EQ(body["cache_prompt"], true);
  EXPECT_EQ(body["model"], "m.gguf");
}

// 2^32 - 1 would be a random seed.
TEST(ApiLlama, NoSeedIsTheRandomOne) {
  AskedServer server("api=llama", {{"/completion", {event_reply({llama_last(0)})}}});
  EndpointRequest request = tests::sampled_request();
  for (const uint64_t seed : {uint64_t{0xFFFFFFFF}, uint64_t{0xFFFFFFFFFFFFFFFF}, uint64_t{7}}) {
    request.seed = seed;
    server->complete(request);
    EXPECT_LT(server.body("/completion")["seed"].get<uint64_t>(), 0xFFFFFFFFu) << seed;
  }
}

TEST(ApiLlama, ReadsIdsCountsAndTimes) {
  const EndpointReply reply =
      llama_reply({llama_piece("a", "5", 1), llama_piece("", "6", 2), llama_piece("bc", "7", 3),
                   llama_last(3, "eos", R"(,"draft_n":4,"draft_n_accepted":2)")});
  EXPECT_EQ(reply.text, "abc");
  EXPECT_THAT(reply.ids, ElementsAre(5, 6, 7));
  EXPECT_THAT(arrived_tokens(reply), ElementsAre(1, 1, 1));
  EXPECT_EQ(reply.stop, EndpointStop::kStopToken);
  EXPECT_EQ(reply.model, "m.gguf");
  EXPECT_EQ(reply.counts.prompt_tokens, 3);
  EXPECT_EQ(reply.counts.cached_tokens, 1);
  EXPECT_EQ(reply.counts.new_tokens, 3);
  EXPECT_EQ(reply.counts.drafted, 4);
  EXPECT_EQ(reply.counts.accepted, 2);
  EXPECT_EQ(reply.counts.drafts, std::nullopt);
  EXPECT_EQ(reply.counts.prompt_ms, 12.5);
  EXPECT_EQ(reply.counts.decode_ms, 50.25);
  EXPECT_EQ(target_steps(3, reply.counts), 1);
}

TEST(ApiLlama, StopReasonsAndServersThatDoNotDraft) {
  const EndpointReply word = llama_reply({llama_piece("a", "5", 1), llama_last(1, "word")});
  EXPECT_EQ(word.stop, EndpointStop::kStopText);
  EXPECT_EQ(word.counts.drafted, 0);
  EXPECT_EQ(word.counts.accepted, 0);
  EXPECT_EQ(llama_reply({llama_last(0, "limit")}).stop, EndpointStop::kLimit);
  EXPECT_EQ(llama_reply({llama_last(0, "none")}).stop, EndpointStop::kUnknown);
  // An older server without timings: nothing is known of drafts.
  const EndpointReply bare = llama_reply({R"({"content":"","stop":true})"});
  EXPECT_EQ(bare.counts.drafted, std::nullopt);
  EXPECT_EQ(bare.counts.new_tokens, std::nullopt);
}

TEST(ApiLlama, PiecesOfSeveralTokens) {
  const EndpointReply reply =
      llama_reply({llama_piece("abc", "5,6,7", 3), llama_piece("d", "8", 4), llama_last(4)});
  EXPECT_THAT(arrived_tokens(reply), ElementsAre(3, 1));
  EXPECT_THAT(reply.ids, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(reply.counts.new_tokens, 4);
}

// The server sends no event for a token that ends within a character: its id is lost.
TEST(ApiLlama, IdsThatAreNotAllThereAreNone) {
  const EndpointReply reply =
      llama_reply({llama_piece("a", "5", 1), llama_piece("\xE2\x82\xAC", "7", 3),
                   llama_piece("b", "8", 4), llama_last(4, "eos")});
  EXPECT_THAT(reply.ids, IsEmpty());
  EXPECT_THAT(arrived_tokens(reply), ElementsAre(1, 2, 1));
  EXPECT_EQ(reply.counts.new_tokens, 4);
  EXPECT_EQ(reply.text,
            "a\xE2\x82\xAC"
            "b");
}

// Accepted draft tokens behind the stop token are counted, but are no part of the answer.
TEST(ApiLlama, TokensBehindTheStopDoNotCount) {
  const EndpointReply reply =
      llama_reply({llama_piece("a", "5", 1), llama_piece("", "2", 4), llama_last(4, "eos")});
  EXPECT_THAT(reply.ids, ElementsAre(5, 2));
  EXPECT_EQ(reply.counts.new_tokens, 2);
  EXPECT_THAT(arrived_tokens(reply), ElementsAre(1, 1));
  // At the limit it is a character that was cut.
  const EndpointReply cut = llama_reply({llama_piece("a", "5", 1), llama_last(2, "limit")});
  EXPECT_THAT(cut.ids, IsEmpty());
  EXPECT_EQ(cut.counts.new_tokens, 2);
}

TEST(ApiLlama, LogProbabilitiesOfEachToken) {
  const auto piece = [](int id, const std::string& probs) {
    return R"({"content":"a","tokens":[)" + std::to_string(id) +
           R"(],"stop":false,"tokens_predicted":1)" + probs + "}";
  };
  const std::string probs =
      R"(,"completion_probabilities":[{"id":5,"token":"a","bytes":[97],"logprob":-0.5,)"
      R"("top_logprobs":[{"id":6,"token":"b","logprob":-0.25},)"
      R"({"id":5,"token":"a","logprob":-0.5}]}])";
  AskedServer server("api=llama",
                     {{"/completion",
                       {event_reply({piece(5, probs), llama_last(1)}),
                        event_reply({piece(5, probs), piece(6, ""), llama_last(2)})}}});
  EndpointRequest request = small_request();
  request.log_probs = 2;
  const EndpointReply reply = server->complete(request);
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(server.body("/completion")["n_probs"], 2);
  EXPECT_EQ(server.body("/completion")["post_sampling_probs"], false);
  ASSERT_EQ(reply.log_probs.size(), 1u);
  ASSERT_EQ(reply.log_probs[0].size(), 3u);
  EXPECT_EQ(reply.log_probs[0][0].token, 5);
  EXPECT_EQ(reply.log_probs[0][0].log_prob, -0.5);
  EXPECT_EQ(reply.log_probs[0][1].token, 6);
  EXPECT_EQ(reply.log_probs[0][1].text, "b");
  EXPECT_EQ(reply.log_probs[0][1].log_prob, -0.25);
  // Drafted tokens come without: what does not cover the answer is left out.
  const EndpointReply drafted = server->complete(request);
  EXPECT_THAT(drafted.ids, ElementsAre(5, 6));
  EXPECT_THAT(drafted.log_probs, IsEmpty());
}

TEST(ApiLlama, CheckWaitsForTheModel) {
  const auto loading = json_reply(
      R"({"error":{"code":503,"message":"Loading model","type":"unavailable_error"}})", 503);
  AskedServer server("api=llama", {{"/health", {loading, loading, json_reply("{}")}},
                                   {"/v1/models", {json_reply(kLlamaModels)}}});
  EXPECT_THAT(llama_check_error(server),
              AllOf(HasSubstr("loading"), HasSubstr("Loading model"), HasSubstr(server.url())));
  EXPECT_EQ(server->check(5), "m.gguf");
  EXPECT_EQ(server.seen("/health").size(), 3u);
}

TEST(ApiLlama, CheckFindsAnotherModelAndAKeyThatIsRefused) {
  AskedServer other("api=llama,model=n.gguf", {{"/v1/models", {json_reply(kLlamaModels)}}});
  EXPECT_THAT(llama_check_error(other, 5),
              AllOf(HasSubstr("serves m.gguf, not n.gguf"), HasSubstr("model=")));
  const tests::ScopedVariable key("EVALRUN_TEST_KEY", "sk-1");
  AskedServer refuses(
      "api=llama,key-env=EVALRUN_TEST_KEY",
      {{"/health", {json_reply("{}")}},
       {"/v1/models", {json_reply(kLlamaModels)}},
       {"/props", {json_reply(R"({"error":{"message":"Invalid API Key"}})", 401)}}});
  EXPECT_THAT(llama_check_error(refuses, 5),
              AllOf(HasSubstr("Invalid API Key"), HasSubstr("EVALRUN_TEST_KEY")));
  AskedServer nonsense("api=llama", {{"/v1/models", {json_reply("<html>")}}});
  EXPECT_THAT(llama_check_error(nonsense), HasSubstr("not valid JSON"));
}

TEST(ApiLlama, AnswersWithAnotherModel) {
  AskedServer server("api=llama,model=n.gguf", {{"/completion", {event_reply({llama_last(0)})}}});
  const EndpointReply reply = server->complete(small_request());
  EXPECT_EQ(reply.fault, EndpointFault::kOtherModel);
  EXPECT_THAT(reply.problem, AllOf(HasSubstr("m.gguf"), HasSubstr("n.gguf"), HasSubstr("model=")));
}

}  // namespace
}  // namespace evalrun::runners
