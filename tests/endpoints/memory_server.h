// Servers that answer in memory: runs, loads and verifications without HTTP. What goes over a
// socket is ScriptedServer's; a server whose answers follow from a small model is token_server.h.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runners/endpoints/endpoint.h"

namespace evalrun::tests {

// What a server can do, answers, and was asked. For several clients at a time.
struct MemoryServer {
  runners::EndpointAbilities abilities = {.takes_ids = true,
                                          .gives_ids = true,
                                          .ignores_eos = true,
                                          .seeded = true,
                                          .counts_drafts = true,
                                          .cache_off = true,
                                          .verified = true};
  std::string model = "served";
  std::function<runners::EndpointReply(const runners::EndpointRequest&)> answer;
  // Instead, by the number of the request, from 0.
  std::function<runners::EndpointReply(int call)> answer_call;
  std::function<void(const runners::EndpointSpec&)> on_check;  // throws where it is down
  bool keeps_requests = true;

  std::vector<runners::EndpointRequest> requests;
  std::vector<std::string> asked;  // names of the endpoints, in order
  std::atomic<int> checks = 0, calls = 0, settled = 0;
  std::atomic<int> clients = 0;              // endpoints that there are now
  std::atomic<int> in_flight = 0, most = 0;  // requests, now and at most
  std::mutex mutex;                          // of `requests` and `asked`
};
using MemoryServers = std::map<std::string, MemoryServer>;  // by the endpoint's name

class MemoryEndpoint final : public runners::Endpoint {
 public:
  MemoryEndpoint(runners::EndpointSpec spec, MemoryServer& server)
      : spec_(std::move(spec)), server_(server) {
    ++server_.clients;
  }
  ~MemoryEndpoint() override { --server_.clients; }
  const runners::EndpointSpec& spec() const override { return spec_; }
  runners::EndpointAbilities abilities() const override { return server_.abilities; }
  std::string check(double) override {
    ++server_.checks;
    if (server_.on_check) server_.on_check(spec_);
    return server_.model;
  }
  runners::EndpointReply complete(const runners::EndpointRequest& request) override {
    const int now = ++server_.in_flight;
    for (int most = server_.most; most < now && !server_.most.compare_exchange_weak(most, now);) {
    }
    if (server_.keeps_requests) {
      const std::scoped_lock lock(server_.mutex);
      server_.requests.push_back(request);
      server_.asked.push_back(spec_.name);
    }
    const int call = server_.calls++;
    runners::EndpointReply reply =
        server_.answer_call ? server_.answer_call(call) : server_.answer(request);
    --server_.in_flight;
    return reply;
  }
  void settle() override { ++server_.settled; }

 private:
  runners::EndpointSpec spec_;
  MemoryServer& server_;
};

inline constexpr int64_t kPieceNs = 1'000'000;

// The bytes of `text` as ids (ByteTokenizer) in pieces of so many tokens, one every kPieceNs; the
// stop token, which is not sent, ends it a piece later.
inline runners::EndpointReply fake_reply(std::string_view text, const std::vector<int>& pieces) {
  runners::EndpointReply reply;
  reply.text = text;
  for (const char c : text) reply.ids.push_back(static_cast<unsigned char>(c));
  size_t at = 0;
  for (const int tokens : pieces) {
    const auto ns = static_cast<int64_t>(reply.arrivals.size() + 1) * kPieceNs;
    const std::string piece(text.substr(at, static_cast<size_t>(tokens)));
    reply.arrivals.push_back({.ns = ns, .tokens = tokens, .text = piece});
    at += static_cast<size_t>(tokens);
  }
  reply.stop = runners::EndpointStop::kStopToken;
  reply.total_ns = static_cast<int64_t>(pieces.size() + 1) * kPieceNs;
  return reply;
}

inline runners::EndpointReply fake_fault(runners::EndpointFault fault, const std::string& problem,
                                         long status = 0) {
  runners::EndpointReply reply;
  reply.fault = fault;
  reply.problem = problem;
  reply.status = status;
  return reply;
}

}  // namespace evalrun::tests
