// What was measured, as plain structs: raw values only. Ratios are born in views and reports.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace evalrun::results {

// One step (one target pass that verifies a draft). emitted = accepted + 1 except in a truncated
// last step, where both are what was kept.
struct StepRecord {
  int32_t rows = 1;           // rows of the target forward, root included
  int32_t drafted = 0;        // draft nodes tested, root excluded
  int32_t drafted_depth = 0;  // longest draft path
  int32_t accepted = 0;       // draft tokens kept
  int32_t emitted = 0;        // tokens kept
  int32_t target_forwards = 1;
  int64_t draft_ns = 0, verify_ns = 0, commit_ns = 0, other_ns = 0;
};

// A step of a batch, as one of its sequences took part in it.
struct BatchStepRecord {
  int32_t number = 0;   // among the steps of the batch
  int32_t members = 1;  // sequences that took part
  int32_t rows = 1;     // of the target's forwards, of all members
  int32_t emitted = 0;  // tokens kept, of all members
  int64_t ns = 0;       // of the whole step
  int64_t gap_ns = 0;   // since this sequence had its tokens before; prompts of others are in it
};

// How one sequence of a batch fared. Wall times: what is done for others meanwhile is in them.
// Storing and scoring of answers that have ended is not.
struct BatchTurnRecord {
  int32_t slot = 0;
  int64_t first_token_ns = 0;          // from its admission to the batch
  int64_t wall_ns = 0;                 // from its first token to the end of its last step
  std::vector<BatchStepRecord> steps;  // of TurnRecord::steps each one
};

// How often draft nodes at one place of the tree were put to the test, and accepted. A node is
// tested when its parent was accepted. Deeper and further places than the last count there.
struct NodeCount {
  static constexpr int kDepths = 64, kRanks = 16;
  int32_t depth = 0;  // 1 = child of the root, 64 = 64 and deeper
  int32_t rank = 0;   // siblings before it, 15 = 15 and more
  int64_t tested = 0, accepted = 0;
  bool operator==(const NodeCount&) const = default;
};

// A place of the answer at which a method that was made to follow its reference's text would have
// gone on otherwise.
struct DivergenceRecord {
  int32_t index = 0;                  // of the answer's tokens
  int32_t expected = -1, found = -1;  // the reference's token, the method's own
  // Logit of `expected` - logit of `found`, by plain decoding of that text; absent when it could
  // not be computed. `spacing`: of the number format at the larger of the two.
  std::optional<double> gap = {};
  double spacing = 0;
};

enum class StopReason { kStopToken, kStopString, kLimit, kContextFull, kFailed };
const char* to_string(StopReason r);

// What a server answered over HTTP: when, as its client saw it, and what it counted itself. Absent
// is what it does not tell.
struct EndpointArrival {
  int64_t ns = 0;      // since the request was sent
  int32_t tokens = 0;  // of the piece
  bool operator==(const EndpointArrival&) const = default;
};
struct EndpointTurnRecord {
  int64_t first_token_ns = 0;  // since the request was sent
  int64_t total_ns = 0;        // to the last byte, also of what the stop rules cut
  int32_t attempts = 1;        // requests sent; the last one is timed
  std::optional<double> prompt_ms = {}, decode_ms = {};
  std::optional<int64_t> prompt_tokens = {}, cached_tokens = {}, new_tokens = {};
  std::optional<int64_t> drafted = {}, accepted = {}, drafts = {};  // drafts: steps that had one
  std::optional<int64_t> target_steps = {};  // that gave the answer, but for its first token
  std::vector<EndpointArrival> arrivals = {};
};

// One turn of one generation. Times of a turn that was decoded in a batch are its share: what is
// done for several sequences at once is shared out among them (methods/decode_batch.h), so that the
// times of all add up to the batch's.
struct TurnRecord {
  std::vector<int32_t> tokens;  // emitted ids, the stop token included
  std::vector<StepRecord> steps;
  StopReason stop = StopReason::kLimit;
  int32_t n_prompt_tokens = 0;
  int64_t prefill_ns = 0;        // prompt through the target, first token available at its end
  int64_t draft_prefill_ns = 0;  // DecodingMethod::start
  int64_t decode_ns = 0;         // steps only, draft_prefill excluded
  std::vector<NodeCount> nodes;  // by depth, then rank; places never tested are left out
  // Of a method made to follow a given text (replay): places at which it had a say; absent
  // otherwise.
  std::optional<int64_t> asked;
  std::vector<DivergenceRecord> divergences;  // by index
  std::optional<BatchTurnRecord> batch = {};  // absent where it was decoded alone
  // Of a server's answer: then `steps` are the pieces it came in, and what was drafted and accepted
  // is here.
  std::optional<EndpointTurnRecord> endpoint = {};
};

// What the machine did while a generation ran, as far as its kernel tells. Processor times are sums
// over the cores this process may use, in steps of some milliseconds.
struct ClockRecord {
  std::optional<double> device_mhz = {};  // clock of what decodes, at the end; absent: not readable
  int64_t available_ns = 0;               // wall time times cores
  int64_t own_ns = 0;                     // processor time of this process
  int64_t others_ns = 0;                  // of all other processes and the kernel
  int64_t steal_ns = 0;                   // other guests of the host had the cores
  int64_t preempted = 0;                  // involuntary context switches of this process
  // Of processor and memory, from beginning to end; absent: not readable, or decoded on a GPU.
  std::optional<int64_t> energy_mj = {};
};

