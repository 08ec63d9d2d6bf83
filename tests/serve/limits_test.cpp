// What keeps a server up: the queue, the key, clients that go, are slow, or speak no HTTP.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "engine/base/error.h"
#include "tests/loopback.h"
#include "tests/serve/tiny_server.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A connection that sends and reads bytes.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EVALRUN_CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const timeval patience{10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  void send(std::string_view text) const { send_all(socket_, text); }
  void post(const json& body) const {
    const std::string text = body.dump();
    send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                     text.size(), text));
  }
  // Once: at least a byte. To the end: until the server has closed.
  std::string read_some() const {
    char buffer[4096];
    const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : "";
  }
  std::string read_all() const {
    std::string text;
    for (std::string more = read_some(); !more.empty(); more = read_some()) text += more;
    return text;
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  int socket_;
};

const json kShort = {{"prompt", "hi"}, {"max_tokens", 4}, {"temperature", 0}, {"ignore_eos", true}};

TinyServerOptions with_limits(const runners::HttpLimits& limits) {
  TinyServerOptions options;
  options.server.limits = limits;
  return options;
}

TEST(ServeLimits, AFullQueueIs429) {
  TinyServerOptions options;
  options.queue = 1;
  options.running = false;
  TinyServer server(options);
  net::HttpResponse first;
  std::thread waiting([&] { first = server.post("/v1/completions", kShort); });
  while (server.waiting() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const net::HttpResponse second = server.post("/v1/completions", kShort);
  EXPECT_EQ(second.status, 429);
  EXPECT_GT(second.retry_after_s, 0);
  EXPECT_EQ(json::parse(second.body)["error"]["code"], "rate_limit_exceeded");
  EXPECT_EQ(server.metric("waiting_requests"), 1);
  server.start();
  waiting.join();
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(server.post("/v1/completions", kShort).status, 200);
}

TEST(ServeLimits, TheKeyIsWantedEverywhereButAtHealth) {
  TinyServerOptions options;
  options.server.key = "secret";
  const TinyServer server(options);
  for (const char* key : {"", "secre", "secrets", "Secret"})
    EXPECT_EQ(server.ask("POST", "/v1/completions", kShort.dump(), key).status, 401) << key;
  EXPECT_EQ(server.ask("GET", "/v1/models").status, 401);
  EXPECT_EQ(server.ask("GET", "/metrics").status, 401);
  EXPECT_EQ(server.ask("POST", "/tokenize", R"({"prompt": "hi"})").status, 401);
  EXPECT_EQ(server.ask("GET", "/tokenizer_info").status, 401);
  EXPECT_EQ(server.ask("GET", "/health").status, 200);
  EXPECT_EQ(server.ask("POST", "/v1/completions", kShort.dump(), "secret").status, 200);
  EXPECT_EQ(server.ask("GET", "/v1/models", "", "secret").status, 200);
}

TEST(ServeLimits, AClientThatHasGoneCostsNoStep) {
  TinyServerOptions options;
  options.running = false;
  TinyServer server(options);
  RawClient client(server.port());
  client.post({{"prompt", "hi"}, {"max_tokens", 1000}, {"ignore_eos", true}});
  while (server.waiting() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  client.close();
  EXPECT_TRUE(server.comes_to("requests_total{status=\"499\"}", 1));
  server.start();
  server.complete(kShort);
  EXPECT_EQ(server.metric("generated_tokens_total"), 4);
}

TEST(ServeLimits, AStreamThatNobodyReadsEndsAtTheNextStep) {
  TinyServerOptions options;
  options.context = 4096;
  const TinyServer server(options);
  RawClient client(server.port());
  client.post({{"prompt", std::vector<std::string>(64, "hi")},
               {"max_tokens", 4000},
               {"ignore_eos", true},
               {"stream", true}});
  EXPECT_THAT(client.read_some(), StartsWith("HTTP/1.1 200"));
  client.close();
  server.complete(kShort);
  EXPECT_TRUE(server.comes_to("requests_total{status=\"499\"}", 1));
  EXPECT_EQ(server.metric("generated_tokens_total"), 4);  // those of whole answers
}

TEST(ServeLimits, ARequestThatDoesNotComeToAnEndIs408) {
  const TinyServer server(with_limits({.read_s = 0.2}));
  RawClient client(server.port());
  client.send("POST /v1/completions HTTP/1.1\r\nContent-Le");
  EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 408"));
}

TEST(ServeLimits, AnIdleConnectionIsClosed) {
  const TinyServer server(with_limits({.idle_s = 0.2}));
  const RawClient client(server.port());
  EXPECT_EQ(client.read_all(), "");
}

TEST(ServeLimits, LongHeadersAndBodiesAreRefused) {
  const TinyServer server(with_limits({.header = 1000, .body = 2000}));
  const json long_body = {{"prompt", std::string(3000, 'a')}};
  EXPECT_EQ(server.post("/v1/completions", long_body).status, 413);
  RawClient client(server.port());
  client.send("GET /health HTTP/1.1\r\nX: " + std::string(3000, 'a') + "\r\n\r\n");
  EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 431"));
}

TEST(ServeLimits, WhatIsNoHttpIs400) {
  const TinyServer server;
  const RawClient client(server.port());
  client.send("what is this?\r\n\r\n");
  const std::string answer = client.read_all();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(answer, HasSubstr("\"error\""));
}

TEST(ServeLimits, OneConnectionTakesRequestAfterRequest) {
  const TinyServer server;
  const RawClient client(server.port());
  client.send(
      "GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\n"
      "Connection: close\r\n\r\n");
  const std::string answers = client.read_all();
  const size_t first = answers.find("{\"status\":\"ok\"}");
  ASSERT_NE(first, std::string::npos);
  EXPECT_NE(answers.find("{\"status\":\"ok\"}", first + 1), std::string::npos) << answers;
}

TEST(ServeLimits, OneConnectionTooManyIs503) {
  TinyServerOptions options;
  options.server.connections = 1;
  const TinyServer server(options);
  const RawClient client(server.port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.read_some(), StartsWith("HTTP/1.1 200"));
  const net::HttpResponse second = server.ask("GET", "/health");
  EXPECT_EQ(second.status, 503);
  EXPECT_GT(second.retry_after_s, 0);
}

TEST(ServeLimits, OtherAddressesNeedAKeyAndPortsAreNamed) {
  EXPECT_TRUE(runners::is_loopback("127.0.0.1"));
  EXPECT_TRUE(runners::is_loopback("127.8.0.1"));
  EXPECT_TRUE(runners::is_loopback("localhost"));
  EXPECT_TRUE(runners::is_loopback("::1"));
  EXPECT_FALSE(runners::is_loopback("0.0.0.0"));
  EXPECT_FALSE(runners::is_loopback("::"));
  EXPECT_THROW(runners::is_loopback("localhost.example"), base::Error);
  EXPECT_THROW(runners::check_server_options({.host = "0.0.0.0"}), base::Error);
  EXPECT_NO_THROW(runners::check_server_options({.host = "0.0.0.0", .key = "k"}));
  EXPECT_THROW(runners::check_server_options({.key = "a\nb"}), base::Error);
  const TinyServer server;
  try {
    const runners::Listener second("127.0.0.1", server.port());
    ADD_FAILURE() << "the port was free";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr(fmt::format("port {}", server.port())));
  }
}

}  // namespace
}  // namespace evalrun::tests
