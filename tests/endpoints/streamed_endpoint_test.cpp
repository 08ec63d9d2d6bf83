// What all APIs share, by the one of llama-server: attempts, faults and their messages, bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "engine/base/error.h"
#include "engine/net/http_client.h"
#include "tests/endpoints/asked_server.h"
#include "tests/scoped_variable.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::AskedServer;
using tests::event_reply;
using tests::json_reply;
using tests::llama_last;
using tests::llama_piece;
using tests::ScriptedReply;
using tests::small_request;

const ScriptedReply& good_answer() {
  static const ScriptedReply reply =
      event_reply({llama_piece("a", "5", 1), llama_piece("b", "6", 2), llama_last(2)});
  return reply;
}

ScriptedReply status_reply(int status, const std::string& message) {
  return json_reply(R"({"error":{"message":")" + message + R"("}})", status);
}

EndpointReply ask_once(std::vector<ScriptedReply> replies, const std::string& options = "api=llama",
                       int max_new = 8) {
  AskedServer server(options, {{"/completion", std::move(replies)}});
  return server->complete(small_request(max_new));
}

TEST(StreamedEndpoint, ACompleteAnswerIsOneAttempt) {
  const EndpointReply reply = ask_once({good_answer()});
  EXPECT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.problem, "");
  EXPECT_EQ(reply.attempts, 1);
  EXPECT_EQ(reply.text, "ab");
  EXPECT_THAT(reply.ids, ElementsAre(5, 6));
}

TEST(StreamedEndpoint, SettlesForAsLongAsWasSaid) {
  const auto seconds = [](const char* options) {
    const AskedServer server(options, {});
    const auto begin = std::chrono::steady_clock::now();
    server->settle();
    EXPECT_TRUE(server.seen("/completion").empty());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  EXPECT_GE(seconds("api=llama,settle=0.12"), 0.12);
  EXPECT_LT(seconds("api=llama"), 0.1);
}

TEST(StreamedEndpoint, ArrivalsAreTimedFromTheRequest) {
  ScriptedReply slow = good_answer();
  slow.pieces[1].wait_ms = 15;
  slow.pieces[2].wait_ms = 10;
  const EndpointReply reply = ask_once({slow});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  ASSERT_EQ(reply.arrivals.size(), 2u);
  EXPECT_GE(reply.arrivals[0].ns, 0);
  EXPECT_LT(reply.arrivals[0].ns, reply.arrivals[1].ns);
  EXPECT_GE(reply.arrivals[1].ns, 15'000'000);
  EXPECT_GE(reply.total_ns, 25'000'000);
  EXPECT_LT(reply.total_ns, 5'000'000'000);
}

// Attempts are counted; the time is that of the last one.
TEST(StreamedEndpoint, AsksAgainAfterFaultsThatPass) {
  ScriptedReply late = status_reply(500, "out of memory");
  late.pieces.front().wait_ms = 300;
  const EndpointReply reply = ask_once({late, status_reply(503, "Loading model"), good_answer()});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.attempts, 3);
  EXPECT_EQ(reply.text, "ab");
  EXPECT_LT(reply.total_ns, 300'000'000);
}

TEST(StreamedEndpoint, GivesUpAfterItsRetries) {
  const EndpointReply reply = ask_once({status_reply(500, "out of memory")});
  EXPECT_EQ(reply.fault, EndpointFault::kServerError);
  EXPECT_EQ(reply.attempts, 3);  // two retries
  EXPECT_THAT(reply.problem, AllOf(HasSubstr("http://127.0.0.1:"), HasSubstr("answered 500"),
                                   HasSubstr("out of memory"), HasSubstr("log")));
  EXPECT_EQ(reply.text, "");
  EXPECT_TRUE(reply.arrivals.empty());
}

TEST(StreamedEndpoint, WaitsAsLongAsTheServerAsks) {
  ScriptedReply busy = status_reply(429, "slow down");
  busy.headers.emplace_back("Retry-After", "0.04");
  const auto begin = std::chrono::steady_clock::now();
  const EndpointReply reply = ask_once({busy, good_answer()});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(40));
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.attempts, 2);
}

// An hour is longer than a whole request may take.
TEST(StreamedEndpoint, DoesNotWaitForever) {
  ScriptedReply busy = status_reply(429, "slow down");
  busy.headers.emplace_back("Retry-After", "3600");
  const EndpointReply reply = ask_once({busy, good_answer()});
  EXPECT_EQ(reply.fault, EndpointFault::kBusy);
  EXPECT_EQ(reply.attempts, 1);
  EXPECT_EQ(reply.retry_after_s, 3600);
}

