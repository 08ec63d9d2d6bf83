#include "runners/serve/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "runners/serve/answer_json.h"
#include "runners/serve/tokenizer_routes.h"

namespace evalrun::runners {
namespace {

constexpr const char* kJsonType = "application/json";

struct Route {
  std::string_view path;
  const char* method;
};
constexpr std::string_view kCompletionsPath = "/v1/completions", kChatPath = "/v1/chat/completions",
                           kModelsPath = "/v1/models", kHealthPath = "/health",
                           kMetricsPath = "/metrics", kTokenizePath = "/tokenize",
                           kDetokenizePath = "/detokenize", kTokenizerInfoPath = "/tokenizer_info";
constexpr auto kRoutes = std::to_array<Route>({{kCompletionsPath, "POST"},
                                               {kChatPath, "POST"},
                                               {kTokenizePath, "POST"},
                                               {kDetokenizePath, "POST"},
                                               {kTokenizerInfoPath, "GET"},
                                               {kModelsPath, "GET"},
                                               {kHealthPath, "GET"},
                                               {kMetricsPath, "GET"}});

// A client that has gone is noticed so soon while the engine is between two steps.
constexpr std::chrono::milliseconds kLookForClient(50);
constexpr int kRetryAfterSeconds = 1;
// How long a refused client may take to read why; the first of them keeps the others waiting.
constexpr double kDrainBusySeconds = 0.1, kDrainSeconds = 1;
constexpr int kClientClosed = 499;  // as nginx logs it; never sent

int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Takes as long for a wrong text as for the right one: it depends on the given length alone.
bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  size_t difference = given.size() ^ secret.size();
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<size_t>(static_cast<unsigned char>(given[i]) ^
                                      static_cast<unsigned char>(secret[i % secret.size()]));
  return difference == 0;
}

// As an event of server-sent events.
std::string event_of(const std::string& data) { return "data: " + data + "\n\n"; }

}  // namespace

void check_server_options(const ServerOptions& options) {
  if (!is_loopback(options.host) && options.key.empty())
    throw base::usage_error(
        fmt::format("{} can be reached from other machines, and there is no key", options.host),
        "name an environment variable that holds a key with --key-env, or listen at 127.0.0.1");
  for (const char c : options.key)
    if (c <= ' ' || c > '~')
      throw base::usage_error("the server's key has a character that no header may have",
                              "use printable ASCII without spaces");
}

Server::Server(ServerOptions options, const ServedModel& served, EngineWorker& engine,
               ServerMetrics& metrics)
    : options_((check_server_options(options), std::move(options))),
      served_(served),
      engine_(engine),
      metrics_(metrics),
      listener_(options_.host, options_.port),
      started_(seconds_since_1970()),
      accepting_([this] { accept_all(); }) {}

Server::~Server() {
  stopping_ = true;
  listener_.wake();
  accepting_.join();
  for (Client& client : clients_) client.thread.join();
}

void Server::accept_all() {
  const auto stop = [this] { return stopping_.load(); };
  while (true) {
    const int socket = listener_.accept(stop);
    if (socket < 0) return;
    clients_.remove_if([](Client& client) {
      if (!client.done) return false;
      client.thread.join();
      return true;
    });
    if (clients_.size() >= static_cast<size_t>(options_.connections)) {
      HttpConnection connection(socket, options_.limits, stop);
      const ApiError error{.status = 503,
                           .message = "too many connections are open",
                           .code = "too_many_connections",
                           .retry_after_s = kRetryAfterSeconds};
      metrics_.count_request(refuse(connection, error, false).status);
      connection.drain(kDrainBusySeconds);
      continue;
    }
    Client& client = clients_.emplace_back();
    try {
      client.thread = std::thread([this, socket, &client] {
        serve(socket);
        client.done = true;
      });
    } catch (const std::system_error&) {  // no more threads: the socket has no owner yet
      ::close(socket);
      clients_.pop_back();
    }
  }
}

