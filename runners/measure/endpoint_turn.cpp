// A server's answer as a turn.
#include <algorithm>
#include <utility>
#include <vector>

#include "runners/measure/endpoint_visit.h"

namespace evalrun::runners {
namespace {

using results::StopReason;

struct KeptAnswer {
  std::vector<int32_t> tokens;
  std::optional<StopReason> stopped;  // by a token or text of the answer
};

KeptAnswer kept_answer(std::span<const int32_t> ids, const methods::TurnRequest& request) {
  KeptAnswer kept;
  if (request.stop_text != nullptr) request.stop_text->begin();
  for (const int32_t id : ids) {
    if (kept.stopped || kept.tokens.size() == static_cast<size_t>(request.max_new)) break;
    kept.tokens.push_back(id);
    kept.stopped = methods::stop_at(request, id);
  }
  return kept;
}

// How many of the answer's tokens each piece brought: as the server says, or else as far as its
// text goes. What is left over came with the last one.
std::vector<int32_t> tokens_of_pieces(const EndpointReply& reply, std::span<const int32_t> ids,
                                      const Conversation& conversation) {
  const auto n = static_cast<int32_t>(ids.size());
  const bool counted =
      !reply.ids.empty() && std::any_of(reply.arrivals.begin(), reply.arrivals.end(),
                                        [](const EndpointArrival& a) { return a.tokens > 0; });
  const std::vector<size_t> ends = counted ? std::vector<size_t>() : conversation.text_ends(ids);
  std::vector<int32_t> pieces;
  int32_t before = 0;
  size_t bytes = 0;
  for (const EndpointArrival& arrival : reply.arrivals) {
    bytes += arrival.text.size();
    const auto by_text =
        static_cast<int32_t>(std::upper_bound(ends.begin(), ends.end(), bytes) - ends.begin());
    const bool last = &arrival == &reply.arrivals.back();
    const int32_t upto =
        last ? n : std::clamp(counted ? before + arrival.tokens : by_text, before, n);
    pieces.push_back(upto - before);
    before = upto;
  }
  return pieces;
}

// Adds the steps and times of the first `kept` tokens.
void add_pieces(std::span<const results::EndpointArrival> pieces, int32_t kept,
                results::TurnRecord& turn) {
  int32_t before = 0;
  int64_t last_ns = 0;
  for (const results::EndpointArrival& piece : pieces) {
    const int32_t tokens = std::min(piece.tokens, kept - before);
    if (tokens <= 0) continue;
    const bool first = before == 0;
    if (first) turn.prefill_ns = piece.ns;
    results::StepRecord step;
    step.rows = step.target_forwards = 0;
    step.emitted = first ? tokens - 1 : tokens;
    step.verify_ns = first ? 0 : piece.ns - last_ns;
    if (step.emitted > 0) turn.steps.push_back(step);
    before += tokens;
    last_ns = piece.ns;
  }
  turn.decode_ns = std::max<int64_t>(0, last_ns - turn.prefill_ns);
}

results::EndpointTurnRecord counted_by_server(const EndpointReply& reply) {
  const EndpointCounts& counts = reply.counts;
  results::EndpointTurnRecord server;
  server.total_ns = reply.total_ns, server.attempts = reply.attempts;
  server.prompt_ms = counts.prompt_ms, server.decode_ms = counts.decode_ms;
  server.prompt_tokens = counts.prompt_tokens, server.cached_tokens = counts.cached_tokens;
  server.new_tokens = counts.new_tokens;
  server.drafted = counts.drafted, server.accepted = counts.accepted, server.drafts = counts.drafts;
  return server;
}

// Of `tokens` that the server made, all of which are kept. The first one is the prefill's.
std::optional<int64_t> steps_behind(int64_t tokens, const EndpointCounts& counts) {
  if (!target_steps(tokens, counts)) return std::nullopt;
  if (tokens <= 1) return 0;
  const std::optional<int64_t> steps = target_steps(tokens - 1, counts);
  return steps && *steps > 0 ? steps : std::nullopt;
}

StopReason stop_reason_of(const EndpointReply& reply, const KeptAnswer& kept,
                          const methods::TurnRequest& request) {
  if (kept.stopped) return *kept.stopped;
  if (kept.tokens.size() == static_cast<size_t>(request.max_new)) return StopReason::kLimit;
  switch (reply.stop) {
    case EndpointStop::kStopText:
      return StopReason::kStopString;
    case EndpointStop::kLimit:
      return StopReason::kLimit;
    case EndpointStop::kStopToken:
    case EndpointStop::kUnknown:  // it ended before the limit
      break;
  }
  return StopReason::kStopToken;
}

}  // namespace

AnsweredTurn answered_turn(const EndpointReply& reply, const methods::TurnRequest& request,
                           const Conversation& conversation) {
  const std::vector<int32_t> ids =
      reply.ids.empty() ? conversation.encode_answer(reply.text) : reply.ids;
  KeptAnswer kept = kept_answer(ids, request);
  const bool cut = kept.tokens.size() < ids.size();
  results::EndpointTurnRecord server = counted_by_server(reply);
  const std::vector<int32_t> pieces = tokens_of_pieces(reply, ids, conversation);
  for (size_t i = 0; i < pieces.size(); ++i)
    server.arrivals.push_back({reply.arrivals[i].ns, pieces[i]});
  if (pieces.empty() && !ids.empty())  // not streamed
    server.arrivals.push_back({reply.total_ns, static_cast<int32_t>(ids.size())});
  const bool unsent_stop = !cut && !kept.stopped && reply.stop == EndpointStop::kStopToken &&
                           !request.stop_ids.empty() &&
                           kept.tokens.size() < static_cast<size_t>(request.max_new);
  if (unsent_stop) {
    kept.tokens.push_back(request.stop_ids.front());
    kept.stopped = StopReason::kStopToken;
    server.arrivals.push_back({reply.total_ns, 1});
  }
  AnsweredTurn answered;
  results::TurnRecord& turn = answered.turn;
  turn.n_prompt_tokens = static_cast<int32_t>(request.prompt.size());
  turn.stop = stop_reason_of(reply, kept, request);
  add_pieces(server.arrivals, static_cast<int32_t>(kept.tokens.size()), turn);
  if (kept.tokens.empty()) turn.prefill_ns = reply.total_ns;  // the wait for nothing
  server.first_token_ns = turn.prefill_ns;
  // Drafts behind a cut cannot be told from those before it.
  if (!cut)
    server.target_steps = steps_behind(
        reply.counts.new_tokens.value_or(static_cast<int64_t>(kept.tokens.size())), reply.counts);
  turn.tokens = std::move(kept.tokens);
  turn.endpoint = std::move(server);
  if (reply.ids.empty() && !cut) answered.text = reply.text;
  return answered;
}

}  // namespace evalrun::runners
