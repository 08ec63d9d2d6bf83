// Requests over HTTP against servers that do what servers do: answer, stream, refuse, fall silent,
// end too early, never end, send elsewhere, repeat the key.
#include "engine/net/http_client.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/net/event_stream.h"
#include "tests/endpoints/scripted_server.h"
#include "tests/loopback.h"
#include "tests/scoped_variable.h"

namespace evalrun::tests {
namespace {

using net::HttpFailure;
using net::HttpRequest;
using net::HttpResponse;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kMs = 1'000'000;
constexpr int kForever = 60'000;  // ms; no test waits for the end of it

ScriptedReply raw_reply(std::string bytes) {
  ScriptedReply reply;
  reply.raw = std::move(bytes);
  return reply;
}

ScriptedReply hang_up() {
  ScriptedReply reply;
  reply.status = 0;
  return reply;
}

ScriptedReply pieces_reply(std::vector<ScriptedPiece> pieces) {
  ScriptedReply reply;
  reply.pieces = std::move(pieces);
  return reply;
}

HttpRequest http_request_to(const std::string& url) {
  HttpRequest request;
  request.url = url;
  request.body = "{}";
  request.connect_s = 5;
  request.total_s = 20;
  request.stall_s = 10;
  return request;
}

std::string usage_problem_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const base::Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(base::ExitCode::kUsage));
    return e.what();
  }
  return "no error";
}

class HttpClientTest : public ::testing::Test {
 protected:
  HttpResponse ask(const ScriptedServer& server) {
    return client_.send(http_request_to(server.url()));
  }

  // A proxy that nobody could ask: requests to this machine do not go there.
  ScopedVariable proxy_{"http_proxy", "http://127.0.0.1:1"};
  ScopedVariable all_proxy_{"all_proxy", "http://127.0.0.1:1"};
  base::SteadyClock clock_;
  net::HttpClient client_{clock_};
};

// ---- answers ----------------------------------------------------------------------------------

TEST_F(HttpClientTest, AnAnswerInOnePiece) {
  ScriptedServer server([](const SeenRequest&) {
    ScriptedReply reply = json_reply(R"({"a":1})");
    reply.headers = {{"Content-Type", "Application/JSON; charset=UTF-8"}};
    return reply;
  });
  HttpRequest request = http_request_to(server.url() + "/v1/completions");
  request.body = std::string(2 << 20, 'b');  // long enough for "Expect: 100-continue"
  request.key = "sk-secret";
  const int64_t before = clock_.now_ns();
  const HttpResponse response = client_.send(request);
  EXPECT_TRUE(response.ok()) << response.problem;
  EXPECT_EQ(response.body, R"({"a":1})");
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(response.problem, "");
  EXPECT_EQ(response.retry_after_s, 0);
  EXPECT_LE(before, response.sent_ns);
  EXPECT_LT(response.sent_ns, response.first_byte_ns);
  EXPECT_LE(response.first_byte_ns, response.end_ns);
  EXPECT_LE(response.end_ns, clock_.now_ns());
  ASSERT_EQ(server.seen().size(), 1u);
  const SeenRequest seen = server.seen().front();
  EXPECT_EQ(seen.method, "POST");
  EXPECT_EQ(seen.path, "/v1/completions");
  EXPECT_TRUE(seen.body == request.body);
  EXPECT_EQ(seen.header("content-type"), "application/json");
  EXPECT_EQ(seen.header("authorization"), "Bearer sk-secret");
  EXPECT_EQ(seen.header("expect"), "");
}