void Server::serve(int socket) {
  HttpConnection connection(socket, options_.limits, [this] { return stopping_.load(); });
  base::SteadyClock clock;
  while (true) {
    const HttpConnection::Read read = connection.read();
    Outcome outcome;
    if (read.refused != 0)
      outcome = refuse(connection, {.status = read.refused, .message = read.why}, false);
    if (!read.query && read.refused == 0) return;
    const int64_t begin = clock.now_ns();
    try {
      if (read.query) outcome = route(connection, *read.query);
    } catch (const ApiRefusal& e) {
      outcome = refuse(connection, e.error(), read.query->keep_alive);
    } catch (const std::exception& e) {
      outcome = refuse(connection, {.status = 500, .message = e.what()}, false);
    }
    metrics_.count_request(outcome.status);
    if (read.query && options_.log)
      options_.log(fmt::format(
          "{} {}: {}, {} prompt tokens, {} new tokens, {} steps, {:.1f} ms", read.query->method,
          read.query->path, outcome.status, outcome.counts.prompt_tokens, outcome.counts.new_tokens,
          outcome.counts.steps, static_cast<double>(clock.now_ns() - begin) * 1e-6));
    if (read.refused != 0) connection.drain(kDrainSeconds);
    if (!outcome.keep) return;
  }
}

Server::Outcome Server::refuse(HttpConnection& connection, const ApiError& error, bool keep) {
  HttpHeaders more;
  if (error.retry_after_s > 0)
    more.emplace_back("Retry-After", fmt::format("{}", error.retry_after_s));
  if (!error.allow.empty()) more.emplace_back("Allow", error.allow);
  if (error.status == 401) more.emplace_back("WWW-Authenticate", "Bearer");
  const bool sent = connection.respond(error.status, kJsonType, error.body(), keep, more);
  return {.status = error.status, .keep = keep && sent};
}

bool Server::has_key(const HttpQuery& query) const {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = query.authorization;
  return options_.key.empty() ||
         (given.starts_with(kBearer) &&
          equal_in_constant_time(given.substr(kBearer.size()), options_.key));
}

