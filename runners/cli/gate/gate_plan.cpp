#include "runners/cli/gate/gate_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/gate/session_spread.h"
#include "runners/cli/gate/baseline_servers.h"

namespace evalrun::cli {
namespace {

constexpr double kBeyondMargin = 0.02;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string conclusion(const GatePlan& plan) {
  if (!plan.spread)
    return fmt::format(
        "it is not known how much sessions differ here, so that this machine cannot be said to "
        "judge {} against a stored baseline; {}measure sessions: evalrun run SUITE --no-resume && "
        "evalrun baseline save {} --add",
        percent(plan.wanted), plan.servers ? "" : "use --against PROGRAM, or ", plan.baseline);
  const std::string found = fmt::format(
      "sessions differ by {} here ({} of them): a slowdown of {} is found in four of five checks",
      percent(*plan.spread), plan.history, percent(*plan.detectable));
  if (!plan.able())
    return fmt::format("{}; this machine cannot judge {} against a stored baseline; {}", found,
                       percent(plan.wanted),
                       plan.servers ? "measure more prompts or repeats" : "use --against PROGRAM");
  if (plan.sessions == 1)
    return found +
           "; the baseline has one session: take more of them in with baseline save --add, "
           "so that the verdict knows their spread";
  return found;
}

}  // namespace

GatePlan plan_gate(const std::string& name, const RunReference& baseline,
                   const reports::GateOptions& options) {
  GatePlan plan;
  plan.baseline = name;
  plan.run = baseline.run_id;
  plan.sessions = static_cast<int>(baseline.sessions().size());
  plan.servers = has_servers(baseline);
  plan.wanted = options.max_regression + kBeyondMargin;
  const std::vector<int64_t> history = reports::sessions_like(*baseline.store, baseline.run_id);
  plan.history = static_cast<int>(history.size());
  plan.spread = reports::session_spread(*baseline.store, history, options);
  if (plan.spread)
    plan.detectable = reports::detectable_slowdown(*plan.spread, plan.sessions, plan.history,
                                                   options.max_regression, options.level());
  return plan;
}

std::string plan_text(const GatePlan& plan) {
  return fmt::format("baseline '{}': run {}, {} session{}\n{}", plan.baseline, plan.run,
                     plan.sessions, plan.sessions == 1 ? "" : "s", conclusion(plan));
}

std::string plan_json_text(const GatePlan& plan) {
  const auto number = [](const std::optional<double>& x) {
    return x ? nlohmann::ordered_json(*x) : nlohmann::ordered_json(nullptr);
  };
  const nlohmann::ordered_json json = {{"baseline", plan.baseline},
                                       {"baseline_run", plan.run},
                                       {"sessions", plan.sessions},
                                       {"history", plan.history},
                                       {"session_spread", number(plan.spread)},
                                       {"wanted", plan.wanted},
                                       {"detectable", number(plan.detectable)},
                                       {"able", plan.able()},
                                       {"summary", conclusion(plan)}};
  return json.dump(2);
}

}  // namespace evalrun::cli
