// One turn while it is decoded: what the stop rules keep of each step, and the record of it. The
// same for every method, AR included, and whatever else is decoded in the same batch.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/rng.h"
#include "methods/method.h"
#include "methods/stop_text.h"
#include "results/records.h"

namespace evalrun::methods {

struct TurnRequest {
  std::span<const int32_t>
      prompt;  // ids of the whole conversation so far, generation prompt included
  // Tokens at the front of `prompt` that were the *prompt* of the previous turn in the same
  // sequence and may be kept in the cache (0 for a first turn). Answers are prefilled again in a
  // second turn, so that prefill is the same calls for every method.
  int keep = 0;
  int max_new = 128;
  std::span<const int32_t> stop_ids;  // empty = run to max_new (--ignore-eos)
  StopText* stop_text = nullptr;      // watched besides, for this turn alone; null = none
  engine::SamplingParams sampling;
  uint64_t seed = 0;
  // Called before every step, where set. The clock must stand still meanwhile. Of decode_turn()
  // alone: a batch asks BatchSource::before_step().
  std::function<void()> before_step = {};
  std::span<const int32_t> known_answer = {};  // GenerationContext
  // Called with the tokens that were kept, after the first one and after every step, where set. Off
  // the clock. What it throws ends the batch: turns that are not done are lost.
  std::function<void(std::span<const int32_t>)> on_tokens = {};
};

// Throws usage_error when the prompt does not fit sequence `sequence`, or sampling parameters make
// no sense.
void check_request(const TurnRequest& request, const engine::Session& target, int sequence);

// Why the answer ends with this token, if it does. Asked once per token, in order.
std::optional<results::StopReason> stop_at(const TurnRequest& request, int32_t token);

// Where the time of a step went.
struct StepTimes {
  int64_t draft_ns = 0, verify_ns = 0, commit_ns = 0, other_ns = 0;
  explicit StepTimes(const PhaseTimer& timer)
      : draft_ns(timer.ns(PhaseTimer::kDraft)),
        verify_ns(timer.ns(PhaseTimer::kVerify)),
        commit_ns(timer.ns(PhaseTimer::kCommit)),
        other_ns(timer.ns(PhaseTimer::kOther)) {}
  // What member `i` of `n` has of it: equal parts, to the nanosecond, and together the whole.
  StepTimes share(int i, int n) const;

 private:
  StepTimes() = default;
};
// The part of `ns` that belongs to places [before, before + own) of `all`: parts of neighbours add
// up to the whole, whatever is rounded.
inline int64_t share_of(int64_t ns, int64_t before, int64_t own, int64_t all) {
  return ns * (before + own) / all - ns * before / all;
}

// Accounting (docs/measurement.md): the first token comes from the prefill's last row, counts in
// `tokens` and in no step; sum over steps of emitted = tokens - 1 (checked). A stop token counts
// once and ends the generation; so does the token that completes a stop text. A stop token takes
// precedence. What a step produced after it, or beyond max_new, is cut and counted nowhere: the
// last step's `emitted` is the number of its tokens kept, and its `accepted` is the number of draft
// tokens among them (equal to `emitted` when the bonus was cut, emitted - 1 otherwise). `emitted`
// is counted here from the tokens; `accepted`, `drafted`, `rows` and `target_forwards` are the
// method's word. A generation that fills its sequence ends with kContextFull, at the same token for
// every method.
class OpenTurn {
 public:
  // For sequence `sequence` of the target, which must outlive the object, like the request. Throws
  // as check_request().
  OpenTurn(const TurnRequest& request, const engine::Session& target, int sequence);

  const TurnRequest& request() const { return request_; }
  const base::KeyedChance& chance() const { return chance_; }
  // What of the prompt is to be prefilled: all that is not kept, but for its last token. That one
  // takes the decode path, the same whatever method runs.
  std::span<const int32_t> body() const;
  // What a method is to know once `first` was read from the prompt's last row.
  GenerationContext context(engine::Session& target, int32_t first) const;

  void note_first(int32_t token);
  // Returns how many tokens of the step were kept.
  int note_step(const StepOutcome& outcome, const StepTimes& times);
  // In a batch of several slots: when its first token came, after its admission; then of each step.
  void note_batch(int slot, int64_t first_token_ns);
  void note_batch_step(const results::BatchStepRecord& step) { turn_.batch->steps.push_back(step); }
  // Whether a stop rule or a limit has ended it, or even the next root finds no room.
  bool ended() const;
  // With the times in place; once.
  results::TurnRecord finish();
  results::TurnRecord& record() { return turn_; }

 private:
  bool full() const { return turn_.tokens.size() == static_cast<size_t>(request_.max_new); }
  // Counts of all places, so that counting allocates nothing while a generation runs.
  void count(std::span<const TestedNode> nodes);
  std::vector<results::NodeCount> used_nodes() const;

  const TurnRequest& request_;
  const engine::Session& target_;
  const int sequence_;
  const base::KeyedChance chance_;
  results::TurnRecord turn_;
  std::optional<results::StopReason> stopped_;
  std::vector<results::NodeCount> nodes_;  // [depth][rank]
};

}  // namespace evalrun::methods