TEST(StreamedEndpoint, RefusalsAreNotRepeated) {
  struct Case {
    int status;
    const char* remedy;
  };
  for (const Case& one : {Case{400, "lengths asked for"}, Case{401, "key-env="},
                          Case{403, "key-env="}, Case{404, "model="}, Case{302, "redirects"}}) {
    const EndpointReply reply = ask_once({status_reply(one.status, "no, because"), good_answer()});
    EXPECT_EQ(reply.fault, EndpointFault::kRefused) << one.status;
    EXPECT_EQ(reply.attempts, 1) << one.status;
    EXPECT_THAT(reply.problem, AllOf(HasSubstr("no, because"), HasSubstr(one.remedy)))
        << one.status;
  }
}

TEST(StreamedEndpoint, NobodyListens) {
  base::SteadyClock clock;
  EndpointTools tools{clock};
  tools.patience.retries = 1;
  tools.patience.first_wait_s = 0.001;
  const auto endpoint =
      make_endpoint(parse_endpoint("s=http://127.0.0.1:1,api=llama", "--endpoint"), tools);
  const EndpointReply reply = endpoint->complete(small_request());
  EXPECT_EQ(reply.fault, EndpointFault::kDown);
  EXPECT_EQ(reply.attempts, 2);
  EXPECT_THAT(reply.problem,
              AllOf(HasSubstr("http://127.0.0.1:1: "), HasSubstr("start the server")));
  try {
    endpoint->check(0);
    ADD_FAILURE() << "a server that is down passed";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kData);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("down"), HasSubstr("start the server")));
  }
}

TEST(StreamedEndpoint, StopsWhenTheUserStops) {
  base::SteadyClock clock;
  EndpointTools tools{clock};
  tools.stop = [] { return true; };
  const auto endpoint =
      make_endpoint(parse_endpoint("s=http://127.0.0.1:1,api=llama", "--endpoint"), tools);
  const EndpointReply reply = endpoint->complete(small_request());
  EXPECT_EQ(reply.fault, EndpointFault::kStopped);
  EXPECT_EQ(reply.attempts, 1);
  EXPECT_THROW(endpoint->check(10), base::Error);
}

TEST(StreamedEndpoint, WhatIsNotPromisedIsMalformed) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"{\"content\": ", "promised"},
      {"[1, 2]", "not an object"},
      {R"({"content":"a","tokens":[1]})", "'event.stop' is missing"},
      {R"({"content":7,"tokens":[1],"stop":false})", "event.content"},
      {R"({"content":"a","tokens":[1.5],"stop":false})", "event.tokens"},
      {R"({"content":"a","tokens":[-1],"stop":false})", "event.tokens"},
      {R"({"content":"a","tokens":[18446744073709551615],"stop":false})", "event.tokens"},
      {R"({"content":"a","tokens":"1","stop":false})", "event.tokens"},
      {R"({"content":"a","tokens":[1],"stop":1})", "event.stop"},
      {R"({"content":"a","tokens":[1],"stop":false,"tokens_predicted":1e999})", "promised"},
      {R"({"content":"a","tokens":[1],"stop":false,"tokens_predicted":-1})", "is negative"},
  };
  for (const auto& [event, part] : wrong) {
    const EndpointReply reply = ask_once({event_reply({llama_piece("a", "5", 1), event})});
    EXPECT_EQ(reply.fault, EndpointFault::kMalformed) << event;
    EXPECT_EQ(reply.attempts, 1) << event;
    EXPECT_THAT(reply.problem, AllOf(HasSubstr(part), HasSubstr("api=llama"))) << event;
  }
}

TEST(StreamedEndpoint, AnAnswerThatIsNoStream) {
  const EndpointReply reply = ask_once({json_reply(R"({"content": "ab", "stop": true})")});
  EXPECT_EQ(reply.fault, EndpointFault::kMalformed);
  EXPECT_THAT(reply.problem, HasSubstr("application/json"));
}

TEST(StreamedEndpoint, StreamsThatEndTooEarly) {
  ScriptedReply cut = event_reply({llama_piece("a", "5", 1)});
  cut.cut = true;
  const EndpointReply broken = ask_once({cut});
  EXPECT_EQ(broken.fault, EndpointFault::kBroken);
  EXPECT_EQ(broken.attempts, 3);
  const EndpointReply unfinished = ask_once({event_reply({llama_piece("a", "5", 1)})});
  EXPECT_EQ(unfinished.fault, EndpointFault::kBroken);
  EXPECT_THAT(unfinished.problem, HasSubstr("before its last event"));
  const EndpointReply again = ask_once({cut, good_answer()});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again.text, "ab");  // nothing of the first attempt
  EXPECT_THAT(again.ids, ElementsAre(5, 6));
}

// The answer is whole; the connection is no part of it.
TEST(StreamedEndpoint, AConnectionThatBreaksBehindTheLastEvent) {
  ScriptedReply cut = good_answer();
  cut.cut = true;
  const EndpointReply reply = ask_once({cut});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.attempts, 1);
  EXPECT_EQ(reply.total_ns, reply.arrivals.back().ns);
}

