// A scripted server, and an endpoint that asks it with little patience.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runners/endpoints/endpoint.h"
#include "tests/endpoints/llama_events.h"
#include "tests/endpoints/scripted_server.h"

namespace evalrun::tests {

// Replies of each path in turn, the last one again and again; 404 elsewhere.
using Script = std::map<std::string, std::vector<ScriptedReply>>;

class AskedServer {
 public:
  // `options` as on a command line, after the URL: "api=llama".
  AskedServer(const std::string& options, Script script, bool alone = true)
      : script_(std::move(script)),
        server_([this](const SeenRequest& request) { return answer(request); }),
        endpoint_(make(options, alone)) {}

  runners::Endpoint& operator*() const { return *endpoint_; }
  runners::Endpoint* operator->() const { return endpoint_.get(); }
  std::string url() const { return server_.url(); }
  std::vector<SeenRequest> seen(const std::string& path) const {
    std::vector<SeenRequest> those;
    for (const SeenRequest& request : server_.seen())
      if (request.path == path) those.push_back(request);
    return those;
  }
  // Of the newest request there.
  nlohmann::json body(const std::string& path) const {
    const std::vector<SeenRequest> all = seen(path);
    EXPECT_FALSE(all.empty()) << path;
    return all.empty() ? nlohmann::json() : nlohmann::json::parse(all.back().body);
  }

 private:
  ScriptedReply answer(const SeenRequest& request) {
    const auto it = script_.find(request.path);
    if (it == script_.end() || it->second.empty())
      return json_reply(R"({"error": {"message": "no such path"}})", 404);
    std::vector<ScriptedReply>& replies = it->second;
    ScriptedReply reply = replies.front();
    if (replies.size() > 1) replies.erase(replies.begin());
    return reply;
  }
  std::unique_ptr<runners::Endpoint> make(const std::string& options, bool alone) {
    runners::EndpointTools tools{clock_};
    tools.patience.connect_s = 2;
    tools.patience.total_s = 5;
    tools.patience.stall_s = 2;
    tools.patience.retries = 2;
    tools.patience.first_wait_s = 0.001;
    tools.patience.longest_wait_s = 0.002;
    if (options.find("short") != std::string::npos) tools.patience.stall_s = 0.4;
    tools.alone = alone;
    // "short" is ours: a server that says nothing for 400 ms has stalled.
    const std::string said = options.substr(0, options.find(",short"));
    return runners::make_endpoint(
        runners::parse_endpoint("s=" + server_.url() + "," + said, "--endpoint"), tools);
  }

  base::SteadyClock clock_;
  Script script_;
  ScriptedServer server_;
  std::unique_ptr<runners::Endpoint> endpoint_;
};

inline runners::EndpointRequest small_request(int max_new = 8) {
  runners::EndpointRequest request;
  request.prompt_ids = {1, 22, 333};
  request.prompt_text = "Once upon";
  request.max_new = max_new;
  return request;
}

inline runners::EndpointRequest sampled_request() {
  runners::EndpointRequest request = small_request();
  request.sampling.temperature = 0.75;
  request.sampling.top_k = 40;
  request.sampling.top_p = 0.5;
  request.seed = 12345;
  return request;
}

inline std::vector<int> arrived_tokens(const runners::EndpointReply& reply) {
  std::vector<int> tokens;
  for (const runners::EndpointArrival& arrival : reply.arrivals) tokens.push_back(arrival.tokens);
  return tokens;
}

inline std::vector<std::string> arrived_texts(const runners::EndpointReply& reply) {
  std::vector<std::string> texts;
  for (const runners::EndpointArrival& arrival : reply.arrivals) texts.push_back(arrival.text);
  return texts;
}

}  // namespace evalrun::tests
