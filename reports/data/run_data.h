// One run read back from the store, ready for estimators: arms, prompts and one row per (arm,
// prompt, sample), as the view v_sample has it. Shared by report, compare and gate.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/data/hash_text.h"
#include "reports/machines/machines.h"
#include "results/certificates.h"
#include "results/store.h"

namespace evalrun::reports {

// Method of an arm that is plain decoding of a tuned target: what methods that decode such a model
// are compared with.
inline constexpr std::string_view kTunedPlain = "ar_tuned";

struct RunInfo {
  int64_t id = 0;
  std::string key, label, suite, commit, version, started, finished;  // finished "" = unfinished
  std::map<std::string, std::string> environment;
  std::string command = {};                // that began it, and resumes it
  int64_t stored = 0, planned = 0;         // generations of an unfinished run; 0 of a finished one
  std::vector<MachineInfo> machines = {};  // that measured it; empty where it is one
  bool several_machines() const { return !machines.empty(); }
};

struct ArmInfo {
  int64_t id = 0;
  std::string label, method, params, method_version, role, lossless;
  std::string model, model_hash, draft, draft_hash, dtype, isa, device, settings;
  int64_t threads = 0, batch = 1, top_k = 0, max_new = 0;
  int64_t weight_bytes = 0, extra_parameter_bytes = 0, kv_bytes = 0, peak_bytes = 0;
  double temperature = 0, top_p = 1;
  bool kv_cache = true, ignore_eos = false;
  // What `evalrun verify` found out about this method on this build, these weights, this engine
  // mode.
  std::optional<results::StoredCertificate> certificate = {};
  bool greedy() const { return temperature == 0; }
  bool drafts() const { return role == "method" && method != kTunedPlain; }
  bool lossy() const { return lossless == "none" || (lossless == "greedy" && !greedy()); }
};

struct PromptInfo {
  int64_t id = 0;
  std::string key, task, name, category, language;
  std::string group = {};  // results::PromptRecord
  int machine = 0;         // number in RunInfo::machines; all arms of a prompt are of one
};

// Times in nanoseconds; counters of the median repeat (real numbers: an even number of repeats
// means two of them). In a run of several machines, times are those of one clock for all of them:
// multiplied by MachineInfo::time_scale.
struct SampleRow {
  int64_t arm_id = 0, prompt_id = 0;
  int sample = 0;
  std::string fault;
  HashText tokens_hash, steps_hash;
  bool stable = true;       // all repeats gave the same tokens and counters
  bool degenerate = false;  // the answer runs in a loop (results/repetition.h)
  int n_repeats = 1;
  double n_tokens = 0, n_decode = 0, steps = 0, drafted = 0, drafted_depth = 0, accepted = 0;
  double emitted = 0, target_forwards = 0, rows = 0, undrafted = 0;
  double draft_ns = 0, verify_ns = 0, decode_ns = 0;
  double prefill_ns = 0, draft_prefill_ns = 0;  // the target's and the drafter's, before any step
  double first_token_ns = 0;                    // prefill_ns of the first turn alone
  double stop_tokens = 0;                       // turns that a stop token ended
  double fastest_ns = 0;                        // decode time of the fastest repeat
  double request_ns() const { return prefill_ns + draft_prefill_ns + decode_ns; }
};

using ArmTask = std::pair<int64_t, std::string>;  // arm id, data set

// Steps in which `depth` was the longest drafted path and `accepted` tokens were accepted; `cut`:
// the stop rule ended the step, so what comes after is unknown.
struct StepCount {
  int64_t depth = 0, accepted = 0, steps = 0;
  bool cut = false;
};

// Draft nodes at one place of the tree, over all finished generations (view v_node_acceptance).
struct NodeAcceptance {
  int64_t depth = 0, rank = 0;  // as results::NodeCount
  int64_t tested = 0, accepted = 0;
};

// Of finished generations without a planted fault, every timing repeat.
struct RunCounts {
  std::map<ArmTask, std::vector<StepCount>> steps;       // of arms that draft
  std::map<ArmTask, std::vector<NodeAcceptance>> nodes;  // by depth, then rank
};

// A finished generation without a planted fault.
struct Generation {
  int64_t id = 0, arm_id = 0, prompt_id = 0;
  int sample = 0;
  bool judged = false;  // scores count: the first repeat that finished (view v_answer)
};

struct Generations {
  std::vector<Generation> finished;                         // by id
  std::map<ArmTask, std::pair<int64_t, int64_t>> counts;    // all, failed (view v_count)
  std::map<ArmTask, std::pair<int64_t, int64_t>> identity;  // compared, identical (v_identity)
  // Of arms of a batch above 1: the same against plain decoding alone (RunData::reference_alone).
  std::map<ArmTask, std::pair<int64_t, int64_t>> identity_alone;
  // Absent unless asked for, and where a generation has no tally (results/tally.h).
  std::optional<RunCounts> outcomes = {};
  int64_t hidden_faults = 0;  // generations with a planted fault, in none of the above
  // Of another machine than their prompt's plain decoding: in no sample.
  int64_t other_machine = 0;
  int64_t first = 0, last = 0, n = 0;  // ids and number of all that the run has
};

struct RunData {
  RunInfo run;
  std::vector<ArmInfo> arms;        // in the order they were added
  std::vector<PromptInfo> prompts;  // likewise
  std::vector<SampleRow> samples;   // finished generations only; by arm, prompt, sample, fault
  Generations generations;
  // The first arm with role "baseline", null when there is none. A run of several batch sizes has
  // one for each, the smallest first.
  const ArmInfo* baseline() const;
  // What speed and tokens of an arm are compared with: the baseline of its batch (size and mode),
  // or where it decodes another model (a tuned target), the first plain decoding of that model in
  // such batches, which is its own. baseline() where there is neither. Quality is compared with one
  // arm for all (ReportOptions::control). As the view v_reference.
  const ArmInfo* reference(const ArmInfo& arm) const;
  // The same for batch 1: plain decoding of the arm's model, one prompt after the other. Null where
  // it was not measured.
  const ArmInfo* reference_alone(const ArmInfo& arm) const;
  const ArmInfo* arm(std::string_view label) const;  // as arm_of()
  // By prompt: what the times of its samples were multiplied by; empty for a run of one machine.
  std::map<int64_t, double> time_scales() const;
};

// The arm of this label, or the only one whose label differs in the folders of paths alone: those
// of older runs hold whole paths. Null without one.
const ArmInfo* arm_of(const std::vector<ArmInfo>& arms, std::string_view label);

enum class Faults { kLeaveOut, kInclude };  // kInclude: the gate's self-test

// Throws data_error when the run does not exist, and Error(kEnvironment) when an arm and its
// reference were not measured in the same engine mode: no figure of two modes means anything.
// `step_detail`: with Generations::outcomes.
RunData load_run(const results::ResultStore& store, int64_t run_id,
                 Faults faults = Faults::kLeaveOut, bool step_detail = false);

// Of ArmInfo::settings; "" where the arm has none of that name.
std::string arm_setting(const ArmInfo& arm, const char* name);

// "static" or "continuous" (methods::BatchMode); "" for batch 1.
std::string batch_mode(const ArmInfo& arm);
// The label without its batch, which it ends with: "pld:k=4" of "pld:k=4, batch 8". What arms that
// differ in their batch alone have in common.
std::string label_without_batch(const ArmInfo& arm);
bool in_batches(const std::vector<ArmInfo>& arms);  // one of them has a batch above 1

// Why equal generations of an arm may take other steps: "follow the machine" (adaptive drafting,
// from run to run), "carry state" (from prompt to prompt), "" = they may not. Greedy tokens are the
// same in any case.
std::string varying_steps(const ArmInfo& arm);

// Whether an arm drafts by an acceptance that was set, from a text that no method can know: it says
// what a method could reach, and is ranked with none.
bool synthetic(const ArmInfo& arm);
// Where an arm stands among those of its batch, and below what line. Servers stand among the first,
// but are not ranked.
enum class Standing { kLossless, kLossy, kSynthetic };
Standing standing(const ArmInfo& arm);

// Whether an arm is a server that was measured over HTTP. Its steps are pieces of its answer, its
// counters the server's, and it promises nothing.
bool is_server(const ArmInfo& arm);
// Whether an arm's label is plain decoding's, in whatever batch: "ar", "ar, batch 2". No label is.
bool is_plain_label(std::string_view label);

// Whether an arm was made to follow its reference's text: then that it has the same tokens is by
// force.
bool replayed(const ArmInfo& arm);

// Whether an arm promises plain decoding's tokens: greedy, or sampled by what is keyed by position
// where no draft is put to a rejection test (methods/draft_rule.h). Runs of 1.0 and before say
// nothing of sampling.
bool promises_tokens(const ArmInfo& arm);

std::string run_title(const RunInfo& run);  // "run 3 'before'"
// Of an unfinished run: "162 of 201 generations are stored", and "resume it ...: COMMAND". Another
// build has another key, and would begin anew.
std::string stored_text(const RunInfo& run);
std::string resume_text(const RunInfo& run);

// What its arms decode on, as it calls itself: a GPU, or else the processor; of several machines
// all of them, with their numbers. "" when not stored.
std::string machine_name(const RunInfo& run);
// Processor and GPU where both runs stored theirs and they differ: a name each, "processor" or
// "GPU". Where one of the runs is of several machines: their "set of machines", if
// these are not the same.
struct OtherMachine {
  std::string what, first, second;
};
std::vector<OtherMachine> other_machines(const RunInfo& first, const RunInfo& second);

// Everything about an arm that must be equal for two runs to be comparable, as name -> value.
std::map<std::string, std::string> engine_mode(const ArmInfo& arm);
// What of that differs between two arms; their settings one by one, "not set" where an arm has none
// of that name.
struct OtherMode {
  std::string what, first, second;
};
std::vector<OtherMode> other_modes(const ArmInfo& first, const ArmInfo& second);

}  // namespace evalrun::reports