TEST_F(HttpClientTest, GetsWithoutABodyOverTheSameConnection) {
  ScriptedServer server([](const SeenRequest&) { return json_reply("up"); });
  EXPECT_TRUE(ask(server).ok());
  HttpRequest request = http_request_to(server.url() + "/health");
  request.method = "GET";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client_.send(request).body, "up");
  const SeenRequest seen = server.seen().back();
  EXPECT_EQ(seen.method, "GET");
  EXPECT_EQ(seen.body, "");
  EXPECT_EQ(seen.header("authorization"), "");
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(HttpClientTest, PiecesComeWithTheirTimes) {
  constexpr int kWait = 20;
  const std::vector<std::string> events = {"one", "two", "three", "four", "five"};
  ScriptedServer server([&](const SeenRequest&) { return event_reply(events, kWait); });
  std::vector<int64_t> arrivals;
  std::string bytes;
  const HttpResponse response =
      client_.send(http_request_to(server.url()), [&](std::string_view piece, int64_t arrival_ns) {
        arrivals.push_back(arrival_ns);
        bytes += piece;
        return true;
      });
  EXPECT_TRUE(response.ok()) << response.problem;
  EXPECT_EQ(response.body, "") << "it was streamed";
  EXPECT_EQ(response.content_type, "text/event-stream");
  EXPECT_EQ(bytes, "data: one\n\ndata: two\n\ndata: three\n\ndata: four\n\ndata: five\n\n");
  ASSERT_EQ(arrivals.size(), events.size());
  EXPECT_EQ(arrivals.front(), response.first_byte_ns);
  EXPECT_LE(arrivals.back(), response.end_ns);
  EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end()));
  for (size_t i = 0; i < arrivals.size(); ++i)  // none before the server has waited for it
    EXPECT_GE(arrivals[i] - response.sent_ns, static_cast<int64_t>(i + 1) * kWait * kMs);
  EXPECT_GE(arrivals.back() - arrivals.front(), kWait * kMs) << "not all at the end";
}

// Times are those of the clock that was handed in.
TEST_F(HttpClientTest, TheClockOfTheCaller) {
  struct CountingClock final : base::Clock {
    int64_t now_ns() override { return ++ns; }
    int64_t ns = 0;
  } counting;
  net::HttpClient client(counting);
  ScriptedServer server([](const SeenRequest&) { return event_reply({"a", "b"}, 5); });
  std::vector<int64_t> arrivals;
  const HttpResponse response =
      client.send(http_request_to(server.url()), [&](std::string_view, int64_t arrival_ns) {
        arrivals.push_back(arrival_ns);
        return true;
      });
  // Before there was a connection, and when there was one.
  EXPECT_EQ(response.sent_ns, 2);
  EXPECT_THAT(arrivals, ElementsAre(3, 4));
  EXPECT_EQ(response.end_ns, 5);
}

TEST_F(HttpClientTest, OtherStatusesKeepTheirBodyAndAreNotStreamed) {
  ScriptedServer server(
      [](const SeenRequest&) { return json_reply("{\"error\":\n\"no such model\xff\"}", 404); });
  const HttpResponse response =
      client_.send(http_request_to(server.url() + "/v1/x"), [](std::string_view, int64_t) {
        ADD_FAILURE() << "the body of an error is no stream";
        return true;
      });
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.failure, HttpFailure::kNone);
  EXPECT_FALSE(response.ok());
  EXPECT_EQ(response.body, "{\"error\":\n\"no such model\xff\"}");
  EXPECT_EQ(response.problem,
            server.url() + "/v1/x: HTTP 404: {\"error\": \"no such model\xEF\xBF\xBD\"}");
}

TEST_F(HttpClientTest, HowLongABusyServerWantsToBeLeftAlone) {
  std::string value;
  ScriptedServer server([&](const SeenRequest&) {
    ScriptedReply reply = json_reply("", 429);
    reply.headers.emplace_back("retry-AFTER", value);
    return reply;
  });
  const std::pair<const char*, double> cases[] = {
      {"7", 7},   {" 120 ", 120}, {"1.5", 1.5},
      {"0", 0},   {"-3", 0},      {"nan", 0},
      {"inf", 0}, {"7 days", 0},  {"Wed, 21 Oct 2015 07:28:00 GMT", 0}};
  for (const auto& [text, seconds] : cases) {
    value = text;
    const HttpResponse response = ask(server);
    EXPECT_EQ(response.status, 429);
    EXPECT_EQ(response.retry_after_s, seconds) << text;
  }
}

