#include "reports/compare/compare.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "reports/data/matching.h"
#include "reports/data/sessions.h"

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
      causes.push_back(causes[0] == Cause::kArSlower ? Cause::kMethodFaster : Cause::kArSlower);
    else if (method < -margin && ar > margin)
      causes.push_back(causes[0] == Cause::kArFaster ? Cause::kMethodSlower : Cause::kArFaster);
  }
  if (method < -margin && ar < -margin) causes.push_back(Cause::kBothSlower);
  if (method > margin && ar > margin) causes.push_back(Cause::kBothFaster);
  return causes;
}

std::vector<Cause> causes_of(const Pairing& a, const Pairing& b, bool text_changed, double margin) {
  std::vector<Cause> causes;
  const double speeds[] = {a.method.fastest_tok_s(), b.method.fastest_tok_s(),
                           a.base.fastest_tok_s(), b.base.fastest_tok_s()};
  if (*std::min_element(std::begin(speeds), std::end(speeds)) > 0)
    causes = speed_causes(std::log(speeds[1] / speeds[0]), std::log(speeds[3] / speeds[2]), margin);
  if (text_changed) causes.push_back(Cause::kTextChanged);
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

ArmComparison compare_arm(const std::vector<RunData>& a, const std::vector<RunData>& b,
                          const std::string& label, const std::string& task,
                          const CompareOptions& options) {
  const MatchedSessions m = match_sessions(a, b, label, task);
  const double margin = -std::log(1 - options.min_effect);
  ArmComparison c;
  c.method = label;
  c.dataset = task.empty() ? "all" : task;
  c.n_prompts = static_cast<int>(m.logs_a.front().size());
  if (m.cells > 0)
    c.identical_share = static_cast<double>(m.same_tokens) / static_cast<double>(m.cells);
  c.batch = a.front().arm(label)->batch;
  const Design design = PromptDesigns(a.front().prompts, options.scope).of(m.prompts, c.batch);
  c.one_unit = c.n_prompts > 1 && design.units() == 1;
  c.n_eff = c.one_unit ? 1 : c.n_prompts;
  if (const auto t =
          session_change(m.logs_a, m.logs_b, options.scope, options.confidence, design)) {
    c.ratio = std::exp(t->mean);
    c.interval = base::Interval{std::exp(t->interval.lo), std::exp(t->interval.hi)};
    c.n_eff = t->n_eff;
    c.session_sd = t->session_sd;
    c.change = classify(t->interval, margin);
    if (t->standard_error > 0)
      c.p_value = 2 * base::student_t_cdf(-std::fabs(t->mean / t->standard_error), t->dof);
  } else if (c.n_prompts > 0) {
    c.ratio = std::exp(base::mean(m.logs_b.front()) - base::mean(m.logs_a.front()));
  }
  c.a = side_of(m.a);
  c.b = side_of(m.b);
  c.causes = causes_of(m.a, m.b, m.same_tokens < m.cells, margin);
  return c;
}

// All rows with a p-value are one family: data sets, methods and the pooled rows. A reader looks at
// all of them.
void adjust(Comparison& c) {
  if (c.adjustment == base::Adjustment::kNone) return;
  std::vector<ArmComparison*> family;
  std::vector<double> p;
  for (ArmComparison& x : c.arms)
    if (x.p_value) family.push_back(&x), p.push_back(*x.p_value);
  p = base::adjusted_p(p, c.adjustment);
  for (size_t i = 0; i < family.size(); ++i) {
    ArmComparison& x = *family[i];
    x.p_adjusted = p[i];
    if ((x.change == Change::kFaster || x.change == Change::kSlower) && p[i] >= 1 - c.confidence)
      x.change = Change::kInconclusive;
  }
}

std::string name_of(const RunInfo& r) {
  return r.label.empty() ? fmt::format("run {}", r.id) : fmt::format("run {} '{}'", r.id, r.label);
}

// Prompts are compared with themselves. Where another machine measured one, the change is of both.
void add_machine_warnings(Comparison& c, const RunInfo& a, const RunInfo& b) {
  if (!a.several_machines() && !b.several_machines()) return;
  for (const OtherMachine& m : other_machines(a, b))
    c.warnings.push_back(fmt::format("the {} is {} in A, {} in B: changes are of machines as well",
                                     m.what, m.first, m.second));
  c.warnings.push_back(
      "tok/s of several machines are those of one clock: every machine's plain decoding runs as "
      "fast as all of them on average");
}

void add_warnings(Comparison& c, const RunData& a, const RunData& b) {
  for (const ArmInfo& arm : a.arms) {
    const ArmInfo* other = b.arm(arm.label);
    if (other == nullptr) {
      c.warnings.push_back(fmt::format("{} is in A only", arm.label));
      continue;
    }
    for (const OtherMode& m : other_modes(arm, *other))
      c.warnings.push_back(
          fmt::format("{}: {} is {} in A, {} in B", arm.label, m.what, m.first, m.second));
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
  add_machine_warnings(c, a.run, b.run);
  for (const char* name : {"cpu", "gpu", "build_type", "compiler"}) {
    const auto x = a.run.environment.find(name), y = b.run.environment.find(name);
    if (x != a.run.environment.end() && y != b.run.environment.end() && x->second != y->second)
      c.warnings.push_back(fmt::format("{} is '{}' in A, '{}' in B", name, x->second, y->second));
  }
}

// Why rows have no interval, each data set once.
void add_unit_warnings(Comparison& c) {
  std::vector<std::string> named;
  for (const ArmComparison& arm : c.arms) {
    if (!arm.one_unit || std::find(named.begin(), named.end(), arm.dataset) != named.end())
      continue;
    named.push_back(arm.dataset);
    const bool kinds = c.scope == Scope::kNewKinds;
    const char* unit = kinds ? "kind" : arm.batch > 1 ? "batch" : "group";
    c.warnings.push_back(fmt::format("{}: no interval{}: all prompts are of one {}", arm.dataset,
                                     kinds ? " for new kinds" : "", unit));
  }
}

// What the sessions of one side did differently.
void add_session_warnings(Comparison& c, const std::vector<RunData>& side, const char* name) {
  if (side.size() > 1 && side.size() < kFewSessions)
    c.warnings.push_back(fmt::format(
        "{} has {} sessions: with fewer than {} the variance between sessions is badly estimated",
        name, side.size(), kFewSessions));
  for (size_t r = 1; r < side.size(); ++r)
    for (const ArmInfo& arm : side[r].arms) {
      const MatchedArm m = match_arm(side[0], side[r], arm.label, "");
      if (m.same_tokens < m.cells)
        c.warnings.push_back(fmt::format("{}: tokens of {} and {} of {} differ on {} of {} prompts",
                                         arm.label, name_of(side[0].run), name_of(side[r].run),
                                         name, m.cells - m.same_tokens, m.cells));
    }
}

// Other samplers draw other texts for the same seeds. A change of speed would be one of texts, too.
void require_one_sampler(const RunData& a, const RunData& b) {
  for (const ArmInfo& arm : a.arms) {
    const ArmInfo* other = b.arm(arm.label);
    if (other == nullptr || arm.greedy() || other->greedy()) continue;
    const std::string x = arm_setting(arm, "sampler"), y = arm_setting(*other, "sampler");
    if (x == y) continue;
    const auto name = [](const std::string& sampler) {
      return sampler.empty() ? std::string("not stored") : sampler;
    };
    throw base::Error(
        base::ExitCode::kNoBaseline,
        fmt::format("not comparable: {}: sampler is {} in A, {} in B; other samplers draw other "
                    "texts, so nothing can be paired",
                    arm.label, name(x), name(y)),
        x.empty() || y.empty()
            ? fmt::format("evalrun 1.0 stored no sampler and drew by other random numbers: measure "
                          "{} again, with --sampler {}",
                          x.empty() ? "A" : "B", x.empty() ? y : x)
            : fmt::format("measure one side again with the sampler of the other: A with --sampler "
                          "{}, or B with --sampler {}",
                          y, x));
  }
}

std::vector<RunData> load_side(std::span<const StoredRun> side, const CompareOptions& options) {
  EVALRUN_CHECK(!side.empty(), "a side without a run");
  std::vector<RunData> sessions;
  for (const StoredRun& s : side) {
    RunData run = load_run(*s.store, s.run, options.faults);
    if (run.baseline() == nullptr)
      throw base::data_error(s.store->path(), name_of(run.run),
                             "has no plain-decoding arm, so there are no speedups to compare",
                             "measure with 'ar' among --methods");
    for (const RunData& before : sessions)
      require_sessions_of_one_thing(before, run, s.store->path());
    sessions.push_back(std::move(run));
  }
  return sessions;
}

}  // namespace

Comparison compare_runs(std::span<const StoredRun> runs_a, std::span<const StoredRun> runs_b,
                        const CompareOptions& options) {
  const std::vector<RunData> all_a = load_side(runs_a, options), all_b = load_side(runs_b, options);
  const RunData &a = all_a.front(), &b = all_b.front();
  require_one_sampler(a, b);
  Comparison c;
  for (const RunData& r : all_a) c.a.push_back(r.run);
  for (const RunData& r : all_b) c.b.push_back(r.run);
  c.min_effect = options.min_effect;
  c.confidence = options.confidence;
  c.adjustment = options.adjustment;
  c.scope = options.scope;
  const auto keys_b = prompts_by_key(b);
  std::vector<std::string> tasks;
  for (const PromptInfo& p : a.prompts)
    if (keys_b.contains(p.key) && std::find(tasks.begin(), tasks.end(), p.task) == tasks.end())
      tasks.push_back(p.task);
  for (const ArmInfo& arm : a.arms) {
    if (!arm.drafts() || b.arm(arm.label) == nullptr) continue;
    for (const std::string& task : tasks)
      c.arms.push_back(compare_arm(all_a, all_b, arm.label, task, options));
    if (tasks.size() > 1) c.arms.push_back(compare_arm(all_a, all_b, arm.label, "", options));
  }
  if (c.arms.empty())
    throw base::data_error(runs_b.front().store->path(), name_of(b.run),
                           fmt::format("shares no method and prompt with {} of {}", name_of(a.run),
                                       runs_a.front().store->path()),
                           "compare runs of the same suite");
  adjust(c);
  add_unit_warnings(c);
  add_warnings(c, a, b);
  add_session_warnings(c, all_a, "A");
  add_session_warnings(c, all_b, "B");
  return c;
}

Comparison compare_runs(const results::ResultStore& store_a, int64_t run_a,
                        const results::ResultStore& store_b, int64_t run_b,
                        const CompareOptions& options) {
  const StoredRun a = {&store_a, run_a}, b = {&store_b, run_b};
  return compare_runs({&a, 1}, {&b, 1}, options);
}

}  // namespace evalrun::reports
