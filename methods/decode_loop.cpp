#include "methods/decode_loop.h"

#include <algorithm>
#include <optional>

#include "engine/base/error.h"
#include "methods/step.h"

namespace evalrun::methods {
namespace {

using results::StopReason;

// Why the answer ends with this token, if it does.
std::optional<StopReason> stop_at(const TurnRequest& request, int32_t token) {
  const auto ids = request.stop_ids;
  if (std::find(ids.begin(), ids.end(), token) != ids.end()) return StopReason::kStopToken;
  if (request.stop_text != nullptr && request.stop_text->completed_by(token))
    return StopReason::kStopString;
  return std::nullopt;
}

void check_request(const TurnRequest& request, const engine::Session& target) {
  const size_t n = request.prompt.size();
  if (n == 0) throw base::usage_error("the prompt is empty", "a prompt has at least one token");
  if (n > static_cast<size_t>(target.capacity()))
    throw base::usage_error(
        fmt::format("the prompt has {} tokens, the context holds {}", n, target.capacity()),
        "shorten the prompt, or raise the context size if the model allows it");
  EVALRUN_CHECK(request.max_new >= 1, "max_new = {}", request.max_new);
  EVALRUN_CHECK(request.keep >= 0 && static_cast<size_t>(request.keep) < n, "keep {} of {} tokens",
                request.keep, n);
  EVALRUN_CHECK(request.keep <= target.length(), "keep {} tokens of a session that holds {}",
                request.keep, target.length());
  engine::validate(request.sampling);
}

// Commits the prompt and returns the token read from its last row. That row takes the decode path,
// the rows before it prefill: the same calls whatever method runs.
int32_t prefill(engine::Session& target, const TurnRequest& request,
                const base::KeyedChance& chance) {
  const auto keep = static_cast<size_t>(request.keep);
  target.rewind(request.keep);
  const auto body = request.prompt.subspan(keep, request.prompt.size() - 1 - keep);
  if (!body.empty()) target.prefill(body);

  engine::Row row;
  row.token = request.prompt.back();
  row.top = request.sampling.greedy();
  row.logits = false;
  if (!row.top) row.uniform = chance.target(0);
  engine::ForwardRequest last;
  last.rows = {&row, 1};
  last.sampling = &request.sampling;
  const engine::ForwardResult result = target.forward(last);
  const int32_t first = row.top ? result.top[0] : result.drawn[0];
  const int root = 0;
  target.commit({&root, 1});
  return first;
}

// Counts of all places, so that counting allocates nothing while a generation runs.
class NodeCounts {
 public:
  NodeCounts() : cells_(static_cast<size_t>(Count::kDepths * Count::kRanks)) {}
  void add(std::span<const TestedNode> nodes) {
    for (const TestedNode& node : nodes) {
      const int depth = std::min(node.depth, Count::kDepths) - 1;
      const int rank = std::min(node.rank, Count::kRanks - 1);
      Count& cell = cells_[static_cast<size_t>(depth * Count::kRanks + rank)];
      ++cell.tested;
      cell.accepted += node.accepted;
    }
  }
  std::vector<results::NodeCount> used() const {
    std::vector<Count> list;
    list.reserve(static_cast<size_t>(std::count_if(
        cells_.begin(), cells_.end(), [](const Count& cell) { return cell.tested > 0; })));
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (cells_[i].tested == 0) continue;
      list.push_back(cells_[i]);
      list.back().depth = static_cast<int32_t>(i) / Count::kRanks + 1;
      list.back().rank = static_cast<int32_t>(i) % Count::kRanks;
    }
    return list;
  }

