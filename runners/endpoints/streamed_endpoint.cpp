#include "runners/endpoints/streamed_endpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/utf8.h"
#include "runners/endpoints/waiting_events.h"

namespace evalrun::runners {
namespace {

constexpr double kLongestProbe_s = 20;         // of health, models and counters
constexpr size_t kLongestListing = 8u << 20u;  // bytes of their answers

// Bytes of a whole stream: log-probabilities of twenty tokens are 3 KB of JSON for each token, and
// the last event may repeat the prompt.
size_t longest_stream(const EndpointRequest& request) {
  return (size_t{4} << 20u) + (size_t{16} << 10u) * static_cast<size_t>(request.max_new) +
         size_t{64} * request.prompt_ids.size() + 4 * request.prompt_text.size();
}

// The name that was asked for, or a dated copy of it: "m" is answered as "m:20230824-v2" or
// "m-2024-07-18".
bool same_model(std::string_view asked, std::string_view got) {
  if (!got.starts_with(asked)) return false;
  got.remove_prefix(asked.size());
  return got.empty() || got.starts_with(":20") || got.starts_with("-20");
}

// {"error": ...} in the middle of a stream: the status that it names, TGI's word, or "server
// error".
EndpointFailure failure_of_event(const nlohmann::json& event, const nlohmann::json& error,
                                 const std::string& data) {
  EndpointFailure failure{EndpointFault::kServerError,
                          fmt::format("ended with an error: {}", server_message(data)), 0};
  if (error.is_object() && error.contains("code") && error.at("code").is_number_integer()) {
    const int64_t code = error.at("code").get<int64_t>();
    if (code >= 400 && code < 600) {
      failure.status = static_cast<long>(code);
      failure.fault = fault_of_status(failure.status, data);
    }
  }
  if (const auto kind = event.find("error_type"); kind != event.end()) {
    if (*kind == "overloaded") failure.fault = EndpointFault::kBusy;
    if (*kind == "validation") failure.fault = EndpointFault::kRefused;
  }
  return failure;
}

}  // namespace

StreamedEndpoint::StreamedEndpoint(const EndpointSetup& setup)
    : setup_(setup), client_(setup_.tools.clock, setup_.tools.stop), model_(setup_.spec.model) {}

bool StreamedEndpoint::stopped() const { return setup_.tools.stop && setup_.tools.stop(); }

bool StreamedEndpoint::pause(double seconds) const {
  constexpr double kSlice_s = 0.05;
  // By the sleeps themselves: the clock may be one that a test holds.
  for (double left = seconds; left > 0 && !stopped(); left -= kSlice_s)
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, kSlice_s)));
  return !stopped();
}

EndpointReply StreamedEndpoint::failed(const EndpointFailure& failure) const {
  EndpointReply reply;
  reply.fault = failure.fault;
  reply.status = failure.status;
  reply.problem = fault_problem(setup_.spec, failure, setup_.key);
  return reply;
}

// What a reader said of the server's JSON. Readers name the URL, and so does every problem.
EndpointFailure StreamedEndpoint::malformed(const base::Error& error) const {
  const std::string url = setup_.spec.url + ": ";
  const std::string& message = error.message();
  return {EndpointFault::kMalformed,
          message.starts_with(url) ? message.substr(url.size()) : message, 0};
}

net::HttpResponse StreamedEndpoint::get(const std::string& path) {
  const EndpointPatience& patience = setup_.tools.patience;
  net::HttpRequest request;
  request.method = "GET";
  request.url = setup_.spec.url + path;
  request.key = setup_.key;
  request.connect_s = patience.connect_s;
  request.total_s = std::min(patience.total_s, kLongestProbe_s);
  request.stall_s = std::min(patience.stall_s, kLongestProbe_s);
  request.longest_body = kLongestListing;
  return client_.send(request);
}

EndpointFailure StreamedEndpoint::probe_models() {
  const net::HttpResponse listed = get(paths().models);
  if (listed.status == 404 && !(needs_model() && model_.empty())) return {};
  if (!listed.ok()) return failure_of(listed);
  try {
    served_ = models(nlohmann::json::parse(listed.body));
  } catch (const base::Error& error) {
    return malformed(error);
  } catch (const nlohmann::json::exception&) {
    return {EndpointFault::kMalformed, fmt::format("{} is not valid JSON", paths().models), 0};
  }
  const std::string& asked = setup_.spec.model;
  if (!asked.empty() && !served_.empty() && std::ranges::find(served_, asked) == served_.end())
    return {EndpointFault::kOtherModel,
            fmt::format("serves {}, not {}", fmt::join(served_, ", "), asked), 0};
  if (needs_model() && model_.empty()) {
    if (served_.empty())
      return {EndpointFault::kMalformed, fmt::format("{} lists no model", paths().models), 0};
    model_ = served_.front();
  }
  return {};
}

