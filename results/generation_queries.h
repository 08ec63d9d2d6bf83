// One generation read back whole, and answers with what is needed to judge them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "results/records.h"
#include "results/store.h"

namespace evalrun::results {

struct StoredTurn {
  int64_t n_prompt_tokens = 0;
  std::vector<int32_t> tokens;
  std::string text, stop;
  int64_t prefill_ns = 0, draft_prefill_ns = 0, decode_ns = 0;
  std::vector<StepRecord> steps;
  std::vector<NodeCount> nodes;                     // none in runs of old versions
  std::vector<DivergenceRecord> divergences;        // of a replay
  std::optional<BatchTurnRecord> batch = {};        // absent where it was decoded alone
  int64_t batch_call = 0;                           // GenerationRecord
  std::optional<EndpointTurnRecord> endpoint = {};  // of a server's answer
};

struct StoredGeneration {
  int64_t id = 0, run_id = 0, arm_id = 0, prompt_id = 0;
  std::string arm_label, task, prompt, status, fault;
  int64_t repeat = 0, sample = 0, block = 0, slot = 0, total_ns = 0;
  std::vector<StoredTurn> turns;
  std::vector<ScoreRecord> scores;
  std::optional<int64_t> asked;      // places at which a replayed method had a say
  bool degenerate = false;           // the answer runs in a loop
  std::optional<ClockRecord> clock;  // absent in runs of old versions
  std::optional<GpuRecord> gpu;
};
std::optional<StoredGeneration> find_generation(const ResultStore& store, int64_t id);

// The generations of every arm for the same run, prompt, repeat and sample, by arm.
struct Counterpart {
  int64_t id = 0;
  std::string arm_label, method;
  bool reference = false;  // plain decoding of the same model
};
std::vector<Counterpart> counterparts(const ResultStore& store, const StoredGeneration& generation);

// Per turn.
std::vector<std::string> turn_texts(const ResultStore& store, int64_t generation_id);
// Token ids, per turn, of the first whole replayed answer of an arm to a prompt; empty without one.
std::vector<std::vector<int32_t>> replayed_tokens(const ResultStore& store, int64_t arm_id,
                                                  int64_t prompt_id);
// The same of the first whole answer in one sample, without a planted fault.
std::vector<std::vector<int32_t>> answer_tokens(const ResultStore& store, int64_t arm_id,
                                                int64_t prompt_id, int64_t sample);

// A finished answer without a planted fault: of equal answers to repeats, the first.
struct AnswerRow {
  int64_t generation_id = 0;
  std::string arm, role, task, prompt, category;
  std::vector<std::string> questions;  // the user's turns
  int32_t sample = 0;
  int64_t prompt_id = 0;
  std::string group;  // PromptRecord
};
std::vector<AnswerRow> answers(const ResultStore& store, int64_t run_id);  // by prompt and arm

// Such an answer of another arm beside the baseline arm's to the same prompt, repeat and sample:
// texts of the last turns.
struct AnswerPairRow {
  int64_t generation_id = 0;
  std::string arm, task, prompt;
  int32_t repeat = 0, sample = 0;
  std::string text;
  std::optional<std::string> baseline_text;  // absent where the baseline arm did not finish
};
std::vector<AnswerPairRow> answers_beside_baseline(const ResultStore& store, int64_t run_id);

// Finished answers to a prompt that an evaluator has not judged with these options, or could not
// for want of a sandbox or a toolchain.
struct UnscoredAnswer {
  int64_t generation_id = 0, arm_id = 0;
  std::vector<std::string> texts;            // per turn
  std::vector<std::vector<int32_t>> tokens;  // likewise
};
struct EvaluatorName {
  std::string name, version, options;
};
std::vector<UnscoredAnswer> unscored_answers(const ResultStore& store, int64_t run_id,
                                             int64_t prompt_id, const EvaluatorName& evaluator);

// Decode time of one repeat of a cell.
struct RepeatTimeRow {
  int64_t arm_id = 0, prompt_id = 0, sample = 0;
  double decode_ns = 0;
};
// Of the finished generations of a run; those with a planted fault where they are asked for.
std::vector<RepeatTimeRow> repeat_times(const ResultStore& store, int64_t run_id, bool planted);

// The steps of such a generation, over all its turns.
struct StepTimesRow {
  int64_t arm_id = 0, prompt_id = 0, sample = 0, repeat = 0;
  std::string steps_hash;  // equal where drafted, depth, accepted and emitted of all steps are
  int64_t emitted = 0;     // tokens
  std::vector<double> ns;  // by step
};
std::vector<StepTimesRow> step_times(const ResultStore& store, int64_t run_id, bool planted);

}  // namespace evalrun::results