 private:
  using Count = results::NodeCount;
  std::vector<Count> cells_;
};

// Appends what the stop rules keep of a step; returns its record. `stopped` is set where one ends
// it.
results::StepRecord keep_step(const StepOutcome& outcome, const PhaseTimer& timer,
                              const TurnRequest& request, std::vector<int32_t>& tokens,
                              std::optional<StopReason>& stopped) {
  EVALRUN_CHECK(!outcome.tokens.empty(), "a step without a token");
  const size_t before = tokens.size();
  for (int32_t token : outcome.tokens) {
    if (stopped || tokens.size() == static_cast<size_t>(request.max_new)) break;
    tokens.push_back(token);
    stopped = stop_at(request, token);
  }
  results::StepRecord record;
  record.rows = outcome.rows;
  record.drafted = outcome.drafted;
  record.drafted_depth = outcome.drafted_depth;
  record.emitted = static_cast<int32_t>(tokens.size() - before);
  // A cut step lost its bonus, so that all it kept were draft tokens. Otherwise the method's own
  // count stands, unchecked: the gate compares it with `emitted` and must see a method that
  // miscounts.
  const bool cut = tokens.size() - before < outcome.tokens.size();
  record.accepted = cut ? std::min(outcome.accepted, record.emitted) : outcome.accepted;
  record.target_forwards = outcome.target_forwards;
  record.draft_ns = timer.ns(PhaseTimer::kDraft);
  record.verify_ns = timer.ns(PhaseTimer::kVerify);
  record.commit_ns = timer.ns(PhaseTimer::kCommit);
  record.other_ns = timer.ns(PhaseTimer::kOther);
  return record;
}

}  // namespace

results::TurnRecord decode_turn(DecodingMethod& method, engine::Session& target,
                                const TurnRequest& request, base::Clock& clock) {
  check_request(request, target);
  const base::KeyedChance chance(request.seed);
  results::TurnRecord turn;
  turn.n_prompt_tokens = static_cast<int32_t>(request.prompt.size());
  turn.tokens.reserve(static_cast<size_t>(request.max_new));
  turn.steps.reserve(static_cast<size_t>(request.max_new));

  target.keep_features(method.needs());
  engine::device_phase() = engine::DevicePhase::kPrefill;
  const int64_t begin = clock.now_ns();
  const int32_t first = prefill(target, request, chance);
  const int64_t available = clock.now_ns();
  turn.prefill_ns = available - begin;
  turn.tokens.push_back(first);
  if (request.stop_text != nullptr) request.stop_text->begin();
  std::optional<StopReason> stopped = stop_at(request, first);
  const auto full = [&] { return turn.tokens.size() == static_cast<size_t>(request.max_new); };
  if (stopped || full()) {
    turn.stop = stopped.value_or(StopReason::kLimit);
    return turn;
  }

  GenerationContext context;
  context.target = &target;
  context.prompt = request.prompt;
  context.first_token = first;
  context.max_new = request.max_new;
  context.sampling = request.sampling;
  context.chance = chance;
  context.stop_ids = request.stop_ids;
  engine::device_phase() = engine::DevicePhase::kDraftPrefill;
  method.start(context);
  const int64_t ready = clock.now_ns();
  turn.draft_prefill_ns = ready - available;

  PhaseTimer timer(clock);
  StepRunner runner(target, 1);
  BatchMember member{&method};
  NodeCounts nodes;
  int64_t end = ready;
  while (!stopped && !full()) {
    // Where even the root finds no room, the generation ends at the same token for every method.
    if (target.length() >= target.capacity()) break;
    if (request.before_step) request.before_step();
    timer.begin_step();
    runner.run({&member, 1}, timer);
    end = timer.end_step();
    turn.steps.push_back(keep_step(member.outcome, timer, request, turn.tokens, stopped));
    nodes.add(member.outcome.tested);
  }
  turn.decode_ns = end - ready;
  turn.nodes = nodes.used();
  turn.stop = stopped.value_or(full() ? StopReason::kLimit : StopReason::kContextFull);

  size_t emitted = 0;
  for (const results::StepRecord& step : turn.steps) emitted += static_cast<size_t>(step.emitted);
  EVALRUN_CHECK(emitted == turn.tokens.size() - 1, "{} tokens emitted by steps, {} returned",
                emitted, turn.tokens.size());
  return turn;
}

}  // namespace evalrun::methods
