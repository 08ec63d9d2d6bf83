// SGLang's native API: POST /generate with input_ids
// (https://docs.sglang.io/basic_usage/native_api.html, sampling_params.html). Written after that
// documentation; not run against a real server.
//
// Events repeat what came before, unless the server was started with --stream-output:
// meta_info.completion_tokens tells which of the two it is.
#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "runners/endpoints/apis.h"
#include "runners/endpoints/event_fields.h"

namespace evalrun::runners {
namespace {

// Names of one count in versions of the server, newest first.
std::optional<int64_t> first_count(base::ObjectReader& info,
                                   const std::array<const char*, 3>& names) {
  for (const char* name : names)
    if (const auto count = read_count(info, name)) return count;
  return std::nullopt;
}

class SglangEndpoint final : public StreamedEndpoint {
 public:
  using StreamedEndpoint::StreamedEndpoint;
  // sampling_seed holds with --enable-deterministic-inference alone.
  EndpointAbilities abilities() const override {
    return {.takes_ids = true,
            .gives_ids = true,
            .ignores_eos = true,
            .counts_drafts = true,
            .log_probs = true};
  }

 protected:
  Paths paths() const override {
    return {.complete = "/generate", .health = "/health", .models = "/v1/models", .guarded = ""};
  }
  bool ends_with_done() const override { return true; }
  bool repeats() const override { return true; }
  std::vector<std::string> models(const nlohmann::json& listed) const override {
    return listed_models(listed, spec().url);
  }
  nlohmann::json body(const EndpointRequest& request) override;
  void read(const nlohmann::json& event, ArrivingAnswer& answer) override;

 private:
  [[noreturn]] void refuse(const std::string& place, const std::string& what) const {
    throw base::data_error(spec().url, place, what);
  }
  // Leaves what is new in this event.
  void cut_repeated(AnswerPiece& piece, const ArrivingAnswer& answer);
  void read_probs(base::ObjectReader& info, AnswerPiece& piece, const ArrivingAnswer& answer) const;
  void read_counts(base::ObjectReader& info, EndpointCounts& counts) const;
  void read_finish(const nlohmann::json& reason, EndpointReply& reply) const;
  std::vector<EndpointLogProb> probs_of(const nlohmann::json& list) const;

