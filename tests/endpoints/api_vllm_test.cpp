#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/endpoints/asked_server.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using tests::arrived_tokens;
using tests::AskedServer;
using tests::event_reply;
using tests::json_reply;
using tests::Script;
using tests::ScriptedReply;
using tests::small_request;

std::string ids_chunk(const std::string& text, const std::string& ids,
                      const std::string& more = R"("finish_reason":null)") {
  return R"({"model":"m","choices":[{"index":0,"text":")" + text + R"(","token_ids":[)" + ids +
         "]," + more + "}]}";
}

std::string usage_chunk(int tokens) {
  return R"({"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":)" +
         std::to_string(tokens) + "}}";
}

// Counters of /metrics; `drafts` < 0: a server without speculation.
ScriptedReply vllm_metrics(int generated, int drafts, int drafted, int accepted,
                           double decode_s = 1) {
  std::string text = fmt::format(
      "# TYPE vllm:generation_tokens_total counter\n"
      "vllm:generation_tokens_total{{engine=\"0\",model_name=\"m\"}} {}\n"
      "vllm:prefix_cache_hits_total{{engine=\"0\"}} 16\n"
      "vllm:request_decode_time_seconds_sum{{engine=\"0\"}} {}\n",
      generated, decode_s);
  if (drafts >= 0)
    text += fmt::format(
        "vllm:spec_decode_num_drafts_total{{engine=\"0\"}} {}\n"
        "vllm:spec_decode_num_draft_tokens_total{{engine=\"0\"}} {}\n"
        "vllm:spec_decode_num_accepted_tokens_total{{engine=\"0\"}} {}\n",
        drafts, drafted, accepted);
  ScriptedReply reply = json_reply(text);
  reply.headers = {{"Content-Type", "text/plain; version=0.0.4"}};
  return reply;
}

Script vllm_script(std::vector<std::string> events, std::vector<ScriptedReply> metrics = {}) {
  return {{"/v1/models", {json_reply(R"({"data":[{"id":"m"}]})")}},
          {"/v1/completions", {event_reply(std::move(events))}},
          {"/metrics", std::move(metrics)}};
}

const std::vector<std::string>& vllm_answer() {
  static const std::vector<std::string> events = {
      ids_chunk("a", "5", R"("prompt_token_ids":[1,22,333],"finish_reason":null)"),
      ids_chunk("bcd", "6,7,8"), ids_chunk("", "2", R"("finish_reason":"stop","stop_reason":null)"),
      usage_chunk(5), "[DONE]"};
  return events;
}

TEST(ApiVllm, SendsIdsAndTheSamplingThatWasAsked) {
  AskedServer server("api=vllm", vllm_script(vllm_answer()), false);
  EndpointRequest request = tests::sampled_request();
  request.ignore_eos = true;
  ASSERT_TRUE(server->complete(request).ok());
  nlohmann::json body = server.body("/v1/completions");
  const std::string salt = body["cache_salt"];
  body.erase("cache_salt");
  EXPECT_EQ(body, nlohmann::json::parse(R"({
    "model": "m", "prompt": [1, 22, 333], "max_tokens": 8, "temperature": 0.75, "top_p": 0.5,
    "top_k": 40, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "seed": 12345, "ignore_eos": true, "return_token_ids": true,
    "stream": true, "stream_options": {"include_usage": true}})"));
  // Greedy: no seed, and -1 for a top_k that is off. Another salt.
  server->complete(small_request());
  body = server.body("/v1/completions");
  EXPECT_FALSE(body.contains("seed"));
  EXPECT_EQ(body["top_k"], -1);
  EXPECT_NE(body["cache_salt"], salt);
}

TEST(ApiVllm, ACacheThatIsKeptHasNoSalt) {
  for (const char* cache : {"kept", "declared-off"}) {
    AskedServer server(std::string("api=vllm,cache=") + cache, vllm_script(vllm_answer()), false);
    server->complete(small_request());
    EXPECT_FALSE(server.body("/v1/completions").contains("cache_salt")) << cache;
  }
}

TEST(ApiVllm, PiecesOfSeveralTokens) {
  AskedServer server("api=vllm", vllm_script(vllm_answer()), false);
  const EndpointReply reply = server->complete(small_request());
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.text, "abcd");
  EXPECT_THAT(reply.ids, ElementsAre(5, 6, 7, 8, 2));
  EXPECT_THAT(arrived_tokens(reply), ElementsAre(1, 3, 1));
  EXPECT_EQ(reply.stop, EndpointStop::kStopToken);
  EXPECT_EQ(reply.counts.prompt_tokens, 3);
  EXPECT_EQ(reply.counts.new_tokens, 5);
  // Not alone on the server: its counters say nothing, and are not read.
  EXPECT_EQ(reply.counts.drafted, std::nullopt);
  EXPECT_TRUE(server.seen("/metrics").empty());
  EXPECT_FALSE(server->abilities().counts_drafts);
}

