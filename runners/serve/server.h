// OpenAI's completions API over HTTP: routes, limits, keys. POST /v1/completions,
// POST /v1/chat/completions, POST /tokenize, POST /detokenize, GET /tokenizer_info, GET /v1/models,
// GET /health, GET /metrics.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <thread>

#include "runners/serve/completion_request.h"
#include "runners/serve/engine_worker.h"
#include "runners/serve/http_connection.h"
#include "runners/serve/listener.h"
#include "runners/serve/metrics.h"

namespace evalrun::runners {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;       // 0 = one that is free
  std::string key = {};  // wanted as a bearer token everywhere but at /health; "" = none
  int connections = 64;  // open at once; one more is answered with 503
  HttpLimits limits = {};
  std::function<void(const std::string&)> log = {};  // a line per request, from any thread
};
// usage_error where the address is not of this machine alone and there is no key, or the key has a
// character that no header may have.
void check_server_options(const ServerOptions& options);

class Server {
 public:
  // Listens and answers from now on. Throws as Listener and check_server_options(). All must
  // outlive the object. Requests wait until engine.run() serves them.
  Server(ServerOptions options, const ServedModel& served, EngineWorker& engine,
         ServerMetrics& metrics);
  // After engine.run() has returned: no answer is in work then.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  std::string url() const { return listener_.url(); }
  int port() const { return listener_.port(); }

 private:
  struct Client {
    std::thread thread = {};
    std::atomic<bool> done = false;
  };
  // What a request came to, for the log and the metrics.
  struct Outcome {
    int status = 200;
    bool keep = true;  // the connection is good for another request
    AnswerCounts counts = {};
  };

  void accept_all();
  void serve(int socket);
  Outcome route(HttpConnection& connection, const HttpQuery& query);
  std::string short_answer(const HttpQuery& query) const;
  Outcome complete(HttpConnection& connection, const HttpQuery& query, bool chat);
  Outcome whole_answer(HttpConnection& connection, const HttpQuery& query, Job& job);
  // `begun`: the head of the answer is sent.
  Outcome streamed_answer(HttpConnection& connection, const HttpQuery& query, Job& job,
                          bool& begun);
  Outcome refuse(HttpConnection& connection, const ApiError& error, bool keep);
  void leave_if_stopping(Job& job) const;
  bool has_key(const HttpQuery& query) const;
  std::string models() const;

  const ServerOptions options_;
  const ServedModel& served_;
  EngineWorker& engine_;
  ServerMetrics& metrics_;
  Listener listener_;
  const int64_t started_;  // seconds since 1970
  std::atomic<int64_t> answers_ = 0;
  std::atomic<bool> stopping_ = false;
  std::list<Client> clients_;  // of the accepting thread alone, until it has ended
  std::thread accepting_;
};

}  // namespace evalrun::runners