// How long a GPU was busy with each phase of a generation, by its own clock. draft_prefill_ns:
// before the first step, but for the target's prompt.
struct GpuBusy {
  int64_t prefill_ns = 0, draft_prefill_ns = 0, draft_ns = 0, verify_ns = 0, commit_ns = 0;
  // Meanwhile, and in a batch since another of its generations ended: set-up that belongs into the
  // warm-up.
  int64_t graph_misses = 0;
  bool operator==(const GpuBusy&) const = default;
};

// What a GPU did while a generation ran; its clock is ClockRecord::device_mhz. Absent is what it
// does not tell.
struct GpuRecord {
  std::optional<double> temperature_c = {}, power_w = {};  // at the end
  std::optional<int64_t> energy_mj = {};                   // from beginning to end
  std::string slowed_by = {};  // why its clock was below the maximum at the end, "" = it was not
  std::optional<GpuBusy> busy = {};
};

// One generation: one prompt, one arm, one repeat or sample; one or more turns.
struct GenerationRecord {
  std::string arm_key;     // see ArmRecord
  std::string prompt_key;  // see PromptRecord
  int32_t repeat = 0;      // timing repeat of the same tokens (greedy) or seed
  int32_t sample = 0;      // --samples index; the seed differs
  uint64_t seed = 0;
  int32_t block = 0,
          slot = 0;  // position in the interleaved order: block = prompt visit, slot = place
  std::vector<TurnRecord> turns;
  std::vector<std::string> texts;  // per turn, special tokens skipped
  std::string status = "ok";       // "ok" or "failed: ..."
  std::string fault;               // planted fault for tests, "" in real measurements
  // Which of its arm's calls of decode_batch() decoded it: steps of one call have their numbers in
  // common. 0 = it was decoded alone.
  int64_t batch_call = 0;
  int64_t total_ns = 0;  // wall time of the whole generation
  int64_t tokenize_ns = 0, detokenize_ns = 0;
  std::string started;               // UTC, ISO 8601
  std::optional<ClockRecord> clock;  // absent when nothing could be read
  std::optional<GpuRecord> gpu;      // on a GPU that tells
  // Row of the store (ResultStore::add_machine); absent: the run's only machine, or not known.
  std::optional<int64_t> machine_id = {};
};

struct ScoreRecord {
  std::string evaluator, version;  // name and convention: "rougeL", "pltrdy-1.0.1"
  std::optional<double> value;     // nothing when the answer could not be judged
  std::string extracted;           // what the evaluator read out of the text
  std::string status = "ok";       // or what happened: "no reference", "passed", "timeout"
  std::string detail;              // of the status: "assertion", "signal 11"
  bool suspicious = false;         // passed, but by means that deserve a look
  std::string facts = "{}";        // JSON object: what else is worth keeping (times, limits, ...)
};

// ArmRecord::method of a server that is measured over HTTP.
inline constexpr const char* kEndpointMethod = "endpoint";
// Fact "endpoint.NAME.host" of a run: the server is on evalrun's own machine.
inline constexpr const char* kThisMachine = "this machine";

// One method with parameters under one engine mode: everything that changes a figure is in `key`.
struct ArmRecord {
  std::string key;    // hash of all fields below and the run's environment-independent settings
  std::string label;  // "ar", "ar (A/A)", "pld:k=10,ngram=3"
  std::string method, params, method_version;
  std::string role;      // "baseline", "aa", "method"
  std::string lossless;  // "none", "greedy", "both"
  std::string model, model_hash, draft, draft_hash;
  std::string dtype, isa, device;
  int32_t threads = 0, batch = 1;
  bool kv_cache = true;
  double temperature = 0, top_p = 1;
  int32_t top_k = 0;
  int32_t max_new = 0;
  bool ignore_eos = false;
  std::map<std::string, std::string> settings;  // EVALRUN_* and anything else that changes a figure
  int64_t weight_bytes = 0, extra_parameter_bytes = 0, kv_bytes = 0, peak_bytes = 0;
};

struct PromptRecord {
  std::string key;  // hash of task, id and rendered first turn
  std::string task, id, category, language;
  std::string group = {};     // datasets::Prompt
  std::string rendered = {};  // first turn as the model reads it
  std::string rendered_hash;  // its SHA-256
  std::vector<std::string> turns;
  std::optional<std::string> reference;
};

// Who measured: a process on a machine.
struct MachineRecord {
  std::string key;                           // hash of what identifies the machine for timing
  std::string name;                          // of the host
  std::map<std::string, std::string> facts;  // RunRecord::environment of the machine, row costs
};

// What a run measures in the end, on whatever machines and in whatever shards.
struct PlanRecord {
  std::string key;  // equal keys belong together, and can be merged
  int64_t arms = 0, prompts = 0, repeats = 1, samples = 1;
  int64_t generations() const { return arms * prompts * repeats * samples; }
  bool operator==(const PlanRecord&) const = default;
};

// One of `count` parts of a plan, numbered from 1. 1 of 1 is all of it.
struct Shard {
  int number = 1, count = 1;
  auto operator<=>(const Shard&) const = default;
};

struct RunRecord {
  std::string key;  // hash of suite and settings: equal keys resume
  std::string label, suite, suite_json, commit, version, started, command;
  std::map<std::string, std::string> environment;  // cpu, memory, kernel, compiler, build type, ...
};

}  // namespace evalrun::results
