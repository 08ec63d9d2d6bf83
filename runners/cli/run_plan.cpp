#include "runners/cli/run_plan.h"

#include <map>

#include "runners/cli/output.h"
#include "runners/progress.h"

namespace evalrun::cli {
namespace {

struct TaskCount {
  int prompts = 0, turns = 0, max_new = 0, longest = 0;
};

std::map<std::string, TaskCount> count_tasks(const runners::RunPlan& plan) {
  std::map<std::string, TaskCount> counts;
  for (const runners::PlannedPrompt& p : plan.prompts) {
    TaskCount& c = counts[p.record.task];
    ++c.prompts;
    c.turns += static_cast<int>(p.prompt.turns.size());
    c.max_new = p.max_new;
    c.longest = std::max(c.longest, p.first_turn_tokens);
  }
  return counts;
}

// Standard deviations of per-prompt log differences that are usual for such a run: identical text
// on a quiet and on an ordinary machine, or sampled text.
std::vector<double> usual_deviations(const runners::Suite& suite) {
  return suite.sampling.greedy() ? std::vector<double>{0.01, 0.03}
                                 : std::vector<double>{0.10, 0.15};
}

double seconds_left(const PlanReport& report) {
  const auto all = static_cast<double>(report.plan.schedule.size());
  return runners::estimate_seconds(report.plan, report.calibration) * (all - report.stored) / all;
}

void print_json_plan(const PlanReport& report) {
  const runners::RunPlan& plan = report.plan;
  nlohmann::ordered_json json = {
      {"suite", nlohmann::json::parse(plan.run.suite_json)},
      {"run_key", plan.run.key},
      {"generations", plan.schedule.size()},
      {"stored", report.stored},
      {"seconds_at_most", seconds_left(report)},
      {"step_seconds", report.calibration.step_s},
      {"prefill_seconds_per_token", report.calibration.prefill_s_per_token},
      {"context_tokens", plan.capacity},
      {"skipped_too_long", plan.skipped},
      {"left_out", plan.left_out}};
  json["arms"] = nlohmann::json::array();
  for (const runners::PlannedArm& arm : plan.arms) json["arms"].push_back(arm.record.label);
  json["tasks"] = nlohmann::json::array();
  for (const auto& [task, c] : count_tasks(plan))
    json["tasks"].push_back(
        {{"task", task}, {"prompts", c.prompts}, {"turns", c.turns}, {"max_new", c.max_new}});
  json["detectable_effect"] = nlohmann::json::array();
  for (double sd : usual_deviations(plan.suite))
    json["detectable_effect"].push_back(
        {{"sd", sd},
         {"effect",
          runners::minimum_detectable_effect(sd, static_cast<int>(plan.prompts.size()))}});
  print_json_document(json);
}

}  // namespace

void print_plan(const PlanReport& report, bool as_json) {
  if (as_json) return print_json_plan(report);
  const runners::RunPlan& plan = report.plan;
  const runners::Suite& suite = plan.suite;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [task, c] : count_tasks(plan))
    for (const runners::PlannedArm& arm : plan.arms)
      rows.push_back({task, arm.record.label, std::to_string(c.prompts), std::to_string(c.turns),
                      std::to_string(c.max_new), std::to_string(c.longest),
                      std::to_string(c.prompts * suite.repeats * suite.samples)});
  print_line(aligned_table(
      {"data set", "arm", "prompts", "turns", "max new", "longest prompt", "generations"}, rows));
  for (const std::string& origin : plan.origins) print_line("data: " + origin);
  for (const std::string& method : plan.left_out) print_line("left out: " + method);
  if (!plan.skipped.empty())
    print_line(
        fmt::format("left out, too long for the context: {}", fmt::join(plan.skipped, ", ")));
  print_line(fmt::format(
      "{} generations ({} repeats, {} samples, order {}), {} already stored; session of {} tokens",
      plan.schedule.size(), suite.repeats, suite.samples, runners::to_string(suite.order),
      report.stored, plan.capacity));
  print_line(fmt::format(
      "time: at most {} at the speed of plain decoding ({} per step, {} per prompt token), warm-up "
      "up to {}",
      runners::format_duration(seconds_left(report)), human_time(report.calibration.step_s * 1e9),
      human_time(report.calibration.prefill_s_per_token * 1e9),
      runners::format_duration(suite.warmup < 0 ? suite.warmup_limit_s : 0)));
  for (double sd : usual_deviations(suite))
    print_line(fmt::format(
        "smallest change this can show (one-sided 5 %, power 80 %): {:.2f} % if prompts differ by "
        "{:.0f} %",
        100 * runners::minimum_detectable_effect(sd, static_cast<int>(plan.prompts.size())),
        100 * sd));
  print_line("run key: " + plan.run.key);
}

}  // namespace evalrun::cli
