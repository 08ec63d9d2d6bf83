// vLLM (https://docs.vllm.ai/en/latest/serving/openai_compatible_server/): POST /v1/completions
// with the prompt as ids, return_token_ids, and a cache_salt that no other request has, so that
// none finds its prefix in the cache.
//
// Drafted and accepted tokens are in the answer where the server was started with
// --per-request-spec-decode-metrics, beside other clients' requests too. Else they are counters of
// the whole server (GET /metrics): what they rise by around a request is the request's while it is
// alone there. Whether it was is checked: the server's generated tokens must rise by those of the
// answer, else there are no counts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "engine/base/json_fields.h"
#include "runners/endpoints/apis.h"
#include "runners/endpoints/completions_endpoint.h"
#include "runners/endpoints/event_fields.h"
#include "runners/endpoints/prometheus.h"

namespace evalrun::runners {
namespace {

constexpr const char* kGeneratedTokens = "vllm:generation_tokens_total";

uint64_t fresh_salt() {
  std::random_device device;
  return (uint64_t{device()} << 32u) ^ uint64_t { device() };
}

class VllmEndpoint final : public CompletionsEndpoint {
 public:
  explicit VllmEndpoint(const EndpointSetup& setup)
      : CompletionsEndpoint(setup), salt_(fresh_salt()) {}

  EndpointAbilities abilities() const override {
    return {.takes_ids = true,
            .gives_ids = true,
            .ignores_eos = true,
            .seeded = true,
            .counts_drafts = setup().tools.alone,
            .log_probs = true,
            .cache_off = true,
            .verified = true};
  }

 protected:
  Paths paths() const override {
    return {
        .complete = "/v1/completions", .health = "/health", .models = "/v1/models", .guarded = ""};
  }

  nlohmann::json body(const EndpointRequest& request) override {
    nlohmann::json body = common_body(request);
    body["prompt"] = request.prompt_ids;
    body["return_token_ids"] = true;
    body["ignore_eos"] = request.ignore_eos;
    body["top_k"] = request.sampling.top_k > 0 ? request.sampling.top_k : -1;
    // Left out, the model's generation_config.json would decide.
    body["min_p"] = 0.0;
    body["repetition_penalty"] = 1.0;
    body["presence_penalty"] = 0.0;
    body["frequency_penalty"] = 0.0;
    if (request.log_probs > 0) body["return_tokens_as_token_ids"] = true;
    if (spec().cache == EndpointSpec::Cache::kOff)
      body["cache_salt"] = fmt::format("evalrun-{:016x}-{}", salt_, ++salted_);
    return body;
  }

  // "metrics" of the last event: times with --enable-per-request-metrics, drafts with
  // --per-request-spec-decode-metrics.
  void read_more(base::ObjectReader& event, ArrivingAnswer& answer) override {
    const nlohmann::json* metrics = event.raw("metrics");
    if (metrics == nullptr || metrics->is_null()) return;
    EndpointCounts& counts = answer.reply.counts;
    base::ObjectReader reader(*metrics, spec().url, "event.metrics");
    counts.prompt_ms = read_ms(reader, "time_to_first_token_ms");
    counts.decode_ms = read_ms(reader, "generation_time_ms");
    const nlohmann::json* drafts = reader.raw("speculative_decoding");
    if (drafts == nullptr || drafts->is_null()) return;
    base::ObjectReader of_drafts(*drafts, spec().url, "event.metrics.speculative_decoding");
    counts.drafts = read_count(of_drafts, "num_spec_steps");
    counts.drafted = read_count(of_drafts, "num_draft_tokens");
    counts.accepted = read_count(of_drafts, "num_accepted_draft_tokens");
  }

  void before() override {
    before_.reset();
    if (setup().tools.alone) before_ = counters();
  }

  void after(EndpointReply& reply) override {
    read_counters(reply.counts);
    leave_out_what_is_behind_the_end(reply);
  }

 private:
  static std::optional<double> read_ms(base::ObjectReader& reader, const std::string& key) {
    const nlohmann::json* given = reader.raw(key);
    if (given == nullptr || given->is_null()) return std::nullopt;
    return reader.required<double>(key);
  }

  // The last step's draft may go on behind the end of the answer, and the server counts what of it
  // was accepted. All tokens of a step come in one piece, and the first token of a piece is no
  // draft.
  static void leave_out_what_is_behind_the_end(EndpointReply& reply) {
    if (!reply.counts.accepted) return;
    int64_t drafts = 0;
    for (const EndpointArrival& arrival : reply.arrivals) drafts += std::max(0, arrival.tokens - 1);
    const bool placed = std::ranges::any_of(
        reply.arrivals, [](const EndpointArrival& arrival) { return arrival.tokens > 0; });
    if (placed) reply.counts.accepted = std::min(*reply.counts.accepted, drafts);
  }

  void read_counters(EndpointCounts& counts) {
    if (!before_ || !counts.new_tokens) return;
    // The counters follow the last token by a moment.
    constexpr double kMoment_s = 0.02;
    for (int i = 0; i < 2; ++i) {
      const std::optional<PrometheusSamples> now = counters();
      if (!now) return;
      const auto generated = counter_rise(*before_, *now, kGeneratedTokens);
      if (generated && std::llround(*generated) == *counts.new_tokens)
        return take_counts(*now, counts);
      if (!generated || *generated > static_cast<double>(*counts.new_tokens) || !pause(kMoment_s))
        return;
    }
  }

  std::optional<PrometheusSamples> counters() {
    const net::HttpResponse response = get("/metrics");
    if (!response.ok()) return std::nullopt;
    return parse_prometheus(response.body);
  }

  void take_counts(const PrometheusSamples& now, EndpointCounts& counts) const {
    const auto rise = [&](const char* name) { return counter_rise(*before_, now, name); };
    const auto tokens = [&](const char* name) -> std::optional<int64_t> {
      const std::optional<double> by = rise(name);
      return by ? std::optional<int64_t>(std::llround(*by)) : std::nullopt;
    };
    const bool drafts = now.find("vllm:spec_decode_num_drafts_total").has_value();
    if (!counts.accepted && drafts) {
      counts.drafts = tokens("vllm:spec_decode_num_drafts_total");
      counts.drafted = tokens("vllm:spec_decode_num_draft_tokens_total");
      counts.accepted = tokens("vllm:spec_decode_num_accepted_tokens_total");
    } else if (!counts.accepted) {
      // A server without speculation has none of these counters: it drafts nothing.
      counts.drafts = counts.drafted = counts.accepted = 0;
    }
    if (!counts.cached_tokens) counts.cached_tokens = tokens("vllm:prefix_cache_hits_total");
    const auto time = [&](const char* name, std::optional<double>& ms) {
      const std::optional<double> seconds = rise(name);
      if (seconds && !ms) ms = *seconds * 1e3;
    };
    time("vllm:request_prefill_time_seconds_sum", counts.prompt_ms);
    time("vllm:request_decode_time_seconds_sum", counts.decode_ms);
  }

  const uint64_t salt_;
  uint64_t salted_ = 0;
  std::optional<PrometheusSamples> before_;
};

}  // namespace

std::unique_ptr<Endpoint> make_vllm_endpoint(const EndpointSetup& setup) {
  return std::make_unique<VllmEndpoint>(setup);
}

}  // namespace evalrun::runners
