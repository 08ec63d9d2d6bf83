#include "reports/table/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <unordered_map>

#include "engine/base/error.h"
#include "reports/data/bootstrap.h"
#include "reports/data/estimators.h"
#include "reports/data/pairing.h"
#include "reports/table/run_counts.h"

namespace evalrun::reports {

using results::Row;

namespace {

constexpr const char* kAll = "all";

std::optional<double> ratio(double numerator, double denominator) {
  return denominator > 0 ? std::optional(numerator / denominator) : std::nullopt;
}

struct Score {
  int64_t prompt = 0;
  int sample = 0;
  std::string evaluator, version, status;
  std::optional<double> value, control;
  bool suspicious = false, unsandboxed = false;
};

struct Divergences {
  int64_t asked = 0, differing = 0, near_ties = 0;
  std::optional<double> largest_gap;
};

// What the store says; the pooled row adds tasks up.
struct Aggregates {
  RunCounts counts;
  std::map<ArmTask, std::vector<Score>> scores;
  std::map<std::pair<ArmTask, std::string>, std::map<int, double>> pass_at;  // by convention
  std::map<ArmTask, Divergences> divergences;
  GpuTotals gpu;
};

// The arm that quality is compared with; null without a baseline.
const ArmInfo* control_of(const std::vector<ArmInfo>& arms, const std::string& label) {
  std::vector<std::string> labels;
  for (const ArmInfo& arm : arms) {
    if (label.empty() ? arm.role == "baseline" : arm.label == label) return &arm;
    labels.push_back(arm.label);
  }
  if (label.empty()) return nullptr;
  throw base::usage_error(fmt::format("this run has no arm '{}'", label),
                          fmt::format("it has {}", fmt::join(labels, ", ")));
}

// An answer that nobody could judge here; elsewhere it may pass or fail.
bool machine_at_fault(const std::string& status) {
  return status == "sandbox_error" || status == "toolchain_missing";
}

// Scores with those of the control arm beside them.
void read_scores(const results::ResultStore& store, int64_t run_id, const ArmInfo* control,
                 Aggregates& a) {
  struct Key {
    int64_t prompt;
    int sample;
    std::string evaluator, version;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, double> of_control;
  std::set<std::pair<std::string, std::string>> unjudged;  // evaluators of the control
  bool has_pass = false;
  store.query(
      "SELECT arm_id, task, prompt_id, sample, evaluator, version, status, value, suspicious, "
      "unsandboxed "
      "FROM v_score WHERE run_id = ? AND fault = ''",
      {run_id}, [&](const Row& r) {
        Score s{.prompt = r.integer(2),
                .sample = static_cast<int>(r.integer(3)),
                .evaluator = r.text(4),
                .version = r.text(5),
                .status = r.text(6),
                .value = std::nullopt,
                .control = std::nullopt,
                .suspicious = r.integer(8) != 0,
                .unsandboxed = r.integer(9) != 0};
        has_pass = has_pass || s.evaluator == "pass";
        const bool of_the_control = control != nullptr && r.integer(0) == control->id;
        if (of_the_control && machine_at_fault(s.status)) unjudged.emplace(s.evaluator, s.version);
        if (!r.is_null(7)) {
          s.value = r.number(7);
          if (of_the_control) of_control[{s.prompt, s.sample, s.evaluator, s.version}] = *s.value;
        }
        a.scores[{r.integer(0), r.text(1)}].push_back(std::move(s));
        return true;
      });
  for (auto& [key, scores] : a.scores) {
    if (control == nullptr || key.first == control->id) continue;
    for (Score& s : scores)
      if (const auto it = of_control.find({s.prompt, s.sample, s.evaluator, s.version});
          it != of_control.end() && !unjudged.contains({s.evaluator, s.version}))
        s.control = it->second;
  }
  if (!has_pass) return;
  store.query(
      "SELECT arm_id, task, version, k, value FROM v_pass_at_k WHERE run_id = ? AND fault = ''",
      {run_id}, [&](const Row& r) {
        a.pass_at[{{r.integer(0), r.text(1)}, r.text(2)}][static_cast<int>(r.integer(3))] =
            r.number(4);
        return true;
      });
}

Aggregates load_aggregates(const results::ResultStore& store, const RunData& data,
                           const ArmInfo* control) {
  Aggregates a;
  a.counts = count_run(store, data);
  read_scores(store, data.run.id, control, a);
  a.gpu = GpuTotals(store, data);
  if (std::any_of(data.arms.begin(), data.arms.end(), replayed))
    store.query(
        "SELECT arm_id, task, asked, differing, near_ties, largest_gap FROM v_divergence "
        "WHERE run_id = ? AND fault = ''",
        {data.run.id}, [&](const Row& r) {
          a.divergences[{r.integer(0), r.text(1)}] = {
              r.integer(2), r.integer(3), r.integer(4),
              r.is_null(5) ? std::nullopt : std::optional(r.number(5))};
          return true;
        });
  return a;
}

// A position is tested when it was drafted and all before it were accepted; the one behind the cut
// of a truncated step is unknown, not rejected.
std::vector<DepthAcceptance> acceptance_by_depth(const std::vector<StepCount>& histogram) {
  std::vector<DepthAcceptance> depths;
  int64_t steps = 0;
  for (const StepCount& h : histogram) {
    steps += h.steps;
    const int64_t tested = std::min(h.depth, h.accepted + (h.cut ? 0 : 1));
    if (static_cast<int64_t>(depths.size()) < tested) depths.resize(static_cast<size_t>(tested));
    for (int64_t d = 1; d <= tested; ++d) {
      depths[static_cast<size_t>(d - 1)].tested += h.steps;
      if (d <= h.accepted) depths[static_cast<size_t>(d - 1)].accepted += h.steps;
    }
  }
  for (DepthAcceptance& d : depths) {
    d.conditional = static_cast<double>(d.accepted) / static_cast<double>(d.tested);
    d.joint = static_cast<double>(d.accepted) / static_cast<double>(steps);
  }
  return depths;
}

std::optional<base::Interval> quality_interval(
    const std::map<int64_t, std::vector<double>>& by_prompt) {
  std::vector<double> means;
  bool binary = true;
  for (const auto& [prompt, values] : by_prompt) {
    means.push_back(base::mean(values));
    binary = binary && values.size() == 1 && (values[0] == 0 || values[0] == 1);
  }
  if (means.size() < 2) return std::nullopt;
  if (binary) return base::wilson_interval(base::mean(means), means.size(), 0.95);
  const auto t = base::t_interval(means, 0.95);
  return t ? std::optional(t->interval) : std::nullopt;
}

void add_difference(Quality& q, const std::map<int64_t, std::vector<double>>& by_prompt) {
  if (by_prompt.empty()) return;
  std::vector<double> means;
  for (const auto& [prompt, differences] : by_prompt) means.push_back(base::mean(differences));
  q.difference = base::mean(means);
  const auto t = base::t_interval(means, 0.95);
  if (t && t->interval.lo < t->interval.hi) q.difference_interval = t->interval;
}

std::map<std::string, Quality> pool_scores(const std::vector<Score>& scores) {
  struct Sum {
    Quality quality;
    double total = 0;
    std::map<int, std::vector<double>> by_sample;
    std::map<int64_t, std::vector<double>> by_prompt, differences;
  };
  std::map<std::string, Sum> sums;
  for (const Score& s : scores) {
    Sum& sum = sums[s.evaluator + "@" + s.version];
    Quality& q = sum.quality;
    q.version = s.version;
    ++q.statuses[s.status];
    q.suspicious += s.suspicious ? 1 : 0;
    q.unsandboxed += s.unsandboxed ? 1 : 0;
    if (!s.value) {
      ++q.unscored;
      continue;
    }
    ++q.n;
    sum.total += *s.value;
    sum.by_sample[s.sample].push_back(*s.value);
    sum.by_prompt[s.prompt].push_back(*s.value);
    if (s.control) {
      ++q.compared;
      q.better += *s.value > *s.control ? 1 : 0;
      q.worse += *s.value < *s.control ? 1 : 0;
      sum.differences[s.prompt].push_back(*s.value - *s.control);
    }
  }
  std::map<std::string, Quality> quality;
  for (auto& [name, sum] : sums) {
    Quality& q = sum.quality;
    // Where the machine was at fault for some answers, a mean over the others would be another
    // set's.
    if (std::any_of(q.statuses.begin(), q.statuses.end(),
                    [](const auto& status) { return machine_at_fault(status.first); })) {
      q.unscored += q.n;
      q.n = q.compared = q.better = q.worse = 0;
      quality[name] = q;
      continue;
    }
    if (q.n > 0) q.value = sum.total / static_cast<double>(q.n);
    q.interval = quality_interval(sum.by_prompt);
    std::vector<double> means;
    for (const auto& [sample, values] : sum.by_sample) means.push_back(base::mean(values));
    if (means.size() > 1) q.sd = base::sample_sd(means);
    q.differing = q.better + q.worse;
    add_difference(q, sum.differences);
    quality[name] = q;
  }
  return quality;
}

class Builder {
 public:
  Builder(const RunData& data, const Aggregates& aggregates, const ReportOptions& options)
      : data_(data),
        aggregates_(aggregates),
        estimator_(options.estimator),
        exclude_degenerate_(options.exclude_degenerate),
        bootstrap_(options.interval == IntervalKind::kBootstrap),
        resampling_{.seed = seed_of(data.run.key)} {
    for (const PromptInfo& p : data.prompts) task_of_[p.id] = p.task;
    for (const ArmInfo& a : data.arms) cells_[a.id] = cells_of(data, a.id);
  }

  // `tasks`: one, or all of them for the pooled row.
  ReportRow row(const ArmInfo& arm, const std::string& name, const std::set<std::string>& tasks) {
    ReportRow r;
    r.arm = arm;
    r.dataset = name;
    const auto keep = [&](int64_t prompt) { return tasks.contains(task_of_.at(prompt)); };
    auto own = cells_.at(arm.id);
    Counters counters;
    if (const ArmInfo* reference = data_.reference(arm); reference != nullptr) {
      auto base = cells_.at(reference->id);
      if (reference->id != arm.id) r.reference = reference->label;
      leave_loops(r, own, base, keep);
      const Pairing pairing = pair_with_reference(own, base, keep);
      counters = pairing.method;
      r.unpaired = pairing.unpaired;
      r.n_prompts = static_cast<int64_t>(pairing.prompts.size());
      add_speed(r, pairing);
    } else {
      std::set<int64_t> prompts;
      for (const auto& [cell, s] : own)
        if (keep(cell.first)) counters.add(*s), prompts.insert(cell.first);
      r.n_prompts = static_cast<int64_t>(prompts.size());
    }
    std::set<int> samples;
    for (const auto& [cell, s] : own)
      if (keep(cell.first)) {
        samples.insert(cell.second);
        r.repeats = std::max<int64_t>(r.repeats, s->n_repeats);
      }
    r.samples = static_cast<int64_t>(samples.size());
    add_counters(r, counters);
    add_bandwidth(r, counters);
    if (arm.drafts()) add_tau_interval(r, own, keep);
    add_aggregates(r, tasks);
    r.gpu = aggregates_.gpu.of(arm, data_.reference(arm), keep);
    return r;
  }

 private:
  std::optional<Estimate> headline(std::span<const PromptPair> p) const {
    auto estimate = speedup(p, estimator_);
    if (estimate && bootstrap_) estimate->interval = bootstrap_interval(p, estimator_, resampling_);
    return estimate;
  }

  // Counts answers that run in a loop, says what the speedup is without them, and takes them out of
  // both arms where that was asked for.
  template <typename Keep>
  void leave_loops(ReportRow& r, std::map<PromptSample, const SampleRow*>& own,
                   std::map<PromptSample, const SampleRow*>& base, const Keep& keep) const {
    for (const auto& [cell, s] : own) r.cells += keep(cell.first) && base.contains(cell);
    const std::set<PromptSample> loops = looping_cells(own, base, keep);
    r.degenerate = static_cast<int64_t>(loops.size());
    if (loops.empty()) return;
    auto own_sound = without(own, loops), base_sound = without(base, loops);
    if (const Pairing pairing = pair_with_reference(own_sound, base_sound, keep);
        !r.reference.empty())
      if (const auto estimate = headline(values_of(pairing.prompts))) {
        r.speedup_without_degenerate = estimate->value;
        r.speedup_without_degenerate_interval = estimate->interval;
      }
    if (!exclude_degenerate_) return;
    own = std::move(own_sound);
    base = std::move(base_sound);
  }

  // Of the weights: what target forwards must read, whatever else the time went into.
  void add_bandwidth(ReportRow& r, const Counters& c) const {
    const auto number = [&](const char* name) {
      const auto found = data_.run.environment.find(name);
      return found == data_.run.environment.end() ? 0.0
                                                  : std::strtod(found->second.c_str(), nullptr);
    };
    const double bytes = number("forward_bytes"), bandwidth = number("read_bandwidth");
    if (bytes > 0 && bandwidth > 0 && c.decode_ns > 0)
      r.bandwidth_share = 1e9 * bytes * c.target_forwards / c.decode_ns / bandwidth;
  }

  void add_speed(ReportRow& r, const Pairing& pairing) const {
    if (const auto why = explain(pairing.method, pairing.base)) {
      r.t_ratio = why->t_ratio;
      r.draft_share = why->draft_share;
      r.overhead = why->overhead;
      r.residual = why->residual;
    }
    if (r.reference.empty()) {  // compared with itself: no estimate, no interval
      if (pairing.method.decode_ns > 0) r.speedup = r.speedup_geo = 1;
      return;
    }
    const std::vector<PromptPair> pairs = values_of(pairing.prompts);
    if (const auto geo = speedup_geo(pairs)) {
      r.speedup_geo = geo->value;
      r.speedup_geo_interval = geo->interval;
    }
    if (const auto estimate = headline(pairs)) {
      r.speedup = estimate->value;
      r.speedup_interval = estimate->interval;
    }
    std::vector<double> per_sample;
    for (const auto& [sample, p] : pairing.by_sample)
      if (const auto estimate = speedup(p, estimator_)) per_sample.push_back(estimate->value);
    if (per_sample.size() > 1) {
      r.sample_mean = base::mean(per_sample);
      r.sample_sd = base::sample_sd(per_sample);
    }
  }

  template <typename Keep>
  void add_tau_interval(ReportRow& r, const std::map<PromptSample, const SampleRow*>& own,
                        const Keep& keep) const {
    std::map<int64_t, RatioTerm> by_prompt;
    for (const auto& [cell, s] : own)
      if (keep(cell.first)) {
        by_prompt[cell.first].numerator += s->emitted;
        by_prompt[cell.first].denominator += s->steps;
      }
    std::vector<RatioTerm> terms;
    for (const auto& [prompt, term] : by_prompt) terms.push_back(term);
    if (bootstrap_)
      r.tau_interval = bootstrap_interval(terms, resampling_);
    else if (const auto estimate = ratio_of_sums(terms))
      r.tau_interval = estimate->interval;
  }

  static void add_counters(ReportRow& r, const Counters& c) {
    r.steps = c.steps, r.drafted = c.drafted, r.drafted_depth = c.drafted_depth;
    r.accepted = c.accepted, r.emitted = c.emitted, r.target_forwards = c.target_forwards;
    r.rows = c.rows, r.undrafted = c.undrafted;
    r.tok_s = ratio(1e9 * c.n_decode, c.decode_ns);
    r.tau = ratio(c.emitted, c.steps);
    r.accepted_per_step = ratio(c.accepted, c.steps);
    r.de = ratio(c.emitted, c.target_forwards);
    r.rows_per_step = ratio(c.rows, c.steps);
    if (r.arm.drafts()) r.no_draft = ratio(c.undrafted, c.steps);
    r.alpha_draft = ratio(c.accepted, c.drafted);
    r.alpha_draft_depth = ratio(c.accepted, c.drafted_depth);
    r.alpha_share = ratio(c.accepted, c.emitted);
  }

  static void add_divergences(ReportRow& r, const Divergences& d) {
    r.asked = r.asked.value_or(0) + d.asked;
    r.differing += d.differing, r.near_ties += d.near_ties;
    if (d.largest_gap)
      r.largest_gap = std::max(r.largest_gap.value_or(*d.largest_gap), *d.largest_gap);
  }

  void add_aggregates(ReportRow& r, const std::set<std::string>& tasks) const {
    std::vector<Score> scores;
    std::vector<StepCount> histogram;
    std::map<std::pair<int64_t, int64_t>, NodeAcceptance> nodes;
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (const std::string& task : tasks) {
      const ArmTask key{r.arm.id, task};
      const RunCounts& c = aggregates_.counts;
      if (const auto it = c.generations.find(key); it != c.generations.end())
        r.generations += it->second.first, r.failed += it->second.second;
      if (const auto it = c.identity.find(key); it != c.identity.end())
        r.compared += it->second.first, r.identical += it->second.second;
      if (const auto it = aggregates_.scores.find(key); it != aggregates_.scores.end())
        append(scores, it->second);
      if (const auto it = c.steps.find(key); it != c.steps.end()) append(histogram, it->second);
      if (const auto it = c.nodes.find(key); it != c.nodes.end())
        for (const NodeAcceptance& n : it->second) {
          NodeAcceptance& sum = nodes[{n.depth, n.rank}];
          sum.depth = n.depth, sum.rank = n.rank;
          sum.tested += n.tested, sum.accepted += n.accepted;
        }
      if (const auto it = aggregates_.divergences.find(key); it != aggregates_.divergences.end())
        add_divergences(r, it->second);
    }
    if (replayed(r.arm)) r.identical = r.compared = 0;  // by force: it shows nothing
    r.identical_share = ratio(static_cast<double>(r.identical), static_cast<double>(r.compared));
    r.quality = pool_scores(scores);
    if (tasks.size() == 1)
      for (auto& [name, q] : r.quality)
        if (name == "pass@" + q.version)
          if (const auto it = aggregates_.pass_at.find({{r.arm.id, *tasks.begin()}, q.version});
              it != aggregates_.pass_at.end())
            q.pass_at = it->second;
    r.alpha_by_depth = acceptance_by_depth(histogram);
    for (const auto& [place, node] : nodes) r.acceptance_by_node.push_back(node);
  }

  const RunData& data_;
  const Aggregates& aggregates_;
  Estimator estimator_;
  bool exclude_degenerate_;
  bool bootstrap_;
  Resampling resampling_;
  std::unordered_map<int64_t, std::string> task_of_;
  std::map<int64_t, std::map<PromptSample, const SampleRow*>> cells_;
};

// What was asked for must be there wherever programs were judged at all.
void check_pass_k(const std::vector<ReportRow>& rows, const std::vector<int>& asked) {
  for (const ReportRow& r : rows)
    for (const auto& [name, q] : r.quality)
      for (const int k : asked)
        if (r.dataset != "all" && name == "pass@" + q.version && !q.pass_at.contains(k))
          throw base::usage_error(
              fmt::format("pass@{} of {} on {}: it needs {} samples of every problem, there are {}",
                          k, r.arm.label, r.dataset, k,
                          q.pass_at.empty() ? 0 : q.pass_at.rbegin()->first),
              fmt::format("measure with --samples {} and a temperature", k));
}

}  // namespace

Report build_report(const results::ResultStore& store, int64_t run_id,
                    const ReportOptions& options) {
  const RunData data = load_run(store, run_id);
  const ArmInfo* control = control_of(data.arms, options.control);
  const Aggregates aggregates = load_aggregates(store, data, control);
  Report report;
  if (control != nullptr) report.control = control->label;
  report.run = data.run;
  report.estimator = options.estimator;
  report.interval = options.interval;
  if (!options.pass_k.empty()) report.pass_k = options.pass_k;
  report.why = options.why;
  report.exclude_degenerate = options.exclude_degenerate;
  report.conditions = read_conditions(store, run_id);
  report.gpu_disturbances = aggregates.gpu.disturbances();
  if (options.parts) report.parts = speed_by_part(data, options.estimator);
  report.hidden_faults = aggregates.counts.hidden_faults;
  if (aggregates.counts.generations.empty())
    throw base::data_error(store.path(), fmt::format("run {}", run_id),
                           aggregates.counts.hidden_faults > 0
                               ? "holds only generations with planted faults"
                               : "has no generations yet",
                           "measure first: evalrun run");
  // What was measured, in the order of the prompts.
  std::set<std::string> measured;
  for (const auto& [key, count] : aggregates.counts.generations) measured.insert(key.second);
  std::vector<std::string> tasks;
  for (const PromptInfo& p : data.prompts)
    if (measured.contains(p.task) && std::find(tasks.begin(), tasks.end(), p.task) == tasks.end())
      tasks.push_back(p.task);
  std::vector<const ArmInfo*> arms;
  for (const ArmInfo& a : data.arms) arms.push_back(&a);
  std::stable_sort(arms.begin(), arms.end(),
                   [](const ArmInfo* a, const ArmInfo* b) { return a->lossy() < b->lossy(); });
  Builder builder(data, aggregates, options);
  const auto add = [&](const std::string& name, const std::set<std::string>& of) {
    for (const ArmInfo* arm : arms) {
      ReportRow row = builder.row(*arm, name, of);
      if (row.generations > 0) report.rows.push_back(std::move(row));
    }
  };
  for (const std::string& task : tasks) add(task, {task});
  if (tasks.size() > 1) add(kAll, measured);
  check_pass_k(report.rows, options.pass_k);
  return report;
}

int64_t require_run(const results::ResultStore& store, const std::string& name) {
  if (const auto id = store.find_run(name)) return *id;
  std::vector<std::string> known;
  store.query("SELECT id, label FROM run ORDER BY id DESC LIMIT 10", {}, [&](const Row& r) {
    known.push_back(r.text(1).empty() ? r.text(0) : fmt::format("{} ({})", r.text(0), r.text(1)));
    return true;
  });
  if (known.empty())
    throw base::data_error(store.path(), "", "holds no runs yet",
                           "measure first: evalrun run quick");
  std::string list;
  for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
  throw base::usage_error(fmt::format("no run '{}' in {}", name, store.path()),
                          fmt::format("newest runs, number (label): {}", list));
}

}  // namespace evalrun::reports
