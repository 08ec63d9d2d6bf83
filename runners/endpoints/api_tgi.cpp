// Text Generation Inference: POST /generate_stream
// (https://huggingface.co/docs/text-generation-inference, its OpenAPI description). Written after
// that documentation; not run against a real server.
//
// It takes text, to which its tokenizer adds the BOS token. An event has one token, also where
// several came of one step. Accepted draft tokens are not in the answer.
#include <utility>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "runners/endpoints/apis.h"
#include "runners/endpoints/event_fields.h"

namespace evalrun::runners {
namespace {

class TgiEndpoint final : public StreamedEndpoint {
 public:
  using StreamedEndpoint::StreamedEndpoint;
  EndpointAbilities abilities() const override {
    return {.gives_ids = true, .seeded = true, .log_probs = true};
  }

 protected:
  Paths paths() const override {
    return {.complete = "/generate_stream", .health = "/health", .models = "/info", .guarded = ""};
  }
  std::vector<std::string> models(const nlohmann::json& listed) const override {
    return {base::ObjectReader(listed, spec().url, "info").required<std::string>("model_id")};
  }
  nlohmann::json body(const EndpointRequest& request) override;
  void read(const nlohmann::json& event, ArrivingAnswer& answer) override;

 private:
  EndpointLogProb token_of(const nlohmann::json& token, const std::string& place) const;
  void read_details(const nlohmann::json& details, ArrivingAnswer& answer) const;
};

nlohmann::json TgiEndpoint::body(const EndpointRequest& request) {
  const engine::SamplingParams& sampling = request.sampling;
  nlohmann::json params = {{"max_new_tokens", request.max_new},
                           {"do_sample", !sampling.greedy()},
                           {"return_full_text", false},
                           {"decoder_input_details", false},
                           {"details", true}};
  // It refuses values that mean "off": temperature 0, top_k 0, top_p 1.
  if (!sampling.greedy()) {
    params["temperature"] = sampling.temperature;
    if (sampling.top_k > 0) params["top_k"] = sampling.top_k;
    if (sampling.top_p < 1) params["top_p"] = sampling.top_p;
    params["seed"] = request.seed & 0x7FFFFFFF;
  }
  if (!request.stop_texts.empty()) params["stop"] = request.stop_texts;
  if (request.log_probs > 0) params["top_n_tokens"] = request.log_probs;
  return {{"inputs", request.prompt_text}, {"parameters", params}};
}

EndpointLogProb TgiEndpoint::token_of(const nlohmann::json& token, const std::string& place) const {
  base::ObjectReader reader(token, spec().url, place);
  EndpointLogProb prob;
  prob.token = reader.required<int32_t>("id");
  prob.text = reader.required<std::string>("text");
  prob.log_prob = reader.optional<double>("logprob", 0);
  return prob;
}

void TgiEndpoint::read_details(const nlohmann::json& details, ArrivingAnswer& answer) const {
  base::ObjectReader reader(details, spec().url, "event.details");
  const auto reason = reader.required<std::string>("finish_reason");
  answer.reply.stop = reason == "length"          ? EndpointStop::kLimit
                      : reason == "eos_token"     ? EndpointStop::kStopToken
                      : reason == "stop_sequence" ? EndpointStop::kStopText
                                                  : EndpointStop::kUnknown;
  answer.reply.counts.new_tokens = read_count(reader, "generated_tokens");
  if (!answer.reply.counts.new_tokens) reader.fail("generated_tokens", "is missing");
  answer.reply.counts.prompt_tokens = read_count(reader, "input_length");
  answer.done = true;
}

void TgiEndpoint::read(const nlohmann::json& event, ArrivingAnswer& answer) {
  base::ObjectReader reader(event, spec().url, "event");
  const nlohmann::json* token = reader.raw("token");
  if (token == nullptr) reader.fail("token", "is missing");
  EndpointLogProb own = token_of(*token, "event.token");
  AnswerPiece piece;
  piece.ids = {own.token};
  // The stop token's name is not a part of the answer.
  const bool special =
      base::ObjectReader(*token, spec().url, "event.token").optional<bool>("special", false);
  if (!special) piece.text = own.text;
  if (answer.request.log_probs > 0) {
    std::vector<EndpointLogProb>& best = piece.log_probs.emplace_back();
    best.push_back(std::move(own));
    if (const nlohmann::json* top = reader.raw("top_tokens"); top != nullptr && !top->is_null())
      for (const nlohmann::json& one : list_of(top, spec().url, "event.top_tokens"))
        best.push_back(token_of(one, "event.top_tokens"));
  }
  answer.add(std::move(piece));
  if (const nlohmann::json* details = reader.raw("details");
      details != nullptr && !details->is_null())
    read_details(*details, answer);
}

}  // namespace

std::unique_ptr<Endpoint> make_tgi_endpoint(const EndpointSetup& setup) {
  return std::make_unique<TgiEndpoint>(setup);
}

}  // namespace evalrun::runners
