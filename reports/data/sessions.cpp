#include "reports/data/sessions.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/base/error.h"
#include "reports/data/jackknife.h"
#include "reports/data/matching.h"

namespace evalrun::reports {

namespace {

// Mean over sessions, per prompt.
std::vector<double> prompt_means(const SessionLogs& logs) {
  std::vector<double> means(logs.front().size(), 0);
  for (const std::vector<double>& session : logs) {
    EVALRUN_CHECK(session.size() == means.size(), "sessions of {} and {} prompts", means.size(),
                  session.size());
    for (size_t i = 0; i < means.size(); ++i)
      means[i] += session[i] / static_cast<double>(logs.size());
  }
  return means;
}

// Sum of squared deviations of the sessions' means over prompts.
double squares_between(const SessionLogs& logs) {
  std::vector<double> means;
  for (const std::vector<double>& session : logs) means.push_back(base::mean(session));
  const double sd = base::sample_sd(means);
  return sd * sd * static_cast<double>(means.size() - 1);
}

// What differs between two runs that should be of one thing, "" if nothing does.
std::string difference(const RunData& first, const RunData& other) {
  if (first.run.key == other.run.key) return "is the same run: it says nothing new";
  if (first.run.commit != other.run.commit)
    return fmt::format("is of commit {}, not {}", other.run.commit, first.run.commit);
  if (const auto m = other_machines(first.run, other.run); !m.empty())
    return fmt::format("was measured on '{}', not '{}'", m[0].second, m[0].first);
  for (const ArmInfo& arm : other.arms)
    if (first.arm(arm.label) == nullptr) return fmt::format("has an arm {} more", arm.label);
  for (const ArmInfo& arm : first.arms) {
    const ArmInfo* same = other.arm(arm.label);
    if (same == nullptr) return fmt::format("has no arm {}", arm.label);
    if (const auto modes = other_modes(arm, *same); !modes.empty())
      return fmt::format("differs: {}: {} is {}, and {} in the first", arm.label, modes[0].what,
                         modes[0].second, modes[0].first);
  }
  const auto keys = prompts_by_key(first), others = prompts_by_key(other);
  for (const auto& [key, prompt] : keys)
    if (!others.contains(key)) return fmt::format("lacks the prompt {}", prompt->name);
  for (const auto& [key, prompt] : others)
    if (!keys.contains(key)) return fmt::format("has the prompt {} more", prompt->name);
  return "";
}

}  // namespace

std::optional<SessionChange> session_change(const SessionLogs& a, const SessionLogs& b, Scope scope,
                                            double confidence, const Design& design) {
  EVALRUN_CHECK(!a.empty() && !b.empty() && a.front().size() == b.front().size(),
                "{} and {} sessions", a.size(), b.size());
  if (a.front().empty()) return std::nullopt;
  std::vector<double> differences = prompt_means(b);
  const std::vector<double> before = prompt_means(a);
  for (size_t i = 0; i < differences.size(); ++i) differences[i] -= before[i];

  SessionChange c;
  c.mean = base::mean(differences);
  const auto n = static_cast<double>(differences.size());
  const double prompt_sd = base::sample_sd(differences);
  double over_prompts = prompt_sd * prompt_sd / n, prompt_dof = n - 1;
  c.n_eff = n;
  if (!design.empty()) {
    const auto mean = mean_interval(differences, design, confidence);
    over_prompts = mean ? mean->standard_error * mean->standard_error : 0;
    prompt_dof = mean ? mean->dof : 0;
    c.n_eff = mean ? mean->n_eff : 1;
  }
  const double of_a = static_cast<double>(a.size()), of_b = static_cast<double>(b.size());
  const double session_dof = of_a + of_b - 2;
  double variance = over_prompts;
  c.dof = prompt_dof;
  if (session_dof > 0) {
    const double squares = (squares_between(a) + squares_between(b)) / session_dof;
    const double over_sessions = squares * (1 / of_a + 1 / of_b);
    c.session_sd = std::sqrt(squares);
    variance = over_sessions;
    c.dof = session_dof;
    // Satterthwaite: the degrees of freedom that a sum of two estimated variances is worth.
    if (scope != Scope::kFixedSet) {
      variance = over_prompts + over_sessions;
      if (over_prompts > 0)
        c.dof = variance * variance /
                (over_prompts * over_prompts / prompt_dof +
                 over_sessions * over_sessions / session_dof);
    }
  }
  if (c.dof < 1 || (scope != Scope::kFixedSet && prompt_dof < 1)) return std::nullopt;
  c.standard_error = std::sqrt(variance);
  const double half = base::student_t_quantile((1 + confidence) / 2, c.dof) * c.standard_error;
  c.interval = {c.mean - half, c.mean + half};
  return c;
}

bool sessions_of_one_thing(const RunData& first, const RunData& other) {
  return difference(first, other).empty();
}

void require_sessions_of_one_thing(const RunData& first, const RunData& other,
                                   const std::string& path) {
  const std::string what = difference(first, other);
  if (!what.empty())
    throw base::data_error(
        path, fmt::format("run {}", other.run.id),
        fmt::format("{}; it stands beside run {} as another session of the same", what,
                    first.run.id),
        "name runs of one build, suite and machine, each measured by a process of its own: evalrun "
        "run SUITE --no-resume");
}

}  // namespace evalrun::reports
