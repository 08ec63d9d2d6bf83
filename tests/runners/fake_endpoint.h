// Servers that answer in memory, for runs over HTTP without HTTP.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runners/endpoints/endpoint.h"

namespace evalrun::tests {

// What a server can do, answers, and was asked.
struct TableServer {
  runners::EndpointAbilities abilities = {.takes_ids = true,
                                          .gives_ids = true,
                                          .ignores_eos = true,
                                          .seeded = true,
                                          .counts_drafts = true,
                                          .cache_off = true,
                                          .verified = true};
  std::string model = "served";
  std::function<runners::EndpointReply(const runners::EndpointRequest&)> answer;
  std::vector<runners::EndpointRequest> requests = {};
  int checks = 0, settled = 0;
};
using TableServers = std::map<std::string, TableServer>;  // by the endpoint's name

class TableEndpoint final : public runners::Endpoint {
 public:
  TableEndpoint(runners::EndpointSpec spec, TableServer& server)
      : spec_(std::move(spec)), server_(server) {}
  const runners::EndpointSpec& spec() const override { return spec_; }
  runners::EndpointAbilities abilities() const override { return server_.abilities; }
  std::string check(double) override {
    ++server_.checks;
    return server_.model;
  }
  runners::EndpointReply complete(const runners::EndpointRequest& request) override {
    server_.requests.push_back(request);
    return server_.answer(request);
  }
  void settle() override { ++server_.settled; }

 private:
  runners::EndpointSpec spec_;
  TableServer& server_;
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
