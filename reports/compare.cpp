#include "reports/compare.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "reports/matching.h"

namespace evalrun::reports {

const char* to_string(Change c) {
  switch (c) {
    case Change::kFaster:
      return "faster";
    case Change::kSlower:
      return "slower";
    case Change::kNoDifference:
      return "no difference";
    case Change::kInconclusive:
      return "inconclusive";
  }
  EVALRUN_CHECK(false, "unknown change {}", static_cast<int>(c));
}

const char* to_string(Cause c) {
  switch (c) {
    case Cause::kMethodSlower:
      return "method slower";
    case Cause::kMethodFaster:
      return "method faster";
    case Cause::kArSlower:
      return "AR slower";
    case Cause::kArFaster:
      return "AR faster";
    case Cause::kBothSlower:
      return "both slower";
    case Cause::kBothFaster:
      return "both faster";
    case Cause::kTextChanged:
      return "text changed";
  }
  EVALRUN_CHECK(false, "unknown cause {}", static_cast<int>(c));
}

std::vector<Cause> speed_causes(double method, double ar, double margin) {
  std::vector<Cause> causes;
  if (std::fabs(method - ar) > margin) {
    if (std::fabs(method) >= std::fabs(ar))
      causes.push_back(method < 0 ? Cause::kMethodSlower : Cause::kMethodFaster);
    else
      causes.push_back(ar < 0 ? Cause::kArSlower : Cause::kArFaster);
    // The lesser of two moves in opposite directions is no drift either.
    if (method > margin && ar < -margin)
      causes = {Cause::kMethodFaster, Cause::kArSlower};
    else if (method < -margin && ar > margin)
      causes = {Cause::kMethodSlower, Cause::kArFaster};
  }
  if (method < -margin && ar < -margin) causes.push_back(Cause::kBothSlower);
  if (method > margin && ar > margin) causes.push_back(Cause::kBothFaster);
  return causes;
}

std::vector<Cause> causes_of(const MatchedArm& m, double margin) {
  std::vector<Cause> causes;
  const double speeds[] = {m.a.method.fastest_tok_s(), m.b.method.fastest_tok_s(),
                           m.a.base.fastest_tok_s(), m.b.base.fastest_tok_s()};
  if (*std::min_element(std::begin(speeds), std::end(speeds)) > 0)
    causes = speed_causes(std::log(speeds[1] / speeds[0]), std::log(speeds[3] / speeds[2]), margin);
  if (m.same_tokens < m.cells) causes.push_back(Cause::kTextChanged);
  return causes;
}

namespace {

ArmSide side_of(const Pairing& p) {
  ArmSide s;
  s.tok_s = p.method.tok_s();
  s.base_tok_s = p.base.tok_s();
  if (s.base_tok_s > 0) s.speedup = s.tok_s / s.base_tok_s;
  if (const auto why = explain(p.method, p.base)) {
    s.tau = why->tau, s.t_ratio = why->t_ratio;
    s.draft_share = why->draft_share, s.overhead = why->overhead;
  }
  return s;
}

// Symmetric in logs: -margin and +margin are a loss of min_effect and its undoing.
Change classify(const base::Interval& logs, double margin) {
  if (logs.lo > -margin && logs.hi < margin) return Change::kNoDifference;
  if (logs.lo > 0) return Change::kFaster;
  if (logs.hi < 0) return Change::kSlower;
  return Change::kInconclusive;
}

ArmComparison compare_arm(const RunData& a, const RunData& b, const std::string& label,
                          const std::string& task, const CompareOptions& options) {
  const MatchedArm m = match_arm(a, b, label, task);
  const double margin = -std::log(1 - options.min_effect);
  ArmComparison c;
  c.method = label;
  c.dataset = task.empty() ? "all" : task;
  c.n_prompts = static_cast<int>(m.log_differences.size());
  if (m.cells > 0)
    c.identical_share = static_cast<double>(m.same_tokens) / static_cast<double>(m.cells);
  if (c.n_prompts > 0) c.ratio = std::exp(base::mean(m.log_differences));
  if (const auto t = base::t_interval(m.log_differences, options.confidence)) {
    c.interval = base::Interval{std::exp(t->interval.lo), std::exp(t->interval.hi)};
    c.change = classify(t->interval, margin);
    if (t->standard_error > 0)
      c.p_value = 2 * base::student_t_cdf(-std::fabs(t->mean / t->standard_error), t->n - 1);
  }
  c.a = side_of(m.a);
  c.b = side_of(m.b);
  c.causes = causes_of(m, margin);
  return c;
}

std::string name_of(const RunInfo& r) {
  return r.label.empty() ? fmt::format("run {}", r.id) : fmt::format("run {} '{}'", r.id, r.label);
}

void add_warnings(Comparison& c, const RunData& a, const RunData& b) {
  for (const ArmInfo& arm : a.arms) {
    const ArmInfo* other = b.arm(arm.label);
    if (other == nullptr) {
      c.warnings.push_back(fmt::format("{} is in A only", arm.label));
      continue;
    }
    const auto mode_a = engine_mode(arm), mode_b = engine_mode(*other);
    for (const auto& [name, value] : mode_a)
      if (value != mode_b.at(name))
        c.warnings.push_back(
            fmt::format("{}: {} is {} in A, {} in B", arm.label, name, value, mode_b.at(name)));
  }
  for (const ArmInfo& arm : b.arms)
    if (a.arm(arm.label) == nullptr)
      c.warnings.push_back(fmt::format("{} is in B only", arm.label));
  const auto keys_a = prompts_by_key(a), keys_b = prompts_by_key(b);
  const auto missing = [](const auto& from, const auto& in) {
    return std::count_if(from.begin(), from.end(),
                         [&](const auto& p) { return !in.contains(p.first); });
  };
  if (const auto n = missing(keys_a, keys_b))
    c.warnings.push_back(fmt::format("{} prompts are in A only", n));
  if (const auto n = missing(keys_b, keys_a))
    c.warnings.push_back(fmt::format("{} prompts are in B only", n));
  for (const char* name : {"cpu", "build_type", "compiler"}) {
    const auto x = a.run.environment.find(name), y = b.run.environment.find(name);
    if (x != a.run.environment.end() && y != b.run.environment.end() && x->second != y->second)
      c.warnings.push_back(fmt::format("{} is '{}' in A, '{}' in B", name, x->second, y->second));
  }
}

}  // namespace

Comparison compare_runs(const results::ResultStore& store_a, int64_t run_a,
                        const results::ResultStore& store_b, int64_t run_b,
                        const CompareOptions& options) {
  const RunData a = load_run(store_a, run_a, options.faults);
  const RunData b = load_run(store_b, run_b, options.faults);
  for (const auto& [data, store] : {std::pair{&a, &store_a}, std::pair{&b, &store_b}})
    if (data->baseline() == nullptr)
      throw base::data_error(store->path(), name_of(data->run),
                             "has no plain-decoding arm, so there are no speedups to compare",
                             "measure with 'ar' among --methods");
  Comparison c;
  c.a = a.run, c.b = b.run;
  c.min_effect = options.min_effect;
  const auto keys_b = prompts_by_key(b);
  std::vector<std::string> tasks;
  for (const PromptInfo& p : a.prompts)
    if (keys_b.contains(p.key) && std::find(tasks.begin(), tasks.end(), p.task) == tasks.end())
      tasks.push_back(p.task);
  for (const ArmInfo& arm : a.arms) {
    if (!arm.drafts() || b.arm(arm.label) == nullptr) continue;
    for (const std::string& task : tasks)
      c.arms.push_back(compare_arm(a, b, arm.label, task, options));
    if (tasks.size() > 1) c.arms.push_back(compare_arm(a, b, arm.label, "", options));
  }
  add_warnings(c, a, b);
  if (c.arms.empty())
    throw base::data_error(
        store_b.path(), name_of(b.run),
        fmt::format("shares no method and prompt with {} of {}", name_of(a.run), store_a.path()),
        "compare runs of the same suite");
  return c;
}

}  // namespace evalrun::reports
