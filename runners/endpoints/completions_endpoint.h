// POST /v1/completions, streamed, as OpenAI defined it
// (https://platform.openai.com/docs/api-reference/completions) and as vLLM adds to it.
#pragma once
#include <string>
#include <vector>

#include "engine/base/json_fields.h"
#include "runners/endpoints/streamed_endpoint.h"

namespace evalrun::runners {

class CompletionsEndpoint : public StreamedEndpoint {
 public:
  using StreamedEndpoint::StreamedEndpoint;

 protected:
  // What every server with this route understands: model, limit, temperature, top_p, seed, stop,
  // log-probabilities, usage at the end. The prompt is the API's.
  nlohmann::json common_body(const EndpointRequest& request) const;
  void read(const nlohmann::json& event, ArrivingAnswer& answer) final;
  // What a server adds to an event, after what all have. Throws as read() does.
  virtual void read_more(base::ObjectReader& /*event*/, ArrivingAnswer& /*answer*/) {}
  std::vector<std::string> models(const nlohmann::json& listed) const final;
  bool needs_model() const final { return true; }
  bool ends_with_done() const final { return true; }

 private:
  void read_choice(const nlohmann::json& choice, ArrivingAnswer& answer) const;
  void read_usage(const nlohmann::json& usage, EndpointCounts& counts) const;
  std::vector<std::vector<EndpointLogProb>> read_log_probs(const nlohmann::json& given) const;
};

}  // namespace evalrun::runners