TEST(ApiVllm, StopTextsAndStopTokens) {
  const auto stop = [](const std::string& reason) {
    AskedServer server("api=vllm",
                       vllm_script({ids_chunk("a", "5", reason), usage_chunk(1), "[DONE]"}), false);
    return server->complete(small_request()).stop;
  };
  EXPECT_EQ(stop(R"("finish_reason":"stop","stop_reason":"###")"), EndpointStop::kStopText);
  EXPECT_EQ(stop(R"("finish_reason":"stop","stop_reason":151645)"), EndpointStop::kStopToken);
  EXPECT_EQ(stop(R"("finish_reason":"length","stop_reason":null)"), EndpointStop::kLimit);
}

TEST(ApiVllm, CountersAroundARequestThatIsAlone) {
  AskedServer server("api=vllm", vllm_script(vllm_answer(), {vllm_metrics(100, 10, 40, 20, 1.5),
                                                             vllm_metrics(105, 12, 48, 22, 1.75)}));
  const EndpointReply reply = server->complete(small_request());
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.counts.drafts, 2);
  EXPECT_EQ(reply.counts.drafted, 8);
  EXPECT_EQ(reply.counts.accepted, 2);
  EXPECT_EQ(reply.counts.cached_tokens, 0);
  EXPECT_EQ(reply.counts.decode_ms, 250.0);
  EXPECT_EQ(reply.counts.prompt_ms, std::nullopt);  // no such counter there
  EXPECT_EQ(target_steps(5, reply.counts), 3);
  EXPECT_TRUE(server->abilities().counts_drafts);
}

TEST(ApiVllm, CountersThatFollowByAMoment) {
  AskedServer server("api=vllm", vllm_script(vllm_answer(), {vllm_metrics(100, 10, 40, 20),
                                                             vllm_metrics(103, 11, 44, 22),
                                                             vllm_metrics(105, 12, 48, 22)}));
  EXPECT_EQ(server->complete(small_request()).counts.accepted, 2);
}

// The last step drafted four tokens, all right, and the answer ended after one of them.
TEST(ApiVllm, AcceptedTokensBehindTheEndAreNotOfTheAnswer) {
  AskedServer server(
      "api=vllm",
      vllm_script({ids_chunk("a", "5"), ids_chunk("bcd", "6,7,8"),
                   ids_chunk("e", "9", R"("finish_reason":"length")"), usage_chunk(5), "[DONE]"},
                  {vllm_metrics(100, 10, 40, 20), vllm_metrics(105, 12, 48, 26)}));
  const EndpointReply reply = server->complete(small_request());
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.counts.drafted, 8);
  EXPECT_EQ(reply.counts.accepted, 2);
  EXPECT_EQ(target_steps(5, reply.counts), 3);
}

// Somebody else's tokens are among them: no counts.
TEST(ApiVllm, CountersOfOthersAreNotTaken) {
  AskedServer server("api=vllm", vllm_script(vllm_answer(), {vllm_metrics(100, 10, 40, 20),
                                                             vllm_metrics(112, 14, 60, 30)}));
  const EndpointReply reply = server->complete(small_request());
  EXPECT_TRUE(reply.ok());
  EXPECT_EQ(reply.counts.drafted, std::nullopt);
  EXPECT_EQ(reply.counts.accepted, std::nullopt);
  // A server that was restarted, and one without counters.
  AskedServer anew("api=vllm", vllm_script(vllm_answer(), {vllm_metrics(100, 10, 40, 20),
                                                           vllm_metrics(5, 2, 8, 3)}));
  EXPECT_EQ(anew->complete(small_request()).counts.accepted, std::nullopt);
  AskedServer none("api=vllm", vllm_script(vllm_answer()));
  EXPECT_EQ(none->complete(small_request()).counts.accepted, std::nullopt);
}

// With --per-request-spec-decode-metrics and --enable-per-request-metrics.
const char* const kOwnMetrics =
    R"("metrics":{"time_to_first_token_ms":12.5,"generation_time_ms":80.25,"queue_time_ms":0.5,)"
    R"("mean_itl_ms":20.0,"tokens_per_second":50.0,"speculative_decoding":{)"
    R"("mean_acceptance_length":2.0,"draft_acceptance_rate":0.25,"acceptance_histogram":[1,0,1,0,0],)"
    R"("num_spec_steps":2,"num_accepted_draft_tokens":2,"num_draft_tokens":8,"num_spec_tokens":4}})";

std::string usage_with(const std::string& more) {
  std::string chunk = usage_chunk(5);
  chunk.insert(chunk.size() - 1, "," + more);
  return chunk;
}

// Other clients are asking, too: the answer has its own counts, and /metrics is not read.
TEST(ApiVllm, CountsInTheAnswerItself) {
  std::vector<std::string> events = vllm_answer();
  events[3] = usage_with(kOwnMetrics);
  AskedServer server("api=vllm", vllm_script(events), false);
  const EndpointReply reply = server->complete(small_request());
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.counts.drafts, 2);
  EXPECT_EQ(reply.counts.drafted, 8);
  EXPECT_EQ(reply.counts.accepted, 2);
  EXPECT_EQ(reply.counts.prompt_ms, 12.5);
  EXPECT_EQ(reply.counts.decode_ms, 80.25);
  EXPECT_TRUE(server.seen("/metrics").empty());
}

