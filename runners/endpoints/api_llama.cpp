// llama-server of llama.cpp: POST /completion
// (https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md).
#include <algorithm>
#include <utility>

#include "engine/base/json_fields.h"
#include "runners/endpoints/apis.h"
#include "runners/endpoints/event_fields.h"

namespace evalrun::runners {
namespace {

// In our order (engine/sampling.h). Those that are off are left out, and all others are.
nlohmann::json llama_samplers(const engine::SamplingParams& sampling) {
  nlohmann::json names = nlohmann::json::array({"temperature"});
  if (sampling.greedy()) return names;
  if (sampling.top_k > 0) names.push_back("top_k");
  if (sampling.top_p < 1) names.push_back("top_p");
  return names;
}

bool all_ascii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

class LlamaEndpoint final : public StreamedEndpoint {
 public:
  using StreamedEndpoint::StreamedEndpoint;
  EndpointAbilities abilities() const override {
    return {.takes_ids = true,
            .gives_ids = true,
            .ignores_eos = true,
            .seeded = true,
            .counts_drafts = true,
            .log_probs = true,
            .cache_off = true,
            .verified = true};
  }

 protected:
  // Models are listed to everybody; /props wants the key.
  Paths paths() const override {
    return {.complete = "/completion",
            .health = "/health",
            .models = "/v1/models",
            .guarded = "/props"};
  }
  std::vector<std::string> models(const nlohmann::json& listed) const override {
    return listed_models(listed, spec().url);
  }
  nlohmann::json body(const EndpointRequest& request) override;
  void read(const nlohmann::json& event, ArrivingAnswer& answer) override;

 private:
  void read_last(base::ObjectReader& event, ArrivingAnswer& answer) const;
  void read_timings(const nlohmann::json& timings, EndpointCounts& counts) const;
};

nlohmann::json LlamaEndpoint::body(const EndpointRequest& request) {
  const engine::SamplingParams& sampling = request.sampling;
  nlohmann::json body = {{"prompt", request.prompt_ids},
                         {"stream", true},
                         {"return_tokens", true},
                         {"n_predict", request.max_new},
                         {"ignore_eos", request.ignore_eos},
                         {"cache_prompt", spec().cache == EndpointSpec::Cache::kKept},
                         {"samplers", llama_samplers(sampling)},
                         {"temperature", sampling.temperature},
                         {"top_k", sampling.greedy() ? 0 : sampling.top_k},
                         {"top_p", sampling.greedy() ? 1.0 : sampling.top_p},
                         {"min_p", 0.0},
                         {"typical_p", 1.0},
                         {"top_n_sigma", -1.0},
                         {"dynatemp_range", 0.0},
                         {"xtc_probability", 0.0},
                         {"dry_multiplier", 0.0},
                         {"repeat_penalty", 1.0},
                         {"presence_penalty", 0.0},
                         {"frequency_penalty", 0.0},
                         {"mirostat", 0}};
  // 32 bits, of which all ones mean a random seed.
  if (!sampling.greedy()) body["seed"] = request.seed % 0xFFFFFFFFu;
  if (!request.stop_texts.empty()) body["stop"] = request.stop_texts;
  if (request.log_probs > 0) {
    body["n_probs"] = request.log_probs;
    body["post_sampling_probs"] = false;
  }
  if (!spec().model.empty()) body["model"] = spec().model;
  return body;
}

void LlamaEndpoint::read_timings(const nlohmann::json& timings, EndpointCounts& counts) const {
  base::ObjectReader reader(timings, spec().url, "event.timings");
  counts.cached_tokens = read_count(reader, "cache_n");
  // prompt_n is without those of the cache.
  if (const auto computed = read_count(reader, "prompt_n"); computed && !counts.prompt_tokens)
    counts.prompt_tokens = *computed + counts.cached_tokens.value_or(0);
  if (!counts.new_tokens) counts.new_tokens = read_count(reader, "predicted_n");
  if (reader.has("prompt_ms")) counts.prompt_ms = reader.required<double>("prompt_ms");
  if (reader.has("predicted_ms")) counts.decode_ms = reader.required<double>("predicted_ms");
  // Both are left out where nothing was drafted.
  counts.drafted = read_count(reader, "draft_n").value_or(0);
  counts.accepted = read_count(reader, "draft_n_accepted").value_or(0);
}

void LlamaEndpoint::read_last(base::ObjectReader& event, ArrivingAnswer& answer) const {
  answer.done = true;
  EndpointReply& reply = answer.reply;
  reply.model = event.optional<std::string>("model", "");
  const auto stop = event.optional<std::string>("stop_type", "");
  reply.stop = stop == "eos"     ? EndpointStop::kStopToken
               : stop == "word"  ? EndpointStop::kStopText
               : stop == "limit" ? EndpointStop::kLimit
                                 : EndpointStop::kUnknown;
  EndpointCounts& counts = reply.counts;
  counts.prompt_tokens = read_count(event, "tokens_evaluated");
  counts.new_tokens = read_count(event, "tokens_predicted");
  if (const nlohmann::json* timings = event.raw("timings");
      timings != nullptr && !timings->is_null())
    read_timings(*timings, counts);
  // Fewer ids than tokens have two reasons. A token that ends within a character is not sent: then
  // there are no ids. Or the server counts accepted draft tokens after the stop: then the ids are
  // the answer, if all its characters are of one byte, so that none can be missing.
  const int64_t ids = static_cast<int64_t>(reply.ids.size());
  if (ids > 0 && counts.new_tokens && ids < *counts.new_tokens && all_ascii(reply.text) &&
      (reply.stop == EndpointStop::kStopToken || reply.stop == EndpointStop::kStopText))
    counts.new_tokens = ids;
}

void LlamaEndpoint::read(const nlohmann::json& event, ArrivingAnswer& answer) {
  base::ObjectReader reader(event, spec().url, "event");
  AnswerPiece piece;
  piece.text = reader.required<std::string>("content");
  piece.ids = read_token_ids(reader.raw("tokens"), spec().url, "event.tokens");
  piece.total = read_count(reader, "tokens_predicted");
  if (const nlohmann::json* probs = reader.raw("completion_probabilities");
      probs != nullptr && !probs->is_null())
    piece.log_probs = read_token_probs(*probs, spec().url, "event.completion_probabilities");
  answer.add(std::move(piece));
  if (reader.required<bool>("stop")) read_last(reader, answer);
}

}  // namespace

std::unique_ptr<Endpoint> make_llama_endpoint(const EndpointSetup& setup) {
  return std::make_unique<LlamaEndpoint>(setup);
}

}  // namespace evalrun::runners
