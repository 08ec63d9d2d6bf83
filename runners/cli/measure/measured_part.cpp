#include "runners/cli/measure/measured_part.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/rng.h"
#include "reports/gate/gate_output.h"
#include "runners/cli/command_line.h"
#include "runners/plan/schedule.h"
#include "runners/plan/waves.h"

namespace evalrun::cli {
namespace {

constexpr uint64_t kMixedPrompts = 35;  // any number, always the same

runners::RunPlan plan_of_part(const runners::PlanRequest& request, int begin, int end) {
  runners::RunPlan plan = runners::make_plan(request);
  base::Rng rng(kMixedPrompts);
  for (size_t i = plan.prompts.size(); i > 1; --i)
    std::swap(plan.prompts[i - 1], plan.prompts[rng.below(i)]);
  EVALRUN_CHECK(0 <= begin && begin < end && static_cast<size_t>(end) <= plan.prompts.size(),
                "prompts {} to {} of {}", begin, end, plan.prompts.size());
  plan.prompts.erase(plan.prompts.begin() + end, plan.prompts.end());
  plan.prompts.erase(plan.prompts.begin(), plan.prompts.begin() + begin);
  plan.waves = runners::waves_of_one(static_cast<int>(plan.prompts.size()));
  plan.schedule = runners::make_schedule({plan.waves, static_cast<int>(plan.arms.size()), 1, 1},
                                         plan.suite.order, plan.suite.seed);
  // How many prompts of each data set there are in this run, for table headers.
  for (auto& [name, text] : plan.run.environment) {
    if (!name.starts_with("data.")) continue;
    nlohmann::json described = nlohmann::json::parse(text);
    described["measured"] =
        std::count_if(plan.prompts.begin(), plan.prompts.end(),
                      [&key = name](const auto& p) { return "data." + p.record.task == key; });
    text = described.dump();
  }
  return plan;
}

void check_answers(const results::ResultStore& store, const reports::RunData& data) {
  for (const reports::GateCheck& check :
       reports::output_checks(store, data, reports::Faults::kLeaveOut))
    if (check.outcome == reports::Outcome::kCorrectness)
      throw base::Error(base::ExitCode::kCorrectness,
                        fmt::format("{}: {}", check.method, check.reason),
                        "the engine or the method is wrong: please report this");
}

}  // namespace

void complete_search(runners::PlanRequest& request, const std::string& where) {
  runners::Suite& suite = request.suite;
  suite.name = "tune";
  suite.max_turns = 1;
  suite.warmup = 1;
  suite.aa = false;
  suite.evaluate = false;
  runners::complete_suite(suite, where);
  request.skip_long = true;
  request.command = shell_line(process_arguments());
}

std::vector<reports::Pairing> measure_part(const runners::PlanRequest& request, int begin, int end,
                                           results::ResultStore& store, Instruments& instruments) {
  const runners::RunPlan plan = plan_of_part(request, begin, end);
  const runners::RunOutcome outcome =
      runners::run_plan(request, plan, store, instruments.clock(), instruments.options());
  if (outcome.status != runners::RunStatus::kComplete)
    throw base::Error(base::ExitCode::kInterrupted,
                      "interrupted; nothing is recommended that was not measured",
                      "what was measured is stored: the same command goes on from there");
  const reports::RunData data = reports::load_run(store, outcome.run_id);
  check_answers(store, data);
  std::vector<reports::Pairing> pairings;
  for (const runners::PlannedArm& planned : plan.arms) {
    if (planned.record.role != "method" || planned.record.method == reports::kTunedPlain) continue;
    const reports::ArmInfo* arm = data.arm(planned.record.label);
    EVALRUN_CHECK(arm != nullptr, "arm {}", planned.record.label);
    const reports::ArmInfo* plain = data.reference(*arm);
    EVALRUN_CHECK(plain != nullptr, "{} without plain decoding", arm->label);
    pairings.push_back(reports::pair_with_reference(reports::cells_of(data, arm->id),
                                                    reports::cells_of(data, plain->id),
                                                    [](int64_t) { return true; }));
  }
  return pairings;
}

}  // namespace evalrun::cli
