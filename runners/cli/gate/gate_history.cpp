#include "runners/cli/gate/gate_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reports/gate/session_spread.h"
#include "results/queries.h"
#include "runners/cli/gate/baseline_servers.h"

namespace evalrun::cli {
namespace {

// Builds with local changes, or without git, share a name and may be different ones.
bool names_one_build(const std::string& commit) {
  return !commit.empty() && commit != "unknown" && !commit.ends_with("-dirty");
}

std::vector<int64_t> history_without(const RunReference& baseline, const std::string& run_key) {
  std::vector<int64_t> runs = reports::sessions_like(*baseline.store, baseline.run_id);
  std::erase_if(runs, [&](int64_t run) {
    const auto row = results::find_run_row(*baseline.store, run);
    return row.has_value() && row->key == run_key;
  });
  return runs;
}

// The smallest chance of a red check, if it were one session that differs from another; Bonferroni
// over all arms.
double chance_of_red(const reports::GateResult& red, double spread, size_t history) {
  double arms = 0, smallest = 1;
  for (const reports::GateCheck& v : red.checks) {
    if (v.metric != "speed" || !v.effect || !v.margin) continue;
    ++arms;
    if (v.outcome != reports::Outcome::kRegression) continue;
    // A speedup may have risen, by slower plain decoding.
    const double beyond = std::fabs(std::log1p(*v.effect)) + std::log1p(-std::min(*v.margin, 0.99));
    smallest =
        std::min(smallest, reports::session_change_p(beyond, spread, static_cast<int>(history)));
  }
  return std::min(1.0, arms * smallest);
}

}  // namespace

HistoryVerdict judge_by_history(const RunReference& baseline, const reports::GateResult& red,
                                const reports::GateOptions& options) {
  if (!baseline.more_sessions.empty()) return {};
  const auto slower =
      std::find_if(red.checks.begin(), red.checks.end(), [](const reports::GateCheck& v) {
        return v.metric == "speed" && v.outcome == reports::Outcome::kRegression;
      });
  const bool other_red =
      std::any_of(red.checks.begin(), red.checks.end(), [](const reports::GateCheck& v) {
        return v.metric != "speed" && v.outcome == reports::Outcome::kRegression;
      });
  if (slower == red.checks.end() || other_red) return {};
  std::vector<int64_t> history = {baseline.run_id};
  if (names_one_build(red.base.commit)) history = history_without(baseline, red.current.key);
  const auto spread = reports::session_spread(*baseline.store, history, options);
  // Two builds can be measured at once, two starts of a server cannot.
  const char* against =
      has_servers(baseline) ? "" : ", or use --against, which measures both builds now";
  if (!spread)
    return {false, fmt::format("the baseline has one session, which stands alone: by how much "
                               "sessions differ here is not known; store five of them (evalrun run "
                               "SUITE --no-resume && evalrun baseline save NAME --add){}",
                               against)};
  const std::string sessions = fmt::format(
      "{} stored sessions of the baseline's build have a standard deviation of {:.1f} %",
      history.size(), 100 * *spread);
  if (chance_of_red(red, *spread, history.size()) < options.alpha)
    return {false, sessions + ", which does not explain it"};
  return {true,
          fmt::format("{}: {}, which may be all of it: take in more of them (evalrun run SUITE "
                      "--no-resume && evalrun baseline save NAME --add){}",
                      slower->method, sessions, against)};
}

}  // namespace evalrun::cli