TEST(StreamedEndpoint, AStreamThatStalls) {
  ScriptedReply stalls = good_answer();
  stalls.pieces[1].wait_ms = 60'000;
  const EndpointReply reply = ask_once({stalls, good_answer()}, "api=llama,short");
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.attempts, 2);
}

TEST(StreamedEndpoint, AnErrorInTheMiddleOfAStream) {
  const auto with = [](const std::string& error) {
    return ask_once({event_reply({llama_piece("a", "5", 1), R"({"error":)" + error + "}"})});
  };
  EXPECT_EQ(with(R"({"message":"gone","code":500})").fault, EndpointFault::kServerError);
  EXPECT_EQ(with(R"({"message":"too long","code":400})").fault, EndpointFault::kRefused);
  EXPECT_EQ(with(R"("plain words")").fault, EndpointFault::kServerError);
  EXPECT_THAT(with(R"({"message":"gone","code":500})").problem, HasSubstr("gone"));
}

TEST(StreamedEndpoint, AServerThatIgnoresTheLimit) {
  ScriptedReply endless = event_reply({llama_piece("a", "5", 1)});
  endless.endless = true;
  const EndpointReply counted = ask_once({endless}, "api=llama", 4);
  EXPECT_EQ(counted.fault, EndpointFault::kOverLimit);
  EXPECT_EQ(counted.attempts, 1);
  EXPECT_THAT(counted.problem, HasSubstr("goes on after 4 new tokens"));

  // Without ids and counts the number of pieces bounds it.
  ScriptedReply uncounted = event_reply({R"({"content":"a","stop":false})"});
  uncounted.endless = true;
  EXPECT_EQ(ask_once({uncounted}, "api=llama", 4).fault, EndpointFault::kOverLimit);

  // At the limit is not over it.
  EXPECT_TRUE(ask_once({good_answer()}, "api=llama", 2).ok());
  EXPECT_EQ(ask_once({good_answer()}, "api=llama", 1).fault, EndpointFault::kOverLimit);
  // A count at the end counts as well.
  EXPECT_EQ(ask_once({event_reply({R"({"content":"abc","stop":false})", llama_last(9)})}).fault,
            EndpointFault::kOverLimit);
}

// Events wait for each other before they are read; what ends an answer is read when it comes, even
// where the server says nothing more and keeps the connection.
TEST(StreamedEndpoint, WhatEndsAnAnswerIsReadAtOnce) {
  const auto ask = [](std::vector<std::string> events, int max_new) {
    ScriptedReply reply = event_reply(std::move(events));
    reply.pieces.push_back({": never\n\n", 60'000});
    const auto begin = std::chrono::steady_clock::now();
    const EndpointReply answer = ask_once({reply}, "api=llama", max_new);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500))
        << answer.problem;
    return answer.fault;
  };
  const std::string piece = llama_piece("a", "5", 1);
  EXPECT_EQ(ask({piece, R"({"error":{"message":"too long","code":400}})"}, 8),
            EndpointFault::kRefused);
  EXPECT_EQ(ask({piece, R"({"content": "a")"}, 8), EndpointFault::kMalformed);
  EXPECT_EQ(ask({piece, piece, piece}, 2), EndpointFault::kOverLimit);
}

TEST(StreamedEndpoint, ManyEventsKeepTheirOrderAndTheirTimes) {
  std::vector<std::string> events;
  std::string text;
  for (int i = 1; i <= 100; ++i) {
    events.push_back(llama_piece(std::string(1, static_cast<char>('a' + i % 26)), "5", i));
    text += static_cast<char>('a' + i % 26);
  }
  events.push_back(llama_last(100));
  ScriptedReply reply = event_reply(events);
  reply.pieces[40].wait_ms = 30;
  const EndpointReply answer = ask_once({reply}, "api=llama", 100);
  ASSERT_TRUE(answer.ok()) << answer.problem;
  EXPECT_EQ(answer.text, text);
  ASSERT_EQ(answer.arrivals.size(), 100u);
  for (size_t i = 1; i < 100; ++i) EXPECT_GE(answer.arrivals[i].ns, answer.arrivals[i - 1].ns);
  // The wait lies between the pieces that it was between.
  EXPECT_GE(answer.arrivals[40].ns - answer.arrivals[39].ns, 15'000'000);
}

// 10 MB in one line: the line is not held.
TEST(StreamedEndpoint, ALineThatIsLongerThanAnyAnswer) {
  ScriptedReply line;
  line.headers = {{"Content-Type", "text/event-stream"}};
  line.pieces.push_back({"data: " + std::string(10 << 20, 'x'), 0});
  line.endless = true;
  const EndpointReply reply = ask_once({line}, "api=llama", 600);
  EXPECT_EQ(reply.fault, EndpointFault::kMalformed);
  EXPECT_LT(reply.problem.size(), 1000u);
}