  std::string text_;        // of this answer so far, as events repeat it
  bool new_alone_ = false;  // events of this answer have their new ids alone
};

nlohmann::json SglangEndpoint::body(const EndpointRequest& request) {
  text_.clear();
  new_alone_ = false;
  const engine::SamplingParams& sampling = request.sampling;
  nlohmann::json params = {{"max_new_tokens", request.max_new},
                           {"temperature", sampling.temperature},
                           {"top_k", sampling.top_k > 0 ? sampling.top_k : -1},
                           {"top_p", sampling.top_p},
                           {"min_p", 0.0},
                           {"repetition_penalty", 1.0},
                           {"presence_penalty", 0.0},
                           {"frequency_penalty", 0.0},
                           {"ignore_eos", request.ignore_eos}};
  if (!sampling.greedy()) params["sampling_seed"] = request.seed & 0x7FFFFFFF;
  if (!request.stop_texts.empty()) params["stop"] = request.stop_texts;
  nlohmann::json body = {
      {"input_ids", request.prompt_ids}, {"stream", true}, {"sampling_params", params}};
  if (request.log_probs > 0) {
    body["return_logprob"] = true;
    body["top_logprobs_num"] = request.log_probs;
    body["return_text_in_logprobs"] = true;
  }
  return body;
}

void SglangEndpoint::cut_repeated(AnswerPiece& piece, const ArrivingAnswer& answer) {
  const size_t had = answer.reply.ids.size(), now = piece.ids.size();
  const auto total = static_cast<size_t>(piece.total.value_or(0));
  // New ids alone: text is new alone, too.
  if (now > 0 && now != total && had + now == total) {
    new_alone_ = true;
    return;
  }
  if (now == 0 && new_alone_) return;
  if (now > 0) {
    if (now != total || now < had)
      refuse("event.output_ids", "has another number of ids than meta_info.completion_tokens");
    piece.ids.erase(piece.ids.begin(), piece.ids.begin() + static_cast<std::ptrdiff_t>(had));
  }
  if (!piece.text.starts_with(text_)) refuse("event.text", "does not go on from the event before");
  std::string fresh = piece.text.substr(text_.size());
  text_ = std::exchange(piece.text, std::move(fresh));
}

// [[log-probability, id, text or null], ...]
std::vector<EndpointLogProb> SglangEndpoint::probs_of(const nlohmann::json& list) const {
  const std::string place = "event.meta_info.output_top_logprobs";
  std::vector<EndpointLogProb> probs;
  for (const nlohmann::json& one : list_of(&list, spec().url, place)) {
    if (!one.is_array() || one.size() < 2 || !one[0].is_number() || !one[1].is_number_integer())
      refuse(place, "must hold [log-probability, id, text]");
    EndpointLogProb prob;
    prob.log_prob = one[0].get<double>();
    const int64_t id = one[1].get<int64_t>();
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) refuse(place, "must hold token ids");
    prob.token = static_cast<int32_t>(id);
    if (one.size() > 2 && one[2].is_string()) prob.text = one[2].get<std::string>();
    probs.push_back(std::move(prob));
  }
  return probs;
}

void SglangEndpoint::read_probs(base::ObjectReader& info, AnswerPiece& piece,
                                const ArrivingAnswer& answer) const {
  const nlohmann::json* own = info.raw("output_token_logprobs");
  if (own == nullptr || own->is_null()) return;
  const std::vector<EndpointLogProb> tokens = probs_of(*own);
  const nlohmann::json* top = info.raw("output_top_logprobs");
  const bool has_top = top != nullptr && top->is_array() && top->size() == tokens.size();
  // Like the ids: the whole answer's, or those of this event.
  const bool whole = piece.total && static_cast<int64_t>(tokens.size()) == *piece.total;
  for (size_t i = whole ? std::min(answer.reply.log_probs.size(), tokens.size()) : 0;
       i < tokens.size(); ++i) {
    std::vector<EndpointLogProb> best = {tokens[i]};
    if (has_top && !(*top)[i].is_null())
      for (EndpointLogProb& prob : probs_of((*top)[i])) best.push_back(std::move(prob));
    piece.log_probs.push_back(std::move(best));
  }
}

void SglangEndpoint::read_counts(base::ObjectReader& info, EndpointCounts& counts) const {
  counts.prompt_tokens = read_count(info, "prompt_tokens");
  counts.cached_tokens = read_count(info, "cached_tokens");
  counts.new_tokens = read_count(info, "completion_tokens");
  counts.drafts = read_count(info, "spec_verify_ct");
  if (!counts.drafts) return;
  counts.drafted = first_count(
      info, {"spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"});
  counts.accepted = first_count(
      info, {"spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"});
  // Prefill gives one token; each step that verifies gives one besides those that it accepts.
  if (!counts.accepted && counts.new_tokens)
    counts.accepted = std::max<int64_t>(0, *counts.new_tokens - 1 - *counts.drafts);
}

void SglangEndpoint::read_finish(const nlohmann::json& reason, EndpointReply& reply) const {
  base::ObjectReader reader(reason, spec().url, "event.meta_info.finish_reason");
  const auto type = reader.required<std::string>("type");
  const nlohmann::json* matched = reader.raw("matched");
  if (type == "abort")
    refuse("event.meta_info.finish_reason", reader.optional<std::string>("message", "aborted"));
  if (type == "length") reply.stop = EndpointStop::kLimit;
  if (type == "stop")
    reply.stop = matched != nullptr && matched->is_string() ? EndpointStop::kStopText
                                                            : EndpointStop::kStopToken;
}

void SglangEndpoint::read(const nlohmann::json& event, ArrivingAnswer& answer) {
  base::ObjectReader reader(event, spec().url, "event");
  const nlohmann::json* meta = reader.raw("meta_info");
  if (meta == nullptr) reader.fail("meta_info", "is missing");
  base::ObjectReader info(*meta, spec().url, "event.meta_info");
  AnswerPiece piece;
  piece.text = reader.optional<std::string>("text", "");
  piece.ids = read_token_ids(reader.raw("output_ids"), spec().url, "event.output_ids");
  piece.total = read_count(info, "completion_tokens");
  cut_repeated(piece, answer);
  read_probs(info, piece, answer);
  answer.add(std::move(piece));
  read_counts(info, answer.reply.counts);
  if (const nlohmann::json* reason = info.raw("finish_reason");
      reason != nullptr && !reason->is_null())
    read_finish(*reason, answer.reply);
}

}  // namespace

std::unique_ptr<Endpoint> make_sglang_endpoint(const EndpointSetup& setup) {
  return std::make_unique<SglangEndpoint>(setup);
}

}  // namespace evalrun::runners
