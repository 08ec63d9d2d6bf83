// Everything decided before the first token: prompts rendered and checked, arms with their keys,
// the schedule, the run's key. Making a plan measures nothing and writes nothing.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/session.h"
#include "methods/draft_rule.h"
#include "methods/method.h"
#include "results/records.h"
#include "runners/endpoints/endpoint.h"
#include "runners/machine/build_info.h"
#include "runners/machine/row_cost_cache.h"
#include "runners/plan/conversation.h"
#include "runners/plan/schedule.h"
#include "runners/plan/suite.h"

namespace evalrun::runners {

struct PlannedPrompt {
  datasets::Prompt prompt;
  results::PromptRecord record;
  int max_new = 0;
  int first_turn_tokens = 0;            // of the rendered first turn
  int least_tokens = 0;                 // of the last turn and a full answer, earlier answers empty
  int most_tokens = 0;                  // the same with full earlier answers
  std::vector<std::string> evaluators;  // that apply
};

// What an arm keeps while the run lasts, beside the session that decodes its model
// (runners/plan/batch_memory.h).
struct KeptByArm {
  std::vector<double> bytes;    // [n - 1] with n slots, n = 1..batch; empty = nothing
  double weights = 0;           // bytes of its drafter, which a GPU is yet to be given
  engine::FeatureSet features;  // of the target's tokens
  double grown = 0;             // besides, with texts, in all slots: bytes at most
  bool complete = true;         // false: more, of which no bound is known
};

struct PlannedArm {
  results::ArmRecord record;
  std::string fault;  // planted, tests only
  // What it decodes: the request's target or what the method makes of it (a tuned target); `record`
  // describes it. Its sessions are planned_session()'s.
  std::shared_ptr<const engine::Model> model;
  std::function<std::unique_ptr<methods::DecodingMethod>()> build;
  // What its sampled answers share with plain decoding's (MethodSpec::sampled()).
  std::function<methods::SampledAnswers(const engine::SamplingParams&)> sampled = {};
  KeptByArm kept = {};
  bool needs_answer = false;  // methods::MethodInfo
  // A server instead of a method: `model` gives tokenizer and prompts alone, and there is no build.
  std::optional<EndpointSpec> endpoint = {};
  std::function<std::unique_ptr<Endpoint>(const EndpointTools&)> connect = {};
};

struct RunPlan {
  Suite suite;
  results::RunRecord run;
  // In a suite with endpoints: the baseline, its A/A arm, other servers, methods. Else
  // methods as in the suite, each at every batch size; and plain decoding of each tuned target
  // before the first method that decodes it, unless the suite has it already. Plain decoding of
  // each size is a baseline, that of the smallest comes first.
  std::vector<PlannedArm> arms;
  std::vector<PlannedPrompt> prompts;
  std::vector<std::vector<int>> waves;  // indices of prompts (runners/plan/waves.h)
  std::vector<Visit> schedule;          // of a shard: its visits alone
  results::PlanRecord whole;            // all that is measured in the end, shard or not
  // One part of several (runners/plan/shards.h): which one, and of which each prompt is.
  std::optional<results::Shard> shard = {};
  std::vector<int> shard_of = {};
  results::MachineRecord machine;     // this one
  std::vector<std::string> skipped;   // prompts left out because they are too long
  std::vector<std::string> left_out;  // optional methods and why they cannot be measured
  std::string chosen;                 // what `auto` stands for here; "" = it is not in the suite
  std::vector<std::string> origins;   // "gsm8k: 40 prompts, official, FILE"
  int capacity = 0;                   // tokens that a sequence of a session must hold
  // Its tables are offered to the methods of every arm when they are built, by batch: empty in a
  // fresh plan, filled in before a run (measure_row_cost, runners/measure/runner.h) or an estimate.
  std::shared_ptr<MeasuredRowCost> row_cost = std::make_shared<MeasuredRowCost>();
};

struct PlanRequest {
  Suite suite;  // completed (complete_suite)
  std::shared_ptr<const engine::Model> target;
  std::shared_ptr<const engine::Model> draft;  // null when none was given
  engine::SessionOptions session;              // device, isa, threads as asked for
  std::string data_root;
  bool skip_long = false;  // leave out prompts longer than the context instead of refusing
  std::string label, command;
  std::string nonce;  // not empty: a run of its own although the configuration is an old one's
  std::optional<results::Shard> shard = {};  // this part of the plan only
  // What rows cost, for methods that go by it, instead of what is measured: so they take the same
  // steps on every machine.
  std::optional<engine::RowCostTable> row_cost = {};
  std::map<std::string, std::string> faults;  // arm label -> fault (methods/faults.h); tests only
  // Tests hand in servers of their own.
  std::function<std::unique_ptr<Endpoint>(const EndpointSpec&, const EndpointTools&)> connect =
      make_endpoint;
};

// Throws usage_error and data_error: unknown names, unreadable data, a prompt longer than the
// context (named), no prompts left, more shards than can be filled, a shard of what cannot be cut
// (runners/plan/shards.h), fewer of a data set than the largest batch, a batch that the
// device's memory cannot hold; `auto` without a choice that holds (runners/plan/auto_method.h). The
// plan's suite has what `auto` stands for in its place.
RunPlan make_plan(const PlanRequest& request);
// The first arm that is decoded here; null where all are servers.
const PlannedArm* first_decoded(const RunPlan& plan);
// The session the plan was made for, defaults resolved: a sequence for each slot of the largest
// batch, of which an arm of batch B uses 0 to B - 1.
engine::SessionOptions planned_session(const PlanRequest& request, const RunPlan& plan);

// Parts of make_plan, also for tests.
std::string arm_key(const results::ArmRecord& arm);
std::string prompt_key(const results::PromptRecord& record, const datasets::Prompt& prompt);
struct RunKeyParts {
  std::vector<std::string> arm_keys, prompt_keys;
  std::string build, machine, label, nonce;
  std::map<std::string, std::string> faults, evaluator_versions;
};
std::string run_key(const Suite& suite, const RunKeyParts& parts);
// The same on every machine and of every shard: kernels, threads and the number of the device are
// not in it, but kernels where the bits depend on them. Runs whose plans have equal keys can be
// merged. `arm_keys` of the parts are plan_arm_key()'s, and `machine` is not read.
std::string plan_arm_key(const results::ArmRecord& arm);
std::string plan_key(const Suite& suite, const RunKeyParts& parts);

// Smallest true slowdown a one-sided 5 % test finds with power 80 % when per-prompt log differences
// have standard deviation `sd` over n prompts.
double minimum_detectable_effect(double sd, int n);

}  // namespace evalrun::runners