TEST(StreamedEndpoint, EventsAfterTheLastAreNotWaitedFor) {
  ScriptedReply endless = good_answer();
  endless.pieces.push_back({"data: " + llama_piece("c", "7", 3) + "\n\n", 0});
  endless.endless = true;
  const EndpointReply reply = ask_once({endless});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.text, "ab");
}

TEST(StreamedEndpoint, CharactersCutBetweenPieces) {
  // U+20AC in three pieces, then half a character that never ends.
  const EndpointReply reply = ask_once({event_reply(
      {llama_piece("a\xE2", "5", 1), llama_piece("\x82", "6", 2), llama_piece("\xAC!", "7", 3),
       llama_piece("\xFF-\xF0\x9F", "8", 4), llama_last(4)})});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.text, "a\xE2\x82\xAC!\xEF\xBF\xBD-\xEF\xBF\xBD");
  EXPECT_THAT(tests::arrived_texts(reply),
              ElementsAre("a", "", "\xE2\x82\xAC!", "\xEF\xBF\xBD-\xEF\xBF\xBD"));
  EXPECT_THAT(reply.ids, ElementsAre(5, 6, 7, 8));
}

// A character of the private plane that hides bytes is itself where nothing was hidden.
TEST(StreamedEndpoint, PrivateCharactersStayWhatTheyAre) {
  const std::string own = "\xF4\x8F\xBB\xA9";  // U+10FEE9
  const EndpointReply reply = ask_once({event_reply({llama_piece(own, "5", 1), llama_last(1)})});
  ASSERT_TRUE(reply.ok()) << reply.problem;
  EXPECT_EQ(reply.text, own);
}

TEST(StreamedEndpoint, AKeyIsSentAndNeverShown) {
  const std::string secret = "sk-very-secret-1";
  const tests::ScopedVariable key("EVALRUN_TEST_KEY", secret);
  const std::string options = "api=llama,key-env=EVALRUN_TEST_KEY";
  AskedServer server(
      options, {{"/completion",
                 {status_reply(401, "wrong key " + secret + secret),
                  event_reply({R"({"content":")" + secret + "\", nonsense"}),
                  event_reply({llama_piece("it is " + secret, "5", 1), llama_last(1)}),
                  event_reply({R"({"error":{"message":"bad )" + secret + R"(","code":400}})"})}}});
  for (int i = 0; i < 4; ++i) {
    const EndpointReply reply = server->complete(small_request());
    EXPECT_THAT(reply.problem + reply.text, Not(HasSubstr(secret))) << i;
    for (const EndpointArrival& arrival : reply.arrivals)
      EXPECT_THAT(arrival.text, Not(HasSubstr(secret)));
    if (i == 0) {
      EXPECT_THAT(reply.problem, HasSubstr("variable EVALRUN_TEST_KEY"));
    }
  }
  for (const tests::SeenRequest& request : server.seen("/completion"))
    EXPECT_EQ(request.header("authorization"), "Bearer " + secret);
  EXPECT_THAT(to_string(server->spec()), Not(HasSubstr(secret)));
}

// Cutting a long message must not leave half a key at its end.
TEST(StreamedEndpoint, ALongMessageIsCutBehindTheKey) {
  const std::string secret = "sk-very-secret-2";
  const tests::ScopedVariable key("EVALRUN_TEST_KEY", secret);
  for (size_t before = 260; before < 300; before += 4) {
    AskedServer server("api=llama,key-env=EVALRUN_TEST_KEY",
                       {{"/completion", {status_reply(400, std::string(before, 'x') + secret)}}});
    const EndpointReply reply = server->complete(small_request());
    EXPECT_THAT(reply.problem, Not(HasSubstr("sk-very"))) << before;
    EXPECT_LT(reply.problem.size(), 600u);
  }
}

TEST(StreamedEndpoint, RequestsThatMakeNoSenseAreNotSent) {
  AskedServer server("api=llama", {{"/completion", {good_answer()}}});
  EndpointRequest empty = small_request();
  empty.prompt_ids.clear();
  EXPECT_EQ(server->complete(empty).fault, EndpointFault::kRefused);
  EXPECT_EQ(server->complete(small_request(0)).fault, EndpointFault::kRefused);
  EndpointRequest bytes = small_request();
  bytes.stop_texts = {"\xFF"};
  EXPECT_EQ(server->complete(bytes).fault, EndpointFault::kRefused);
  EXPECT_TRUE(server.seen("/completion").empty());
}

}  // namespace
}  // namespace evalrun::runners
