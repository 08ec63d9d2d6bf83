#include "reports/report.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "reports/estimators.h"
#include "reports/pairing.h"

namespace evalrun::reports {

using results::Row;

namespace {

constexpr const char* kAll = "all";

std::optional<double> ratio(double numerator, double denominator) {
  return denominator > 0 ? std::optional(numerator / denominator) : std::nullopt;
}

// (arm id, task) -> what the store's views say; the pooled row adds tasks up.
using ArmTask = std::pair<int64_t, std::string>;

struct SampleScore {
  int sample = 0;
  std::string evaluator, version;
  double value = 0;
  int64_t n = 0, unscored = 0;
};
struct Histogram {  // of one (drafted depth, accepted) pair
  int64_t depth = 0, accepted = 0, steps = 0;
  bool cut = false;
};

struct Aggregates {
  std::map<ArmTask, std::pair<int64_t, int64_t>> counts;    // generations, failed
  std::map<ArmTask, std::pair<int64_t, int64_t>> identity;  // compared, identical
  std::map<ArmTask, std::vector<SampleScore>> scores;
  std::map<ArmTask, std::vector<Histogram>> histograms;
  int64_t hidden_faults = 0;
};

Aggregates load_aggregates(const results::ResultStore& store, int64_t run_id,
                           const std::vector<ArmInfo>& arms) {
  Aggregates a;
  store.query("SELECT arm_id, task, fault, generations, failed FROM v_count WHERE run_id = ?",
              {run_id}, [&](const Row& r) {
                if (r.text(2).empty())
                  a.counts[{r.integer(0), r.text(1)}] = {r.integer(3), r.integer(4)};
                else
                  a.hidden_faults += r.integer(3);
                return true;
              });
  store.query(
      "SELECT arm_id, task, compared, identical FROM v_identity WHERE run_id = ? AND fault = ''",
      {run_id}, [&](const Row& r) {
        a.identity[{r.integer(0), r.text(1)}] = {r.integer(2), r.integer(3)};
        return true;
      });
  store.query(
      "SELECT arm_id, task, sample, evaluator, version, value, n, unscored FROM v_quality_sample "
      "WHERE run_id = ? AND fault = ''",
      {run_id}, [&](const Row& r) {
        a.scores[{r.integer(0), r.text(1)}].push_back({static_cast<int>(r.integer(2)), r.text(3),
                                                       r.text(4), r.number(5), r.integer(6),
                                                       r.integer(7)});
        return true;
      });
  // The one query that reads every step: only where something can have been drafted.
  for (const ArmInfo& arm : arms) {
    if (arm.role != "method") continue;
    store.query(
        "SELECT task, drafted_depth, accepted, steps, cut FROM v_acceptance_histogram "
        "WHERE run_id = ? AND arm_id = ? AND fault = ''",
        {run_id, arm.id}, [&](const Row& r) {
          a.histograms[{arm.id, r.text(0)}].push_back(
              {r.integer(1), r.integer(2), r.integer(3), r.integer(4) != 0});
          return true;
        });
  }
  return a;
}

// A position is tested when it was drafted and all before it were accepted; the one behind the cut
// of a truncated step is unknown, not rejected.
std::vector<DepthAcceptance> acceptance_by_depth(const std::vector<Histogram>& histogram) {
  std::vector<DepthAcceptance> depths;
  int64_t steps = 0;
  for (const Histogram& h : histogram) {
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

std::map<std::string, Quality> pool_scores(const std::vector<SampleScore>& scores) {
  struct Sum {
    std::string version;
    double weighted = 0;
    int64_t n = 0, unscored = 0;
    std::map<int, std::pair<double, int64_t>> by_sample;
  };
  std::map<std::string, Sum> sums;
  for (const SampleScore& s : scores) {
    Sum& sum = sums[s.evaluator + "@" + s.version];
    sum.version = s.version;
    sum.weighted += s.value * static_cast<double>(s.n);
    sum.n += s.n, sum.unscored += s.unscored;
    sum.by_sample[s.sample].first += s.value * static_cast<double>(s.n);
    sum.by_sample[s.sample].second += s.n;
  }
  std::map<std::string, Quality> quality;
  for (const auto& [name, sum] : sums) {
    Quality q{.version = sum.version, .n = sum.n, .unscored = sum.unscored, .sd = std::nullopt};
    if (sum.n > 0) q.value = sum.weighted / static_cast<double>(sum.n);
    std::vector<double> means;
    for (const auto& [sample, part] : sum.by_sample)
      if (part.second > 0) means.push_back(part.first / static_cast<double>(part.second));
    if (means.size() > 1) q.sd = base::sample_sd(means);
    quality[name] = q;
  }
  return quality;
}

class Builder {
 public:
  Builder(const RunData& data, const Aggregates& aggregates, Estimator estimator)
      : data_(data), aggregates_(aggregates), estimator_(estimator), baseline_(data.baseline()) {
    for (const PromptInfo& p : data.prompts) task_of_[p.id] = p.task;
    for (const ArmInfo& a : data.arms) cells_[a.id] = cells_of(data, a.id);
  }

  // `tasks`: one, or all of them for the pooled row.
  ReportRow row(const ArmInfo& arm, const std::string& name, const std::set<std::string>& tasks) {
    ReportRow r;
    r.arm = arm;
    r.dataset = name;
    const auto keep = [&](int64_t prompt) { return tasks.contains(task_of_.at(prompt)); };
    const auto& own = cells_.at(arm.id);
    Counters counters;
    if (baseline_ != nullptr) {
      const Pairing pairing = pair_with_baseline(own, cells_.at(baseline_->id), keep);
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
    add_aggregates(r, tasks);
    return r;
  }

 private:
  void add_speed(ReportRow& r, const Pairing& pairing) const {
    if (const auto why = explain(pairing.method, pairing.base)) {
      r.t_ratio = why->t_ratio;
      r.draft_share = why->draft_share;
      r.overhead = why->overhead;
      r.residual = why->residual;
    }
    if (r.arm.id == baseline_->id) {  // compared with itself: no estimate, no interval
      if (pairing.method.decode_ns > 0) r.speedup = r.speedup_geo = 1;
      return;
    }
    const std::vector<PromptPair> pairs = values_of(pairing.prompts);
    if (const auto geo = speedup_geo(pairs)) {
      r.speedup_geo = geo->value;
      r.speedup_geo_interval = geo->interval;
    }
    const auto headline = [&](std::span<const PromptPair> p) {
      return estimator_ == Estimator::kGeo ? speedup_geo(p) : speedup_sum(p);
    };
    if (const auto estimate = headline(pairs)) {
      r.speedup = estimate->value;
      r.speedup_interval = estimate->interval;
    }
    std::vector<double> per_sample;
    for (const auto& [sample, p] : pairing.by_sample)
      if (const auto estimate = headline(p)) per_sample.push_back(estimate->value);
    if (per_sample.size() > 1) {
      r.sample_mean = base::mean(per_sample);
      r.sample_sd = base::sample_sd(per_sample);
    }
  }

  static void add_counters(ReportRow& r, const Counters& c) {
    r.steps = c.steps, r.drafted = c.drafted, r.drafted_depth = c.drafted_depth;
    r.accepted = c.accepted, r.emitted = c.emitted, r.target_forwards = c.target_forwards;
    r.tok_s = ratio(1e9 * c.n_decode, c.decode_ns);
    r.tau = ratio(c.emitted, c.steps);
    r.accepted_per_step = ratio(c.accepted, c.steps);
    r.de = ratio(c.emitted, c.target_forwards);
    r.alpha_draft = ratio(c.accepted, c.drafted);
    r.alpha_draft_depth = ratio(c.accepted, c.drafted_depth);
    r.alpha_share = ratio(c.accepted, c.emitted);
  }

  void add_aggregates(ReportRow& r, const std::set<std::string>& tasks) const {
    std::vector<SampleScore> scores;
    std::vector<Histogram> histogram;
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (const std::string& task : tasks) {
      const ArmTask key{r.arm.id, task};
      if (const auto it = aggregates_.counts.find(key); it != aggregates_.counts.end())
        r.generations += it->second.first, r.failed += it->second.second;
      if (const auto it = aggregates_.identity.find(key); it != aggregates_.identity.end())
        r.compared += it->second.first, r.identical += it->second.second;
      if (const auto it = aggregates_.scores.find(key); it != aggregates_.scores.end())
        append(scores, it->second);
      if (const auto it = aggregates_.histograms.find(key); it != aggregates_.histograms.end())
        append(histogram, it->second);
    }
    r.identical_share = ratio(static_cast<double>(r.identical), static_cast<double>(r.compared));
    r.quality = pool_scores(scores);
    r.alpha_by_depth = acceptance_by_depth(histogram);
  }

  const RunData& data_;
  const Aggregates& aggregates_;
  Estimator estimator_;
  const ArmInfo* baseline_;
  std::map<int64_t, std::string> task_of_;
  std::map<int64_t, std::map<Cell, const SampleRow*>> cells_;
};

}  // namespace

Report build_report(const results::ResultStore& store, int64_t run_id,
                    const ReportOptions& options) {
  const RunData data = load_run(store, run_id);
  const Aggregates aggregates = load_aggregates(store, run_id, data.arms);
  Report report;
  report.run = data.run;
  report.estimator = options.estimator;
  report.why = options.why;
  report.hidden_faults = aggregates.hidden_faults;
  if (aggregates.counts.empty())
    throw base::data_error(store.path(), fmt::format("run {}", run_id),
                           aggregates.hidden_faults > 0
                               ? "holds only generations with planted faults"
                               : "has no generations yet",
                           "measure first: evalrun run");
  // What was measured, in the order of the prompts.
  std::set<std::string> measured;
  for (const auto& [key, count] : aggregates.counts) measured.insert(key.second);
  std::vector<std::string> tasks;
  for (const PromptInfo& p : data.prompts)
    if (measured.contains(p.task) && std::find(tasks.begin(), tasks.end(), p.task) == tasks.end())
      tasks.push_back(p.task);
  std::vector<const ArmInfo*> arms;
  for (const ArmInfo& a : data.arms) arms.push_back(&a);
  std::stable_sort(arms.begin(), arms.end(), [](const ArmInfo* a, const ArmInfo* b) {
    return (a->lossless == "none") < (b->lossless == "none");
  });
  Builder builder(data, aggregates, options.estimator);
  const auto add = [&](const std::string& name, const std::set<std::string>& of) {
    for (const ArmInfo* arm : arms) {
      ReportRow row = builder.row(*arm, name, of);
      if (row.generations > 0) report.rows.push_back(std::move(row));
    }
  };
  for (const std::string& task : tasks) add(task, {task});
  if (tasks.size() > 1) add(kAll, measured);
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