EndpointFailure StreamedEndpoint::probe() {
  const Paths where = paths();
  if (!where.health.empty()) {
    const net::HttpResponse health = get(where.health);
    // A server without such a path is asked for its models alone.
    if (!health.ok() && health.status != 404) {
      EndpointFailure failure = failure_of(health);
      if (health.status == 503) failure.fault = EndpointFault::kLoading;
      return failure;
    }
  }
  if (EndpointFailure failure = probe_models(); failure.fault != EndpointFault::kNone)
    return failure;
  if (!where.guarded.empty())
    if (const net::HttpResponse guarded = get(where.guarded);
        guarded.status == 401 || guarded.status == 403)
      return failure_of(guarded);
  return {};
}

std::string StreamedEndpoint::check(double wait_s) {
  const double step_s = std::clamp(setup_.tools.patience.first_wait_s, 0.001, 0.25);
  const int64_t begin_ns = setup_.tools.clock.now_ns();
  for (double slept_s = 0;; slept_s += step_s) {
    const EndpointFailure failure = probe();
    if (failure.fault == EndpointFault::kNone)
      return !setup_.spec.model.empty() ? setup_.spec.model
             : served_.empty()          ? ""
                                        : served_.front();
    const double waited_s =
        std::max(slept_s, static_cast<double>(setup_.tools.clock.now_ns() - begin_ns) * 1e-9);
    const bool go_on = may_pass(failure.fault) && waited_s < wait_s;
    if (failure.fault == EndpointFault::kStopped || (go_on && !pause(step_s)))
      throw base::Error(base::ExitCode::kInterrupted,
                        fmt::format("{}: interrupted while it was asked", setup_.spec.url));
    if (!go_on)
      throw base::data_error(setup_.spec.url, to_string(failure.fault),
                             fault_detail(failure, setup_.key), fault_remedy(setup_.spec, failure));
  }
}

std::string StreamedEndpoint::cannot(const EndpointRequest& request) const {
  const EndpointAbilities able = abilities();
  if (request.max_new < 1) return "at least one new token must be asked for";
  if (able.takes_ids && request.prompt_ids.empty()) return "the prompt has no token ids";
  if (!able.takes_ids && request.prompt_text.empty()) return "the prompt has no text";
  if (!able.takes_ids && !base::utf8_valid(request.prompt_text))
    return "the prompt is not valid UTF-8, and this API takes no token ids";
  if (!std::ranges::all_of(request.stop_texts, base::utf8_valid))
    return "a stop text is not valid UTF-8";
  if (request.ignore_eos && !able.ignores_eos)
    return "this API cannot be told to go on after the stop token";
  if (request.log_probs > 0 && !able.log_probs) return "this API gives no log-probabilities";
  return "";
}

EndpointReply StreamedEndpoint::complete(const EndpointRequest& request) {
  const EndpointPatience& patience = setup_.tools.patience;
  if (const std::string why = cannot(request); !why.empty())
    return failed({EndpointFault::kRefused, why, 0});
  double wait_s = patience.first_wait_s;
  for (int attempts = 1;; ++attempts) {
    EndpointReply reply = attempt(request);
    reply.attempts = attempts;
    // A server that asks for more patience than a whole request has will not be waited for.
    if (!may_pass(reply.fault) || attempts > patience.retries ||
        reply.retry_after_s > std::max(patience.total_s, patience.longest_wait_s))
      return reply;
    if (!pause(std::max(wait_s, reply.retry_after_s))) {
      reply = failed({EndpointFault::kStopped, "interrupted between two attempts", 0});
      reply.attempts = attempts;
      return reply;
    }
    wait_s = std::min(2 * wait_s, patience.longest_wait_s);
  }
}

bool StreamedEndpoint::take(std::string_view data, int64_t ns, ArrivingAnswer& answer,
                            EndpointFailure& failure) {
  if (data.empty()) return true;  // keeps the connection awake
  if (data == "[DONE]") {
    if (ends_with_done()) answer.done = true;
    return true;
  }
  if (answer.done) return false;  // an answer does not go on after its end
  const bool hidden = !base::utf8_valid(data);
  try {
    const nlohmann::json parsed =
        hidden ? nlohmann::json::parse(hide_bytes(data)) : nlohmann::json::parse(data);
    if (!parsed.is_object()) throw base::data_error(setup_.spec.url, "event", "is not an object");
    if (const auto error = parsed.find("error"); error != parsed.end() && !error->is_null()) {
      failure = failure_of_event(parsed, *error, std::string(data));
      return false;
    }
    answer.begin_event(ns, hidden);
    read(parsed, answer);
  } catch (const base::Error& error) {
    failure = malformed(error);
    return false;
  } catch (const nlohmann::json::exception&) {
    failure = {EndpointFault::kMalformed,
               fmt::format("an event is not the JSON that was promised: {}", data), 0};
    return false;
  }
  if (!answer.over_limit()) return true;
  failure = {EndpointFault::kOverLimit,
             fmt::format("goes on after {} new tokens", answer.request.max_new), 0};
  return false;
}

