#include "runners/endpoints/arriving_answer.h"

#include <algorithm>
#include <utility>

#include "engine/base/utf8.h"

namespace evalrun::runners {

void ArrivingAnswer::begin_event(int64_t ns, bool hidden) {
  now_ns_ = ns;
  hidden_ = hidden;
}

void ArrivingAnswer::add(AnswerPiece piece) {
  ++pieces_;
  if (piece.total) total_ = std::max(total_, *piece.total);
  for (std::vector<EndpointLogProb>& token : piece.log_probs) {
    if (hidden_)
      for (EndpointLogProb& one : token) one.text = base::utf8_repair(show_bytes(one.text));
    reply.log_probs.push_back(std::move(token));
  }
  if (piece.text.empty() && piece.ids.empty()) return;
  EndpointArrival arrival;
  arrival.ns = now_ns_;
  arrival.tokens = static_cast<int32_t>(piece.ids.size());
  arrival.text = joined_.add(hidden_ ? show_bytes(piece.text) : piece.text);
  reply.text += arrival.text;
  reply.ids.insert(reply.ids.end(), piece.ids.begin(), piece.ids.end());
  reply.arrivals.push_back(std::move(arrival));
  totals_.push_back(piece.total);
}

bool ArrivingAnswer::over_limit() const {
  const int64_t limit = request.max_new;
  const int64_t tokens = reply.ids.empty() ? total_ : static_cast<int64_t>(reply.ids.size());
  // A server may send a token's text in parts, or an event without any.
  return tokens > limit || pieces_ > 4 * limit + 64;
}

void ArrivingAnswer::count_by_totals() {
  const bool all = std::ranges::all_of(totals_, [](const auto& total) { return bool(total); });
  int64_t before = 0;
  for (size_t i = 0; i < totals_.size(); ++i) {
    const int64_t total = all ? std::max(before, *totals_[i]) : 0;
    reply.arrivals[i].tokens = static_cast<int32_t>(total - before);
    before = total;
  }
}

void ArrivingAnswer::finish(int64_t sent_ns) {
  if (const std::string rest = joined_.rest(); !rest.empty()) {
    reply.text += rest;
    reply.arrivals.back().text += rest;
  }
  for (EndpointArrival& arrival : reply.arrivals) arrival.ns -= sent_ns;
  std::optional<int64_t>& tokens = reply.counts.new_tokens;
  const int64_t given = static_cast<int64_t>(reply.ids.size());
  if (!tokens && given > 0) tokens = given;
  if (given == 0 || *tokens != given) {
    reply.ids.clear();
    count_by_totals();
  }
  if (tokens && static_cast<int64_t>(reply.log_probs.size()) != *tokens) reply.log_probs.clear();
}

}  // namespace evalrun::runners
