// The server in this process, on the tiny Llama among the fixtures.
#pragma once
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/model/model.h"
#include "engine/net/http_client.h"
#include "engine/tokenizer/tokenizer.h"
#include "methods/registration.h"
#include "runners/serve/engine_worker.h"
#include "runners/serve/server.h"

namespace evalrun::tests {

using nlohmann::json;

inline std::shared_ptr<const engine::Model> served_llama() {
  static const auto model =
      engine::load_model(EVALRUN_TEST_DATA "/models/tiny-llama", {.n_threads = 1, .cache = false});
  return model;
}

inline engine::SessionOptions one_thread(int max_tokens) {
  engine::SessionOptions options;
  options.max_tokens = max_tokens;
  options.n_threads = 1;
  return options;
}

struct TinyServerOptions {
  std::string method = "ar";
  int context = 1024;
  int queue = 16;
  bool running = true;  // false: requests wait until start()
  runners::ServerOptions server = {.port = 0};
};

class TinyServer {
 public:
  explicit TinyServer(const TinyServerOptions& options = {})
      : served_{"tiny", served_llama(), options.context},
        engine_(setup(options), metrics_),
        server_(options.server, served_, engine_, metrics_) {
    if (options.running) start();
  }
  ~TinyServer() {
    if (!thread_.joinable()) start();  // answers what waits
    stop_ = true;
    thread_.join();
  }
  TinyServer(const TinyServer&) = delete;
  TinyServer& operator=(const TinyServer&) = delete;

  void start() {
    thread_ = std::thread([this] { engine_.run([this] { return stop_.load(); }); });
  }
  int port() const { return server_.port(); }
  int waiting() const { return engine_.waiting(); }
  std::string method() const { return engine_.method(); }

  net::HttpResponse ask(const std::string& method, const std::string& path,
                        const std::string& body = {}, const std::string& key = {}) const {
    base::SteadyClock clock;
    net::HttpClient client(clock);
    net::HttpRequest request;
    request.method = method;
    request.url = server_.url() + path;
    request.body = body;
    request.key = key;
    request.total_s = 60;
    return client.send(request);
  }
  net::HttpResponse post(const std::string& path, const json& body) const {
    return ask("POST", path, body.dump());
  }
  // The answer of a request that must succeed.
  json complete(const json& body, const std::string& path = "/v1/completions") const {
    const net::HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body << response.problem;
    return json::parse(response.body, nullptr, false);
  }
  // A counter of GET /metrics; -1 where there is none.
  double metric(const std::string& name) const {
    const std::string text = "\n" + ask("GET", "/metrics").body;
    const size_t at = text.find("\nevalrun_" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 10));
  }
  // Whether a counter comes to a value within some seconds.
  bool comes_to(const std::string& name, double value) const {
    for (int i = 0; i < 500; ++i) {
      if (metric(name) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  static runners::EngineSetup setup(const TinyServerOptions& options) {
    runners::EngineSetup setup;
    setup.target = served_llama();
    setup.method = methods::parse_method(options.method);
    setup.session = one_thread(options.context);
    setup.context = options.context;
    setup.queue = options.queue;
    return setup;
  }

  const runners::ServedModel served_;
  runners::ServerMetrics metrics_;
  runners::EngineWorker engine_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
  runners::Server server_;  // ends first: its clients wait for the engine
};

}  // namespace evalrun::tests
