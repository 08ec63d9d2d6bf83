#include "runners/verify/endpoints/endpoint_answers.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

constexpr double kOneCheck = 5;  // seconds that one check waits for a server that loads

base::Error interrupted_error() {
  return base::Error(base::ExitCode::kInterrupted, "interrupted: there is no verdict",
                     "run the same command again");
}

// What the caller relies on, whatever a server sends.
void bound_reply(const EndpointRequest& request, EndpointReply& reply) {
  if (!reply.ok() || reply.ids.size() <= static_cast<size_t>(request.max_new)) return;
  reply.fault = EndpointFault::kOverLimit;
  reply.problem =
      fmt::format("{} tokens where at most {} were asked for", reply.ids.size(), request.max_new);
}

// What the clients of one call share.
struct SharedQueue {
  std::span<const EndpointRequest> requests;
  std::vector<EndpointReply>& replies;
  std::atomic<size_t> next{0};
  std::atomic<int> failed{0};
  std::atomic<bool> stopped{false};
};

void serve_queue(Endpoint& endpoint, SharedQueue& queue) {
  while (!queue.stopped && queue.failed < kMostEndpointFailures) {
    const size_t i = queue.next++;
    if (i >= queue.requests.size()) return;
    EndpointReply reply = endpoint.complete(queue.requests[i]);
    bound_reply(queue.requests[i], reply);
    if (reply.fault == EndpointFault::kStopped)
      queue.stopped = true;
    else if (!reply.ok())
      ++queue.failed;
    queue.replies[i] = std::move(reply);
  }
}

}  // namespace

EndpointReplies ask_with_clients(const EndpointServer& server,
                                 std::span<const EndpointRequest> requests, int clients) {
  EVALRUN_CHECK(clients > 0, "{} clients", clients);
  const size_t n = std::min(static_cast<size_t>(clients), std::max<size_t>(requests.size(), 1));
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (size_t c = 0; c < n; ++c) endpoints.push_back(server.connect());
  EndpointReplies result;
  result.replies.resize(requests.size());
  for (EndpointReply& reply : result.replies) reply.fault = EndpointFault::kStopped;
  SharedQueue queue{requests, result.replies};
  std::vector<std::exception_ptr> errors(n);
  {
    std::vector<std::jthread> threads;
    for (size_t c = 0; c < n; ++c)
      threads.emplace_back([&, c] {
        try {
          serve_queue(*endpoints[c], queue);
        } catch (...) {
          errors[c] = std::current_exception();
          queue.stopped = true;
        }
      });
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  if (queue.stopped) throw interrupted_error();
  for (const EndpointReply& reply : result.replies) {
    if (reply.ok() || reply.fault == EndpointFault::kStopped) continue;
    if (result.failed++ == 0)
      result.trouble = fmt::format("{}: {}", server.name,
                                   reply.problem.empty() ? to_string(reply.fault) : reply.problem);
  }
  return result;
}

void wait_until_ready(const EndpointServer& server, double seconds, base::Clock& clock,
                      const std::function<void()>& pause, const std::function<bool()>& stop) {
  const int64_t end = clock.now_ns() + static_cast<int64_t>(seconds * 1e9);
  while (true) {
    if (stop && stop()) throw interrupted_error();
    const double left = static_cast<double>(end - clock.now_ns()) / 1e9;
    try {
      server.connect()->check(std::max(0.0, std::min(left, kOneCheck)));
      return;
    } catch (const base::Error& e) {
      // A server that is just starting refuses connections; a wrong option stays wrong.
      if (e.code() != base::ExitCode::kData || left <= 0) throw;
    }
    pause();
  }
}

EndpointAnswer answer_of(const EndpointReply& reply, std::span<const int32_t> stop_ids) {
  std::span<const int32_t> ids = reply.ids;
  while (!ids.empty() && std::find(stop_ids.begin(), stop_ids.end(), ids.back()) != stop_ids.end())
    ids = ids.first(ids.size() - 1);
  return {ids, reply.text};
}

size_t common_length(const EndpointAnswer& a, const EndpointAnswer& b, bool by_ids) {
  if (by_ids) {
    const auto [end, ignored] =
        std::mismatch(a.ids.begin(), a.ids.end(), b.ids.begin(), b.ids.end());
    return static_cast<size_t>(end - a.ids.begin());
  }
  const auto [end, ignored] =
      std::mismatch(a.text.begin(), a.text.end(), b.text.begin(), b.text.end());
  auto length = static_cast<size_t>(end - a.text.begin());
  const auto inside = [](std::string_view text, size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (length > 0 && (inside(a.text, length) || inside(b.text, length))) --length;
  return length;
}

bool same_answer(const EndpointAnswer& a, const EndpointAnswer& b, bool by_ids) {
  return by_ids ? std::equal(a.ids.begin(), a.ids.end(), b.ids.begin(), b.ids.end())
                : a.text == b.text;
}

}  // namespace evalrun::runners
