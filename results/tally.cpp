#include "results/tally.h"

#include <algorithm>

namespace evalrun::results {

void Tally::add(const TallyTurn& t) {
  const TallySums of_turn = {t.n_tokens,
                             std::max<int64_t>(t.n_tokens - 1, 0),
                             t.n_steps,
                             t.drafted,
                             t.drafted_depth,
                             t.accepted,
                             t.emitted,
                             t.target_forwards,
                             t.rows,
                             t.undrafted,
                             t.draft_ns,
                             t.verify_ns,
                             t.decode_ns,
                             t.prefill_ns,
                             t.draft_prefill_ns,
                             t.stop_token ? 1 : 0,
                             t.first ? t.prefill_ns : 0};
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += of_turn[i];
}

void Tally::add_step(int64_t drafted_depth, int64_t accepted, int64_t emitted) {
  ++steps[{drafted_depth, 2 * accepted + (emitted <= accepted ? 1 : 0)}];
}

void Tally::add_node(int64_t depth, int64_t rank, int64_t tested, int64_t accepted) {
  auto& [all_tested, all_accepted] = nodes[{depth, rank}];
  all_tested += tested, all_accepted += accepted;
}

TallyTurn counters_of(const TurnRecord& t) {
  TallyTurn sum;
  sum.n_tokens = static_cast<int64_t>(t.tokens.size());
  sum.n_steps = static_cast<int64_t>(t.steps.size());
  for (const StepRecord& s : t.steps) {
    sum.drafted += s.drafted, sum.drafted_depth += s.drafted_depth;
    sum.accepted += s.accepted, sum.emitted += s.emitted;
    sum.target_forwards += s.target_forwards, sum.rows += s.rows;
    sum.undrafted += s.drafted == 0 ? 1 : 0;
    sum.draft_ns += s.draft_ns, sum.verify_ns += s.verify_ns;
  }
  sum.decode_ns = t.decode_ns;
  sum.prefill_ns = t.prefill_ns, sum.draft_prefill_ns = t.draft_prefill_ns;
  sum.stop_token = t.stop == StopReason::kStopToken;
  if (!t.endpoint) return sum;
  const EndpointTurnRecord& server = *t.endpoint;
  sum.n_steps = server.target_steps.value_or(0);
  sum.drafted = server.drafted.value_or(0), sum.accepted = server.accepted.value_or(0);
  sum.undrafted = server.drafts ? std::max<int64_t>(0, sum.n_steps - *server.drafts) : 0;
  return sum;
}

Tally tally_of(const std::vector<TurnRecord>& turns) {
  Tally tally;
  for (const TurnRecord& t : turns) {
    TallyTurn sum = counters_of(t);
    sum.first = &t == turns.data();
    tally.add(sum);
    for (const StepRecord& s : t.steps) tally.add_step(s.drafted_depth, s.accepted, s.emitted);
    for (const NodeCount& n : t.nodes) tally.add_node(n.depth, n.rank, n.tested, n.accepted);
  }
  return tally;
}

std::optional<std::string> packed(const Tally& tally) {
  std::string bytes;
  bool fits = true;
  const auto put = [&](int64_t number) {
    fits = fits && number >= 0;
    auto rest = static_cast<uint64_t>(number);
    for (; rest >= 0x80; rest >>= 7) bytes += static_cast<char>((rest & 0x7f) | 0x80);
    bytes += static_cast<char>(rest);
  };
  put(kTallyLayout);
  for (const int64_t sum : tally.sums) put(sum);
  put(static_cast<int64_t>(tally.steps.size()));
  for (const auto& [kind, n] : tally.steps) put(kind.first), put(kind.second), put(n);
  put(static_cast<int64_t>(tally.nodes.size()));
  for (const auto& [place, n] : tally.nodes) {
    put(place.first), put(place.second);
    put(n.first), put(n.second);
  }
  if (!fits) return std::nullopt;
  return bytes;
}

}  // namespace evalrun::results
