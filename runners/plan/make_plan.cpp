#include <algorithm>
#include <set>

#include "engine/cache_memory.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "evaluators/evaluator.h"
#include "runners/machine/environment.h"
#include "runners/machine/gpu_state.h"
#include "runners/machine/machine_identity.h"
#include "runners/plan/auto_method.h"
#include "runners/plan/batch_memory.h"
#include "runners/plan/plan.h"
#include "runners/plan/plan_arms.h"
#include "runners/plan/plan_prompts.h"
#include "runners/plan/shards.h"
#include "runners/plan/waves.h"

namespace evalrun::runners {
namespace {

// Room after the longest conversation for the rows of one step. Methods that need more get less,
// but only at the end of the longest answers.
constexpr int kRowRoom = 512;

// Where and by what the run is measured, and its key.
void describe_run(const PlanRequest& request, const std::set<std::string>& evaluator_ids,
                  RunPlan& plan) {
  results::RunRecord& run = plan.run;
  run.environment.merge(capture_environment());
  if (const PlannedArm* decoded = first_decoded(plan))
    run.environment.merge(gpu_environment(decoded->record.device));
  run.environment["model_path"] = request.target->path();
  run.environment["model_hash"] = request.target->hash();
  if (request.draft != nullptr) run.environment["draft_path"] = request.draft->path();
  // A named template is code of ours. A text can be another one tomorrow.
  if (const engine::ChatTemplate* chat = request.target->chat_template();
      chat != nullptr && !chat->sha256().empty()) {
    run.environment["chat_template"] = chat->name();
    run.environment["chat_template_sha256"] = chat->sha256();
    run.environment["chat_template_file"] = chat->place();
    if (!chat->date().empty()) run.environment["chat_template_date"] = chat->date();
  }
  run.label = request.label.empty() ? plan.suite.name : request.label;
  run.suite = plan.suite.name;
  run.suite_json = to_json(plan.suite).dump(2);
  run.commit = build_info().commit;
  run.version = build_info().version;
  run.started = utc_now();
  run.command = request.command;
  RunKeyParts parts;
  for (const PlannedArm& arm : plan.arms) parts.arm_keys.push_back(arm.record.key);
  for (const PlannedPrompt& prompt : plan.prompts) parts.prompt_keys.push_back(prompt.record.key);
  const BuildInfo& build = build_info();
  parts.build = fmt::format("{} {} {} {} {}", build.version, build.id, build.build_type,
                            build.compiler, build.sanitizers);
  parts.machine =
      fmt::format("{}, {} cores", run.environment["cpu"], run.environment["cores_allowed"]);
  if (const auto gpu = run.environment.find("gpu"); gpu != run.environment.end())
    parts.machine += ", " + gpu->second;
  parts.label = run.label;
  parts.nonce = request.nonce;
  parts.faults = request.faults;
  for (const std::string& name : evaluator_ids)
    parts.evaluator_versions[name] = evaluators::evaluator_registry().get(name).info.version;
  run.key = run_key(plan.suite, parts);
  RunKeyParts anywhere = parts;
  anywhere.arm_keys.clear();
  for (const PlannedArm& arm : plan.arms) anywhere.arm_keys.push_back(plan_arm_key(arm.record));
  plan.whole = {.key = plan_key(plan.suite, anywhere),
                .arms = static_cast<int64_t>(plan.arms.size()),
                .prompts = static_cast<int64_t>(plan.prompts.size()),
                .repeats = plan.suite.repeats,
                .samples = plan.suite.samples};
  const PlannedArm* decoded = first_decoded(plan);
  const results::ArmRecord engine = decoded == nullptr ? results::ArmRecord() : decoded->record;
  plan.machine = this_machine(run.environment, engine.device, engine.isa, engine.threads);
}

}  // namespace

RunPlan make_plan(const PlanRequest& asked_for) {
  RunPlan plan;
  const PlanRequest request = without_auto(asked_for, plan.chosen);
  plan.suite = request.suite;
  if (request.row_cost) plan.row_cost->table = *request.row_cost, plan.row_cost->given = true;
  const PlannedData data = plan_prompts(request, plan);
  int most = 0;
  for (const PlannedPrompt& p : plan.prompts) most = std::max(most, p.most_tokens);
  plan.capacity = std::min(most + kRowRoom, request.target->config().max_context);
  check_batch_prompts(plan.prompts, plan.suite.batches);
  plan.waves = make_waves(plan.prompts, plan.suite.batches.wave_size());
  plan_arms(request, data.max_new, plan);
  if (!plan.suite.batches.one()) {
    const engine::SessionOptions session = planned_session(request, plan);
    check_batch_memory(plan, session, engine::free_device_bytes(session.device));
    build_batches(plan);
  }
  plan.schedule = make_schedule({plan.waves, static_cast<int>(plan.arms.size()), plan.suite.repeats,
                                 plan.suite.samples, prompts_of_turns(plan)},
                                plan.suite.order, plan.suite.seed);
  describe_run(request, data.evaluators, plan);
  if (request.shard) take_shard(*request.shard, plan);
  return plan;
}

}  // namespace evalrun::runners