std::string Server::models() const {
  nlohmann::ordered_json model = {{"id", served_.name},
                                  {"object", "model"},
                                  {"created", started_},
                                  {"owned_by", "evalrun"},
                                  {"max_model_len", served_.context}};
  nlohmann::ordered_json all;
  all["object"] = "list";
  all["data"] = nlohmann::ordered_json::array();
  all["data"].push_back(std::move(model));
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Server::Outcome Server::route(HttpConnection& connection, const HttpQuery& query) {
  const std::string& path = query.path;
  if (path != kHealthPath && !has_key(query))
    throw ApiRefusal(ApiError{.status = 401,
                              .message = "this server wants its key as a bearer token",
                              .code = "invalid_api_key"});
  const auto route = std::ranges::find(kRoutes, path, &Route::path);
  if (route == kRoutes.end())
    throw ApiRefusal(ApiError{.status = 404, .message = "there is no " + path});
  if (query.method != route->method)
    throw ApiRefusal(ApiError{.status = 405,
                              .message = fmt::format("{} takes {} alone", path, route->method),
                              .allow = route->method});
  if (path == kCompletionsPath || path == kChatPath)
    return complete(connection, query, path == kChatPath);
  const std::string answer = short_answer(query);
  const char* type = path == kMetricsPath ? "text/plain; version=0.0.4" : kJsonType;
  const bool sent = connection.respond(200, type, answer, query.keep_alive);
  return {.status = 200, .keep = query.keep_alive && sent};
}

// Of the routes that need no engine.
std::string Server::short_answer(const HttpQuery& query) const {
  const std::string& path = query.path;
  if (path == kMetricsPath) return metrics_.text(engine_.waiting());
  if (path == kModelsPath) return models();
  if (path == kTokenizePath) return tokenize_answer(query.body, served_);
  if (path == kDetokenizePath) return detokenize_answer(query.body, served_);
  if (path == kTokenizerInfoPath) return tokenizer_info(served_);
  return "{\"status\":\"ok\"}";
}

Server::Outcome Server::complete(HttpConnection& connection, const HttpQuery& query, bool chat) {
  const auto job = std::make_shared<Job>(chat ? read_chat(query.body, served_)
                                              : read_completion(query.body, served_));
  switch (engine_.submit(job)) {
    case EngineWorker::Submitted::kTaken:
      break;
    case EngineWorker::Submitted::kFull:
      throw ApiRefusal(ApiError{.status = 429,
                                .message = "the queue is full: requests are served one at a time",
                                .code = "rate_limit_exceeded",
                                .retry_after_s = kRetryAfterSeconds});
    case EngineWorker::Submitted::kClosed:
      throw ApiRefusal(
          ApiError{.status = 503, .message = "the server is stopping", .code = "server_stopping"});
  }
  bool begun = false;
  try {
    return job->request().stream ? streamed_answer(connection, query, *job, begun)
                                 : whole_answer(connection, query, *job);
  } catch (const std::exception&) {
    job->abandon();
    if (!begun) throw;
    return {.status = 500, .keep = false};  // a second answer cannot stand inside the first
  }
}

// The engine answers every request before the server stops, unless it never ran.
void Server::leave_if_stopping(Job& job) const {
  if (!stopping_) return;
  job.abandon();
  throw ApiRefusal(
      ApiError{.status = 503, .message = "the server is stopping", .code = "server_stopping"});
}

Server::Outcome Server::whole_answer(HttpConnection& connection, const HttpQuery& query, Job& job) {
  AnswerJson answer(job.request(), served_, engine_.method(), ++answers_, seconds_since_1970());
  while (true) {
    const std::optional<JobEvent> event = job.next(kLookForClient);
    if (connection.gone()) {
      job.abandon();
      return {.status = kClientClosed, .keep = false};
    }
    if (!event) {
      leave_if_stopping(job);
      continue;
    }
    if (const auto* step = std::get_if<StepTokens>(&*event)) answer.add(*step);
    if (const auto* choice = std::get_if<ChoiceEnd>(&*event)) answer.add(*choice);
    if (const auto* end = std::get_if<JobEnd>(&*event)) {
      if (end->error) throw ApiRefusal(*end->error);
      const bool sent = connection.respond(200, kJsonType, answer.document(*end), query.keep_alive);
      return {.status = 200, .keep = query.keep_alive && sent, .counts = end->counts};
    }
  }
}

// The status is sent with the first chunk, so that what fails before it has a status of its own.
Server::Outcome Server::streamed_answer(HttpConnection& connection, const HttpQuery& query,
                                        Job& job, bool& begun) {
  AnswerJson answer(job.request(), served_, engine_.method(), ++answers_, seconds_since_1970());
  bool sent = true;
  const auto send = [&](const std::string& data) {
    if (!begun) sent = sent && connection.begin_chunks("text/event-stream", query.keep_alive);
    begun = true;
    sent = sent && connection.chunk(event_of(data));
  };
  while (true) {
    const std::optional<JobEvent> event = job.next(kLookForClient);
    if (!sent || connection.gone()) {
      job.abandon();
      return {.status = kClientClosed, .keep = false};
    }
    if (!event) {
      leave_if_stopping(job);
      continue;
    }
    if (const auto* step = std::get_if<StepTokens>(&*event))
      for (const std::string& data : answer.chunks(*step)) send(data);
    if (const auto* choice = std::get_if<ChoiceEnd>(&*event))
      for (const std::string& data : answer.chunks(*choice)) send(data);
    if (const auto* end = std::get_if<JobEnd>(&*event)) {
      if (end->error && !begun) throw ApiRefusal(*end->error);
      if (end->error) {
        send(end->error->body());
        connection.end_chunks();
        return {.status = end->error->status, .keep = false};
      }
      for (const std::string& data : answer.chunks(*end)) send(data);
      send("[DONE]");
      sent = sent && connection.end_chunks();
      return {.status = 200, .keep = query.keep_alive && sent, .counts = end->counts};
    }
  }
}

}  // namespace evalrun::runners