EndpointReply StreamedEndpoint::attempt(const EndpointRequest& request) {
  EndpointFailure failure;
  if (needs_model() && model_.empty()) failure = probe_models();
  if (failure.fault != EndpointFault::kNone) return failed(failure);
  before();
  const EndpointPatience& patience = setup_.tools.patience;
  net::HttpRequest http;
  http.url = setup_.spec.url + paths().complete;
  // Prompts and stop texts are UTF-8 (cannot()); of the model's name nobody knows.
  http.body = body(request).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  http.key = setup_.key;
  http.connect_s = patience.connect_s;
  http.total_s = patience.total_s;
  http.stall_s = patience.stall_s;
  // Of a server that repeats: half of the answer in each event, on average.
  http.longest_body =
      longest_stream(request) * (repeats() ? static_cast<size_t>(request.max_new) / 2 + 1 : 1);
  ArrivingAnswer answer(request);
  net::EventStream events;
  WaitingEvents waiting(request.max_new);
  const auto read = [&](std::string_view data, int64_t ns) {
    return take(data, ns, answer, failure);
  };
  const net::HttpResponse response =
      client_.send(http, [&](std::string_view bytes, int64_t arrival_ns) {
        return events.feed(bytes, [&](const net::Event& event) {
          return !waiting.add(event.data, arrival_ns) || waiting.read_all(read);
        });
      });
  waiting.read_all(read);
  if (failure.fault == EndpointFault::kNone) failure = outcome(response, events, answer);
  if (failure.fault == EndpointFault::kNone) {
    answer.finish(response.sent_ns);
    failure = judge(request, answer.reply);
  }
  EndpointReply reply =
      failure.fault == EndpointFault::kNone ? std::move(answer.reply) : failed(failure);
  // A connection that failed after the last event is no part of the answer.
  reply.total_ns = response.failure == net::HttpFailure::kNone || reply.arrivals.empty()
                       ? response.end_ns - response.sent_ns
                       : reply.arrivals.back().ns;
  reply.retry_after_s = response.retry_after_s;
  if (reply.ok()) after(reply);
  hide_key(reply);
  return reply;
}

EndpointFailure StreamedEndpoint::outcome(const net::HttpResponse& response,
                                          const net::EventStream& events,
                                          const ArrivingAnswer& answer) const {
  // The last event was read: what became of the connection then is of no interest.
  if (response.status == 200 && answer.done) return {};
  if (events.too_long())
    return {EndpointFault::kMalformed, "an event is longer than any answer", 0};
  if (!response.ok()) return failure_of(response);
  if (answer.reply.arrivals.empty() && response.content_type != "text/event-stream")
    return {EndpointFault::kMalformed,
            fmt::format("answered with {}, not with a stream of events",
                        response.content_type.empty() ? "no type" : response.content_type),
            0};
  return {EndpointFault::kBroken, "the stream ended before its last event", 0};
}

EndpointFailure StreamedEndpoint::judge(const EndpointRequest& request,
                                        const EndpointReply& reply) const {
  if (reply.counts.new_tokens.value_or(0) > request.max_new)
    return {EndpointFault::kOverLimit,
            fmt::format("gave {} new tokens where {} were asked for", *reply.counts.new_tokens,
                        request.max_new),
            0};
  if (!model_.empty() && !reply.model.empty() && !same_model(model_, reply.model))
    return {EndpointFault::kOtherModel,
            fmt::format("answered with model {}, not {}", reply.model, model_), 0};
  return {};
}

void StreamedEndpoint::hide_key(EndpointReply& reply) const {
  if (setup_.key.empty()) return;
  std::string text = net::without_key(reply.text, setup_.key);
  // A key may be cut between two pieces.
  if (text != reply.text)
    for (EndpointArrival& arrival : reply.arrivals) arrival.text.clear();
  reply.text = std::move(text);
  reply.model = net::without_key(std::move(reply.model), setup_.key);
  for (EndpointArrival& arrival : reply.arrivals)
    arrival.text = net::without_key(std::move(arrival.text), setup_.key);
  for (std::vector<EndpointLogProb>& token : reply.log_probs)
    for (EndpointLogProb& one : token) one.text = net::without_key(std::move(one.text), setup_.key);
}

}  // namespace evalrun::runners
