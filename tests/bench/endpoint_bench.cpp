// What asking a server costs on this side: a request, and a token of a stream, its parsing
// included. The server is on the loopback interface; its own work is in wall times too, so the same
// request over a bare socket stands beside.
//
// Columns: Time of a request or of a whole stream. per_token: of burst, wall time where all tokens
// are there at once; of tokens_apart, processor time of this side where each comes alone, a
// millisecond after the one before, read with a JSON parser; of answer, the same of a whole
// endpoint as runs ask it, with all that it keeps of the answer; of tokens_over_socket, the same of
// a thread that only reads bytes, the floor. late_us: from the server's clock before it makes a
// token to the arrival that is noted, in the mean; latest_us: at most.
//   build/release/bin/endpoint_bench --benchmark_repetitions=5
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/net/event_stream.h"
#include "engine/net/http_client.h"
#include "runners/endpoints/endpoint.h"
#include "tests/endpoints/llama_events.h"
#include "tests/endpoints/scripted_server.h"
#include "tests/loopback.h"

namespace {

using namespace evalrun;
using tests::ScriptedReply;
using tests::ScriptedServer;
using tests::SeenRequest;

constexpr int kTokens = 200;
const auto kPerToken = benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert;

// A prompt of 500 token ids.
std::string prompt() {
  std::string ids;
  for (int i = 0; i < 500; ++i) ids += std::to_string(20'000 + i) + ",";
  return fmt::format(R"({{"prompt":[{}0],"max_tokens":64}})", ids);
}

// As servers with the API of completions stream a token; `sent` is ours.
std::string token_event() {
  return fmt::format(
      R"(data: {{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":)"
      R"([{{"index":0,"text":" token","token_ids":[1234],"logprobs":null,"finish_reason":null}}],)"
      R"("sent":{}}})"
      "\n\n",
      base::SteadyClock().now_ns());
}

// /echo: what was sent. /burst: tokens as fast as they go. /apart: a millisecond between them.
ScriptedReply serve(const SeenRequest& request) {
  if (request.path == "/echo") return tests::json_reply(request.body);
  ScriptedReply reply;
  for (int i = 0; i < kTokens; ++i)
    reply.pieces.push_back({"", request.path == "/apart" ? 1 : 0, token_event});
  return reply;
}

net::HttpRequest request_of(const ScriptedServer& server, const char* path) {
  net::HttpRequest request;
  request.url = server.url() + path;
  request.body = prompt();
  return request;
}

// A connection without a client library: what the system itself takes.
class BareSocket {
 public:
  explicit BareSocket(const ScriptedServer& server) {
    const std::string url = server.url();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
    const int on = 1;
    EVALRUN_CHECK(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~BareSocket() { ::close(fd_); }
  BareSocket(const BareSocket&) = delete;
  BareSocket& operator=(const BareSocket&) = delete;

  // Adds what comes to `answer` until it ends with `end`. Returns how often something came.
  int64_t ask(const std::string& path, const std::string& body, const std::string& end,
              std::string& answer) {
    EVALRUN_CHECK(tests::send_all(
        fd_,
        fmt::format("POST {} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body)));
    int64_t reads = 0;
    for (; !answer.ends_with(end); ++reads) {
      char buffer[16384];
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      EVALRUN_CHECK(n > 0);
      answer.append(buffer, static_cast<size_t>(n));
    }
    return reads;
  }

 private:
  int fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

void request_over_socket(benchmark::State& state) {
  ScriptedServer server(serve);
  BareSocket socket(server);
  const std::string body = prompt();
  for (auto _ : state) {
    std::string answer;
    socket.ask("/echo", body, body, answer);
  }
}

// The floor of tokens_apart and of answer: a thread that only waits for bytes.
void tokens_over_socket(benchmark::State& state) {
  ScriptedServer server(serve);
  BareSocket socket(server);
  const std::string body = prompt();
  for (auto _ : state) {
    std::string answer;
    EVALRUN_CHECK(socket.ask("/apart", body, "\r\n0\r\n\r\n", answer) >= kTokens);
  }
  state.counters["per_token"] = benchmark::Counter(kTokens, kPerToken);
}

void request_over_client(benchmark::State& state) {
  ScriptedServer server(serve);
  base::SteadyClock clock;
  net::HttpClient client(clock);
  const net::HttpRequest request = request_of(server, "/echo");
  for (auto _ : state) {
    const net::HttpResponse response = client.send(request);
    EVALRUN_CHECK(response.ok(), "{}", response.problem);
    const nlohmann::json answer = nlohmann::json::parse(response.body);
    EVALRUN_CHECK(answer.at("max_tokens") == 64);
  }
  EVALRUN_CHECK(server.connections() == 1);
}

void stream(benchmark::State& state, const char* path) {
  ScriptedServer server(serve);
  base::SteadyClock clock;
  net::HttpClient client(clock);
  const net::HttpRequest request = request_of(server, path);
  int64_t tokens = 0, late_ns = 0, latest_ns = 0;
  for (auto _ : state) {
    net::EventStream events;
    std::string text;
    const net::HttpResponse response =
        client.send(request, [&](std::string_view bytes, int64_t arrival_ns) {
          return events.feed(bytes, [&](const net::Event& event) {
            const nlohmann::json json = nlohmann::json::parse(event.data);
            const nlohmann::json& choice = json.at("choices").at(0);
            text += choice.at("text").get_ref<const std::string&>();
            tokens += static_cast<int64_t>(choice.at("token_ids").size());
            const int64_t late = arrival_ns - json.at("sent").get<int64_t>();
            late_ns += late;
            latest_ns = std::max(latest_ns, late);
            return true;
          });
        });
    EVALRUN_CHECK(response.ok(), "{}", response.problem);
    benchmark::DoNotOptimize(text);
  }
  EVALRUN_CHECK(tokens == kTokens * static_cast<int64_t>(state.iterations()));
  state.counters["per_token"] = benchmark::Counter(kTokens, kPerToken);
  state.counters["late_us"] = static_cast<double>(late_ns) / static_cast<double>(tokens) * 1e-3;
  state.counters["latest_us"] = static_cast<double>(latest_ns) * 1e-3;
}

// Of an endpoint of `api`, whose server sends a token a millisecond after the one before.
void answer(benchmark::State& state, const char* api) {
  const bool llama = std::string_view(api) == "llama";
  ScriptedServer server([llama](const SeenRequest& request) {
    if (request.method == "GET") return tests::json_reply(R"({"data": [{"id": "m"}]})");
    ScriptedReply reply;
    for (int i = 1; i <= kTokens; ++i) {
      const std::string event =
          llama ? "data: " + tests::llama_piece(" token", std::to_string(20'000 + i), i) + "\n\n"
                : token_event();
      reply.pieces.push_back({event, 1});
    }
    reply.pieces.push_back(
        {llama ? "data: " + tests::llama_last(kTokens) + "\n\n" : "data: [DONE]\n\n", 0});
    return reply;
  });
  base::SteadyClock clock;
  const auto endpoint = runners::make_endpoint(
      runners::parse_endpoint(fmt::format("s={},api={},cache=kept", server.url(), api), "bench"),
      {.clock = clock});
  runners::EndpointRequest request;
  for (int i = 0; i < 500; ++i) request.prompt_ids.push_back(20'000 + i);
  request.prompt_text = "Once upon a time";
  request.max_new = kTokens;
  for (auto _ : state) {
    const runners::EndpointReply reply = endpoint->complete(request);
    EVALRUN_CHECK(reply.ok() && reply.arrivals.size() == kTokens, "{}", reply.problem);
  }
  state.counters["per_token"] = benchmark::Counter(kTokens, kPerToken);
}

BENCHMARK(request_over_socket)->UseRealTime();
BENCHMARK(request_over_client)->UseRealTime();
BENCHMARK_CAPTURE(stream, burst, "/burst")->UseRealTime();
// Rates are of processor time without UseRealTime().
BENCHMARK_CAPTURE(stream, tokens_apart, "/apart")->Iterations(5);
BENCHMARK(tokens_over_socket)->Iterations(5);
BENCHMARK_CAPTURE(answer, llama, "llama")->Iterations(5);
BENCHMARK_CAPTURE(answer, openai, "openai")->Iterations(5);

}  // namespace

BENCHMARK_MAIN();