// They stand, whatever the counters of the whole server say; those add what the answer lacks.
TEST(ApiVllm, CountsOfTheAnswerComeBeforeCounters) {
  std::vector<std::string> events = vllm_answer();
  events[3] = usage_with(kOwnMetrics);
  AskedServer server("api=vllm", vllm_script(events, {vllm_metrics(100, 10, 40, 20, 1.5),
                                                      vllm_metrics(105, 19, 90, 60, 1.75)}));
  const EndpointReply reply = server->complete(small_request());
  EXPECT_EQ(reply.counts.drafts, 2);
  EXPECT_EQ(reply.counts.drafted, 8);
  EXPECT_EQ(reply.counts.decode_ms, 80.25);
  EXPECT_EQ(reply.counts.cached_tokens, 0);
}

TEST(ApiVllm, MetricsWithoutDraftsAndOfAnotherForm) {
  const auto asked = [](const std::string& metrics) {
    std::vector<std::string> events = vllm_answer();
    events[3] = usage_with(metrics);
    AskedServer server("api=vllm", vllm_script(events), false);
    return server->complete(small_request());
  };
  for (const char* metrics : {R"("metrics":null)", R"("metrics":{"speculative_decoding":null})",
                              R"("metrics":{"time_to_first_token_ms":null})"}) {
    const EndpointReply reply = asked(metrics);
    EXPECT_TRUE(reply.ok()) << reply.problem;
    EXPECT_EQ(reply.counts.accepted, std::nullopt) << metrics;
    EXPECT_EQ(reply.counts.prompt_ms, std::nullopt) << metrics;
  }
  const EndpointReply odd = asked(R"("metrics":{"speculative_decoding":{"num_spec_steps":"2"}})");
  EXPECT_EQ(odd.fault, EndpointFault::kMalformed);
  EXPECT_NE(odd.problem.find("event.metrics.speculative_decoding.num_spec_steps"),
            std::string::npos)
      << odd.problem;
}

TEST(ApiVllm, AServerWithoutSpeculationDraftsNothing) {
  AskedServer server("api=vllm", vllm_script(vllm_answer(), {vllm_metrics(100, -1, 0, 0),
                                                             vllm_metrics(105, -1, 0, 0)}));
  const EndpointReply reply = server->complete(small_request());
  EXPECT_EQ(reply.counts.drafted, 0);
  EXPECT_EQ(target_steps(5, reply.counts), 5);
}

TEST(ApiVllm, LogProbabilitiesByTokenId) {
  const std::string probs =
      R"("finish_reason":"length","logprobs":{"tokens":["token_id:5"],"token_logprobs":[-0.5],)"
      R"("top_logprobs":[{"token_id:5":-0.5,"token_id:9":-0.25}]})";
  AskedServer server("api=vllm",
                     vllm_script({ids_chunk("a", "5", probs), usage_chunk(1), "[DONE]"}), false);
  EndpointRequest request = small_request();
  request.log_probs = 2;
  const EndpointReply reply = server->complete(request);
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(server.body("/v1/completions")["logprobs"], 2);
  EXPECT_EQ(server.body("/v1/completions")["return_tokens_as_token_ids"], true);
  ASSERT_EQ(reply.log_probs.size(), 1u);
  ASSERT_EQ(reply.log_probs[0].size(), 3u);
  EXPECT_EQ(reply.log_probs[0][0].token, 5);
  EXPECT_EQ(reply.log_probs[0][1].token, 9);
  EXPECT_EQ(reply.log_probs[0][1].log_prob, -0.25);
}

// Four ids where the server counts five: none of them can be placed.
TEST(ApiVllm, IdsThatDoNotCoverTheAnswer) {
  AskedServer server("api=vllm",
                     vllm_script({ids_chunk("abcd", "5,6,7,8", R"("finish_reason":"length")"),
                                  usage_chunk(5), "[DONE]"}),
                     false);
  const EndpointReply reply = server->complete(small_request());
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_THAT(reply.ids, IsEmpty());
  EXPECT_THAT(arrived_tokens(reply), ElementsAre(0));
  EXPECT_EQ(reply.counts.new_tokens, 5);
}

TEST(ApiVllm, WithoutUsageIdsAreCounted) {
  AskedServer server("api=vllm",
                     vllm_script({ids_chunk("ab", "5,6", R"("finish_reason":"length")"), "[DONE]"}),
                     false);
  EXPECT_EQ(server->complete(small_request()).counts.new_tokens, 2);
}

TEST(ApiVllm, AnErrorInTheStream) {
  AskedServer server(
      "api=vllm",
      vllm_script({ids_chunk("a", "5"),
                   R"({"error":{"message":"engine died","type":"InternalServerError","code":500}})",
                   "[DONE]"}),
      false);
  EXPECT_EQ(server->complete(small_request()).fault, EndpointFault::kServerError);
}

}  // namespace
}  // namespace evalrun::runners
