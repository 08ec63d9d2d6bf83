#include "methods/open_turn.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

using results::NodeCount;
using results::StopReason;

}  // namespace

std::optional<StopReason> stop_at(const TurnRequest& request, int32_t token) {
  const auto ids = request.stop_ids;
  if (std::find(ids.begin(), ids.end(), token) != ids.end()) return StopReason::kStopToken;
  if (request.stop_text != nullptr && request.stop_text->completed_by(token))
    return StopReason::kStopString;
  return std::nullopt;
}

void check_request(const TurnRequest& request, const engine::Session& target, int sequence) {
  const size_t n = request.prompt.size();
  if (n == 0) throw base::usage_error("the prompt is empty", "a prompt has at least one token");
  if (n > static_cast<size_t>(target.capacity()))
    throw base::usage_error(
        fmt::format("the prompt has {} tokens, the context holds {}", n, target.capacity()),
        "shorten the prompt, or raise the context size if the model allows it");
  EVALRUN_CHECK(request.max_new >= 1, "max_new = {}", request.max_new);
  EVALRUN_CHECK(request.keep >= 0 && static_cast<size_t>(request.keep) < n, "keep {} of {} tokens",
                request.keep, n);
  EVALRUN_CHECK(request.keep <= target.length(sequence), "keep {} tokens of a sequence with {}",
                request.keep, target.length(sequence));
  engine::validate(request.sampling);
}

StepTimes StepTimes::share(int i, int n) const {
  StepTimes part;
  part.draft_ns = share_of(draft_ns, i, 1, n);
  part.verify_ns = share_of(verify_ns, i, 1, n);
  part.commit_ns = share_of(commit_ns, i, 1, n);
  part.other_ns = share_of(other_ns, i, 1, n);
  return part;
}

OpenTurn::OpenTurn(const TurnRequest& request, const engine::Session& target, int sequence)
    : request_(request), target_(target), sequence_(sequence), chance_(request.seed) {
  check_request(request, target, sequence);
  turn_.n_prompt_tokens = static_cast<int32_t>(request.prompt.size());
  turn_.tokens.reserve(static_cast<size_t>(request.max_new));
  turn_.steps.reserve(static_cast<size_t>(request.max_new));
  nodes_.resize(static_cast<size_t>(NodeCount::kDepths * NodeCount::kRanks));
}

std::span<const int32_t> OpenTurn::body() const {
  const auto keep = static_cast<size_t>(request_.keep);
  return request_.prompt.subspan(keep, request_.prompt.size() - 1 - keep);
}

GenerationContext OpenTurn::context(engine::Session& target, int32_t first) const {
  GenerationContext context;
  context.target = &target;
  context.sequence = sequence_;
  context.prompt = request_.prompt;
  context.first_token = first;
  context.max_new = request_.max_new;
  context.sampling = request_.sampling;
  context.chance = chance_;
  context.stop_ids = request_.stop_ids;
  context.known_answer = request_.known_answer;
  return context;
}

void OpenTurn::note_first(int32_t token) {
  turn_.tokens.push_back(token);
  if (request_.stop_text != nullptr) request_.stop_text->begin();
  stopped_ = stop_at(request_, token);
}

void OpenTurn::note_batch(int slot, int64_t first_token_ns) {
  turn_.batch.emplace();
  turn_.batch->slot = slot;
  turn_.batch->first_token_ns = first_token_ns;
  turn_.batch->steps.reserve(static_cast<size_t>(request_.max_new));
}

int OpenTurn::note_step(const StepOutcome& outcome, const StepTimes& times) {
  EVALRUN_CHECK(!outcome.tokens.empty(), "a step without a token");
  const size_t before = turn_.tokens.size();
  for (int32_t token : outcome.tokens) {
    if (stopped_ || full()) break;
    turn_.tokens.push_back(token);
    stopped_ = stop_at(request_, token);
  }
  results::StepRecord record;
  record.rows = outcome.rows;
  record.drafted = outcome.drafted;
  record.drafted_depth = outcome.drafted_depth;
  record.emitted = static_cast<int32_t>(turn_.tokens.size() - before);
  // A cut step lost its bonus, so that all it kept were draft tokens. Otherwise the method's own
  // count stands, unchecked: the gate compares it with `emitted` and must see a method that
  // miscounts.
  const bool cut = turn_.tokens.size() - before < outcome.tokens.size();
  record.accepted = cut ? std::min(outcome.accepted, record.emitted) : outcome.accepted;
  record.target_forwards = outcome.target_forwards;
  record.draft_ns = times.draft_ns;
  record.verify_ns = times.verify_ns;
  record.commit_ns = times.commit_ns;
  record.other_ns = times.other_ns;
  turn_.steps.push_back(record);
  count(outcome.tested);
  return record.emitted;
}

bool OpenTurn::ended() const {
  return stopped_ || full() || target_.length(sequence_) >= target_.capacity();
}

void OpenTurn::count(std::span<const TestedNode> nodes) {
  for (const TestedNode& node : nodes) {
    const int depth = std::min(node.depth, NodeCount::kDepths) - 1;
    const int rank = std::min(node.rank, NodeCount::kRanks - 1);
    NodeCount& cell = nodes_[static_cast<size_t>(depth * NodeCount::kRanks + rank)];
    ++cell.tested;
    cell.accepted += node.accepted;
  }
}

std::vector<NodeCount> OpenTurn::used_nodes() const {
  std::vector<NodeCount> list;
  list.reserve(static_cast<size_t>(std::count_if(
      nodes_.begin(), nodes_.end(), [](const NodeCount& cell) { return cell.tested > 0; })));
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].tested == 0) continue;
    list.push_back(nodes_[i]);
    list.back().depth = static_cast<int32_t>(i) / NodeCount::kRanks + 1;
    list.back().rank = static_cast<int32_t>(i) % NodeCount::kRanks;
  }
  return list;
}

results::TurnRecord OpenTurn::finish() {
  turn_.nodes = used_nodes();
  turn_.stop = stopped_.value_or(full() ? StopReason::kLimit : StopReason::kContextFull);
  size_t emitted = 0;
  for (const results::StepRecord& step : turn_.steps) emitted += static_cast<size_t>(step.emitted);
  EVALRUN_CHECK(emitted == turn_.tokens.size() - 1, "{} tokens emitted by steps, {} returned",
                emitted, turn_.tokens.size());
  return std::move(turn_);
}

}  // namespace evalrun::methods