TEST_F(HttpClientTest, HeadersOfTheAnswerItself) {
  ScriptedServer server([](const SeenRequest&) {
    return raw_reply(
        "HTTP/1.1 100 Continue\r\nRetry-After: 9\r\nContent-Type: a/b\r\n\r\n"
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  });
  const HttpResponse response = ask(server);
  EXPECT_EQ(response.body, "ok");
  EXPECT_EQ(response.retry_after_s, 0);
  EXPECT_EQ(response.content_type, "");
}

// ---- connections that fail --------------------------------------------------------------------

TEST_F(HttpClientTest, NobodyListens) {
  const int port = [] { return LoopbackListener(1).port(); }();
  const std::string url = fmt::format("http://127.0.0.1:{}/v1", port);
  const HttpResponse response = client_.send(http_request_to(url));
  EXPECT_EQ(response.failure, HttpFailure::kRefused);
  EXPECT_EQ(response.status, 0);
  EXPECT_GT(response.sent_ns, 0);
  EXPECT_EQ(response.first_byte_ns, 0);
  EXPECT_THAT(response.problem, AllOf(HasSubstr(url + ": "), HasSubstr("is the server up")));
}

TEST_F(HttpClientTest, ConnectionsThatEndInTheMiddle) {
  for (const bool chunked : {true, false}) {
    ScriptedServer server([&](const SeenRequest&) {
      ScriptedReply reply = pieces_reply({{"data: a\n\n", 0}, {"dat", 0}});
      reply.chunked = chunked;
      reply.cut = true;
      return reply;
    });
    const HttpResponse response = ask(server);
    EXPECT_EQ(response.failure, HttpFailure::kBroken) << chunked;
    EXPECT_EQ(response.status, 200);
    EXPECT_FALSE(response.ok());
    EXPECT_EQ(response.body, "data: a\n\ndat");
    EXPECT_THAT(response.problem, AllOf(HasSubstr(server.url()), HasSubstr("log")));
  }
  ScriptedServer silent([](const SeenRequest&) { return hang_up(); });
  const HttpResponse response = ask(silent);
  EXPECT_EQ(response.failure, HttpFailure::kBroken);
  EXPECT_EQ(response.status, 0);
  EXPECT_EQ(silent.seen().size(), 1u) << "on a new connection nothing is asked twice";
}

// A server ends a connection that has been idle, or is started again.
TEST_F(HttpClientTest, AConnectionThatWasKeptAndIsDead) {
  int n = 0;
  ScriptedServer closing([&](const SeenRequest&) {
    return ++n == 1 ? raw_reply("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    : json_reply("again");
  });
  EXPECT_EQ(ask(closing).body, "ok");
  EXPECT_EQ(ask(closing).body, "again");
  EXPECT_EQ(closing.connections(), 2);

  // It ends when the next request is there.
  n = 0;
  ScriptedServer late(
      [&](const SeenRequest&) { return ++n == 2 ? hang_up() : json_reply("answer"); });
  EXPECT_EQ(ask(late).body, "answer");
  const HttpResponse response = ask(late);
  EXPECT_EQ(response.body, "answer");
  EXPECT_EQ(response.problem, "");
  EXPECT_EQ(late.seen().size(), 3u);
  EXPECT_EQ(late.connections(), 2);
}

TEST_F(HttpClientTest, NotHttpAtAll) {
  ScriptedServer server([](const SeenRequest&) { return raw_reply("220 mail ready\r\n"); });
  const HttpResponse response = ask(server);
  EXPECT_EQ(response.failure, HttpFailure::kOther);
  EXPECT_THAT(response.problem, HasSubstr("the right address?"));
}

// ---- limits -----------------------------------------------------------------------------------

TEST_F(HttpClientTest, AStreamThatFallsSilent) {
  ScriptedServer server([](const SeenRequest&) {
    return pieces_reply({{"data: a\n\n", 0}, {"data: b\n\n", kForever}});
  });
  HttpRequest request = http_request_to(server.url());
  request.stall_s = 0.3;
  const HttpResponse response = client_.send(request);
  EXPECT_EQ(response.failure, HttpFailure::kTimeout);
  EXPECT_EQ(response.body, "data: a\n\n");
  EXPECT_THAT(response.problem, AllOf(HasSubstr(server.url()), HasSubstr("no byte for 0.3 s"),
                                      HasSubstr("after 9 bytes"), HasSubstr("more time")));
  EXPECT_GE(response.end_ns - response.first_byte_ns, 299 * kMs);
  EXPECT_LT(response.end_ns - response.first_byte_ns, 5000 * kMs);
}

TEST_F(HttpClientTest, AServerThatTakesTheRequestAndSaysNothing) {
  const LoopbackListener listener(1);  // the kernel answers the connection, nobody reads
  HttpRequest request = http_request_to(fmt::format("http://127.0.0.1:{}", listener.port()));
  request.stall_s = 0.1;
  const HttpResponse response = client_.send(request);
  EXPECT_EQ(response.failure, HttpFailure::kTimeout);
  EXPECT_EQ(response.status, 0);
  EXPECT_THAT(response.problem, HasSubstr("after 0 bytes"));
}

TEST_F(HttpClientTest, AStreamThatIsNeverSilentAndNeverEnds) {
  ScriptedServer server([](const SeenRequest&) {
    ScriptedReply reply = event_reply({"a"}, 5);
    reply.endless = true;
    return reply;
  });
  HttpRequest request = http_request_to(server.url());
  request.total_s = 0.15;
  const HttpResponse response = client_.send(request);
  EXPECT_EQ(response.failure, HttpFailure::kTimeout);
  EXPECT_THAT(response.problem, HasSubstr("no whole answer within 0.15 s"));
  EXPECT_LT(response.end_ns - response.sent_ns, 5000 * kMs);
}

TEST_F(HttpClientTest, BodiesWithoutAnEndCostBoundedMemory) {
  ScriptedServer server([](const SeenRequest& seen) {
    ScriptedReply reply = pieces_reply({{std::string(100'000, 'x'), 0}});
    reply.endless = true;
    reply.chunked = seen.path == "/chunked";
    return reply;
  });
  for (const char* path : {"/chunked", "/plain"}) {
    HttpRequest request = http_request_to(server.url() + path);
    request.longest_body = 1'000'000;
    size_t streamed = 0;
    const HttpResponse response = client_.send(request, [&](std::string_view bytes, int64_t) {
      streamed += bytes.size();
      return true;
    });
    EXPECT_EQ(response.failure, HttpFailure::kTooLong);
    EXPECT_THAT(response.problem, HasSubstr("more than 1000000 bytes"));
    EXPECT_LE(streamed, 1'000'000u);
    const HttpResponse kept = client_.send(request);
    EXPECT_EQ(kept.failure, HttpFailure::kTooLong);
    EXPECT_LE(kept.body.size(), 1'000'000u);
  }
  // A line of any length: the reader of events ends it.
  net::EventStream events(2'000'000);
  size_t streamed = 0;
  const HttpResponse response = client_.send(
      http_request_to(server.url() + "/chunked"), [&](std::string_view bytes, int64_t) {
        streamed += bytes.size();
        return events.feed(bytes, [](const net::Event&) { return true; });
      });
  EXPECT_EQ(response.failure, HttpFailure::kStopped);
  EXPECT_TRUE(events.too_long());
  EXPECT_LE(streamed, 2'100'000u);
}

TEST_F(HttpClientTest, HeadersWithoutAnEndCostBoundedMemory) {
  std::string lines = "HTTP/1.1 200 OK\r\n";
  while (lines.size() < 400'000) lines += "X-Filler: " + std::string(1000, 'x') + "\r\n";
  const std::string line = "HTTP/1.1 200 OK\r\nX-Filler: " + std::string(1'000'000, 'x');
  for (const std::string& head : {lines, line}) {
    ScriptedServer server([&](const SeenRequest&) { return raw_reply(head + "\r\n\r\n"); });
    const HttpResponse response = ask(server);
    EXPECT_EQ(response.failure, HttpFailure::kTooLong) << response.problem;
    EXPECT_THAT(response.problem, HasSubstr("header"));
  }
}

TEST_F(HttpClientTest, StopsInTheMiddleAndCanGoOn) {
  std::atomic<bool> stop = false;
  net::HttpClient client(clock_, [&] { return stop.load(); });
  ScriptedServer server([](const SeenRequest& seen) {
    return seen.path == "/slow" ? pieces_reply({{"a", 0}, {"b", kForever}}) : json_reply("fast");
  });
  const HttpRequest slow = http_request_to(server.url() + "/slow");
  const HttpResponse stopped = client.send(slow, [&](std::string_view, int64_t) {
    stop = true;
    return true;
  });
  EXPECT_EQ(stopped.failure, HttpFailure::kStopped);
  EXPECT_THAT(stopped.problem, HasSubstr("stopped"));
  EXPECT_LT(stopped.end_ns - stopped.first_byte_ns, 5000 * kMs);
  stop = false;
  const HttpResponse ended = client.send(slow, [](std::string_view, int64_t) { return false; });
  EXPECT_EQ(ended.failure, HttpFailure::kStopped);
  EXPECT_EQ(client.send(http_request_to(server.url())).body, "fast");
}

TEST_F(HttpClientTest, WhatTheReceiverThrowsComesOut) {
  ScriptedServer server([](const SeenRequest&) { return event_reply({"a"}); });
  EXPECT_THROW(client_.send(http_request_to(server.url()),
                            [](std::string_view, int64_t) -> bool {
                              throw std::runtime_error("the receiver's own");
                            }),
               std::runtime_error);
  EXPECT_TRUE(ask(server).ok());
}

// ---- where requests and keys go ---------------------------------------------------------------

TEST_F(HttpClientTest, RedirectsAreNotFollowed) {
  ScriptedServer other([](const SeenRequest&) { return json_reply("stolen"); });
  ScriptedServer server([&](const SeenRequest&) {
    ScriptedReply reply = json_reply("", 302);
    reply.headers = {{"Location", other.url() + "/?was=sk-secret"}};
    return reply;
  });
  HttpRequest request = http_request_to(server.url());
  request.key = "sk-secret";
  const HttpResponse response = client_.send(request);
  EXPECT_EQ(response.status, 302);
  EXPECT_FALSE(response.ok());
  EXPECT_THAT(response.problem,
              AllOf(HasSubstr("HTTP 302"), HasSubstr(other.url()), HasSubstr("not followed"),
                    HasSubstr("[key]"), Not(HasSubstr("secret"))));
  EXPECT_THAT(other.seen(), IsEmpty());
}

TEST_F(HttpClientTest, NoMessageHoldsTheKey) {
  ScriptedServer echo([](const SeenRequest& seen) {
    const std::string key = seen.header("authorization").substr(7);
    // At the edge of what is shown, too.
    return json_reply("wrong key " + key + std::string(170, 'x') + key, 401);
  });
  ScriptedServer cut([](const SeenRequest& seen) {
    return raw_reply(seen.header("authorization").substr(7) + " is no answer\r\n\r\n");
  });
  std::vector<std::string> problems;
  for (const std::string& url : {echo.url(), cut.url(), echo.url() + "/sk-secret/x",
                                 std::string("http://127.0.0.1:1/sk-secret")}) {
    HttpRequest request = http_request_to(url);
    request.key = "sk-secret";
    problems.push_back(client_.send(request).problem);
  }
  EXPECT_THAT(problems, Each(AllOf(Not(IsEmpty()), Not(HasSubstr("sk-")), Not(HasSubstr("secr")))));
  EXPECT_THAT(problems.front(), HasSubstr("wrong key [key]xxx"));

  // An address with a user in it is not taken for one of this machine.
  const ScopedVariable direct("no_proxy", "127.0.0.1");
  HttpRequest request = http_request_to("http://name:pass@" + echo.url().substr(7) + "/a@b");
  request.method = "GET";
  const std::string problem = client_.send(request).problem;
  EXPECT_THAT(problem, AllOf(HasSubstr(echo.url() + "/a@b: HTTP 401"), Not(HasSubstr("pass"))));
}

TEST(HttpKeys, EveryCopyIsReplaced) {
  EXPECT_EQ(net::without_key("a sk-1 b sk-1sk-1", "sk-1"), "a [key] b [key][key]");
  EXPECT_EQ(net::without_key("sk-1", "sk-1"), "[key]");
  EXPECT_EQ(net::without_key("nothing", "sk-1"), "nothing");
  EXPECT_EQ(net::without_key("nothing", ""), "nothing");
  // Linear: a body of keys costs no more than another.
  std::string many;
  for (int i = 0; i < 200'000; ++i) many += "a-rather-long-key";
  EXPECT_EQ(net::without_key(many, "a-rather-long-key").size(), 5u * 200'000);
}

TEST(HttpKeys, WhichAddressesAreThisMachine) {
  for (const char* url :
       {"http://127.0.0.1", "http://localhost:8000/v1", "http://[::1]:80", "https://localhost/"})
    EXPECT_TRUE(net::is_local(url)) << url;
  for (const char* url :
       {"http://localhost.example/v1", "http://localhost:x@judge.example/v1", "ftp://localhost",
        "http://127.0.0.1.example", "http://judge.example/localhost", "http://localhost?@x.example",
        "http://localhost\\@x.example", "http://localhost:80?@x.example/", "localhost:8000", ""})
    EXPECT_FALSE(net::is_local(url)) << url;
}

TEST(HttpKeys, NeverUnencryptedToAnotherMachine) {
  const auto check = [](const char* url, const char* key) {
    return usage_problem_of([&] { net::check_url(url, key, "endpoint plain", "MY_KEY"); });
  };
  EXPECT_EQ(check("http://server.example", ""), "no error");
  EXPECT_EQ(check("https://server.example", "sk-1"), "no error");
  EXPECT_EQ(check("http://localhost:80", "sk-1"), "no error");
  EXPECT_THAT(check("http://server.example", "sk-1"),
              AllOf(HasSubstr("endpoint plain: "), HasSubstr("unencrypted"), HasSubstr("MY_KEY"),
                    Not(HasSubstr("sk-1"))));
  EXPECT_THAT(check("http://localhost:pass@server.example", "sk-1"),
              AllOf(HasSubstr("unencrypted"), Not(HasSubstr("pass"))));
  EXPECT_THAT(check("server.example:80", ""),
              AllOf(HasSubstr("'server.example:80' is no http address"), HasSubstr("for example")));
  EXPECT_THAT(check("file:///etc/passwd", ""), HasSubstr("no http address"));
  EXPECT_THAT(check("https://server.example", "sk-1\r\nX: y"),
              AllOf(HasSubstr("line break"), Not(HasSubstr("sk-1"))));

  base::SteadyClock clock;
  net::HttpClient client(clock);
  HttpRequest request = http_request_to("http://server.example");
  request.key = "sk-1";
  EXPECT_THAT(usage_problem_of([&] { client.send(request); }), HasSubstr("unencrypted"));
}

}  // namespace
}  // namespace evalrun::tests
