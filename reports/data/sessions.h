// Two levels of chance: prompts, and the sessions (processes) that measured them. What a session
// does to all its prompts alike (memory layout, clocks, other load) cannot be seen in it, so that
// an interval over the prompts of one session is silent about the next one.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/stats.h"
#include "reports/data/estimators.h"
#include "reports/data/run_data.h"

namespace evalrun::reports {

// With fewer on a side, the variance between sessions is badly estimated.
inline constexpr int kFewSessions = 5;

struct SessionChange {
  double mean = 0;  // over prompts: B's mean over sessions minus A's
  double standard_error = 0, dof = 0;
  double n_eff = 0;  // as many units of equal weight say as much as the prompts (DesignedMean)
  base::Interval interval;
  // Standard deviation of a session's mean over prompts, pooled over the sides; absent where
  // neither has two sessions.
  std::optional<double> session_sd;
};

// Change from A to B, with n prompts, R_A and R_B sessions; v_p = variance over prompts of B's mean
// minus A's / n, v_s = session_sd^2 (1/R_A + 1/R_B). Student's t with
//   kFixedSet: v_s, R_A + R_B - 2 degrees of freedom: sessions are repeated, prompts are not;
//   kSameKind, kNewKinds: v_p + v_s, degrees of freedom by Satterthwaite (1946), v_p of the design.
//   Timing noise is in both, so this is a little wide.
// With one session on either side there is v_p alone, for all scopes. nullopt where that leaves no
// degree of freedom. `design`: of the prompts, in their order (PromptDesigns).
std::optional<SessionChange> session_change(const SessionLogs& a, const SessionLogs& b, Scope scope,
                                            double confidence = 0.95, const Design& design = {});

// Whether `other` measured the same as `first` in another process, as below.
bool sessions_of_one_thing(const RunData& first, const RunData& other);

// Throws data_error unless `other` measured the same as `first` in another process: same commit,
// processor, arms, engine modes and prompts, but not the same run. `path`: the file of `other`.
void require_sessions_of_one_thing(const RunData& first, const RunData& other,
                                   const std::string& path);

}  // namespace evalrun::reports
