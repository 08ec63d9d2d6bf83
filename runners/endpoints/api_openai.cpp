// POST /v1/completions of any server that has it: text in, text out. Tokens of a piece are not
// known, and the number of all of them where the server sends usage alone.
#include "runners/endpoints/apis.h"
#include "runners/endpoints/completions_endpoint.h"

namespace evalrun::runners {
namespace {

class OpenAiEndpoint final : public CompletionsEndpoint {
 public:
  using CompletionsEndpoint::CompletionsEndpoint;
  // A seed is "best effort" in OpenAI's documentation: no promise.
  EndpointAbilities abilities() const override { return {.log_probs = true}; }

 protected:
  Paths paths() const override {
    return {.complete = "/v1/completions", .health = "", .models = "/v1/models", .guarded = ""};
  }
  std::string cannot(const EndpointRequest& request) const override {
    if (request.sampling.top_k > 0 && !request.sampling.greedy())
      return "this API has no top_k: sample without it, or use the server's own API";
    return CompletionsEndpoint::cannot(request);
  }
  nlohmann::json body(const EndpointRequest& request) override {
    nlohmann::json body = common_body(request);
    body["prompt"] = request.prompt_text;
    return body;
  }
};

}  // namespace

std::unique_ptr<Endpoint> make_openai_endpoint(const EndpointSetup& setup) {
  return std::make_unique<OpenAiEndpoint>(setup);
}

}  // namespace evalrun::runners
