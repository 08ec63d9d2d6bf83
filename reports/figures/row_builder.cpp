#include "reports/figures/row_builder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "reports/data/arm_tasks.h"

namespace evalrun::reports {

using results::Row;

namespace {

std::optional<double> ratio(double numerator, double denominator) {
  return denominator > 0 ? std::optional(numerator / denominator) : std::nullopt;
}

// What `by_task` holds of the arm, task by task.
template <typename T, typename F>
void for_tasks(const std::map<ArmTask, T>& by_task, const ArmInfo& arm,
               const std::set<std::string>& tasks, const F& use) {
  for (const std::string& task : tasks)
    if (const auto it = by_task.find({arm.id, task}); it != by_task.end()) use(it->second);
}

// All entries of the arm's lists.
template <typename T>
std::vector<T> joined(const std::map<ArmTask, std::vector<T>>& by_task, const ArmInfo& arm,
                      const std::set<std::string>& tasks) {
  std::vector<T> all;
  for_tasks(by_task, arm, tasks,
            [&](const std::vector<T>& part) { all.insert(all.end(), part.begin(), part.end()); });
  return all;
}

// An arm without reference has its own totals, and pairs with nothing.
PairColumns totals_of(const ArmCells& own) {
  PairColumns alone;
  for (const auto& [cell, s] : own) alone.method.add(*s);
  return alone;
}

int64_t prompts_in(const ArmCells& cells) {
  int64_t prompts = 0;
  const PromptSample* last = nullptr;
  for (const auto& [cell, s] : cells) {
    prompts += last == nullptr || last->first != cell.first;
    last = &cell;
  }
  return prompts;
}

SpeedReasons reasons(const PairColumns& pairs) {
  SpeedReasons r;
  if (const auto why = explain(pairs.method, pairs.base)) {
    r.t_ratio = why->t_ratio;
    r.draft_share = why->draft_share;
    r.overhead = why->overhead;
    r.residual = why->residual;
  }
  return r;
}

// A walk that ends at a leaf of a tree was asked nothing there. All children of a node on a walk
// are tested, so the first children count the walks that had any. They are counted before the stop
// rule cuts: what cut steps accepted later is taken off, the last question of each is not.
void leave_out_leaves(std::vector<DepthAcceptance>& depths,
                      const std::vector<NodeAcceptance>& nodes) {
  std::vector<int64_t> asked(depths.size()), passed(depths.size());
  for (const NodeAcceptance& node : nodes) {
    const auto at = static_cast<size_t>(node.depth - 1);
    if (at >= depths.size()) continue;
    if (node.rank == 0) asked[at] += node.tested;
    passed[at] += node.accepted;
  }
  // The deepest place holds all deeper ones.
  const size_t n = std::min(depths.size(), static_cast<size_t>(results::NodeCount::kDepths - 1));
  for (size_t at = 0; at < n; ++at) {
    DepthAcceptance& d = depths[at];
    const int64_t later = std::max<int64_t>(0, passed[at] - d.accepted);
    d.tested = std::clamp(asked[at] - later, d.accepted, d.tested);
  }
  while (!depths.empty() && depths.back().tested == 0) depths.pop_back();
}

// A position is tested when it was drafted and all before it were accepted; the one after the cut
// of a truncated step is unknown, not rejected.
std::vector<DepthAcceptance> acceptance_by_depth(const std::vector<StepCount>& histogram,
                                                 const std::vector<NodeAcceptance>& nodes) {
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
  if (!nodes.empty()) leave_out_leaves(depths, nodes);  // old files have none
  for (DepthAcceptance& d : depths) {
    d.conditional = static_cast<double>(d.accepted) / static_cast<double>(d.tested);
    d.joint = static_cast<double>(d.accepted) / static_cast<double>(steps);
  }
  return depths;
}

}  // namespace

Aggregates load_aggregates(const results::ResultStore& store, const RunData& data,
                           const ArmInfo* control, bool step_detail) {
  Aggregates a;
  if (step_detail) a.counts = count_run(store, data);
  a.quality = read_scores(store, data, control);
  a.gpu = GpuTotals(store, data);
  a.energy = EnergyTotals(store, data);
  a.servers = results::endpoint_totals(store, data.run.id);
  if (std::any_of(data.arms.begin(), data.arms.end(), replayed))
    store.query(
        "SELECT arm_id, task, asked, differing, near_ties, largest_gap FROM v_divergence "
        "WHERE run_id = ? AND fault = ''",
        {data.run.id}, [&](const Row& r) {
          a.replays[{r.integer(0), r.text(1)}] = {
              r.integer(2), r.integer(3), r.integer(4),
              r.is_null(5) ? std::nullopt : std::optional(r.number(5))};
          return true;
        });
  return a;
}

RowBuilder::RowBuilder(const RunData& data, const Aggregates& aggregates,
                       const ReportOptions& options)
    : data_(data),
      aggregates_(aggregates),
      estimator_(options.estimator),
      exclude_degenerate_(options.exclude_degenerate),
      bootstrap_(options.interval == IntervalKind::kBootstrap),
      resampling_{.seed = seed_of(data.run.key)},
      designs_(data.prompts, options.scope) {
  for (const PromptInfo& p : data.prompts) task_of_[p.id] = p.task;
  const ArmTasks places(data.arms, data.prompts);
  std::vector<ArmCells> parts(places.size());
  for (const ArmInfo& a : data.arms) {
    ArmCells& all = cells_[a.id] = cells_of(data, a.id);
    for (const auto& [cell, s] : all) parts[places.of(a.id, cell.first)][cell] = s;
  }
  cells_of_task_ = places.by_name(std::move(parts));
  for (const SampleRow& s : data.samples)
    if (s.degenerate) looping_.insert(s.arm_id);
}

ReportRow RowBuilder::row(const ArmInfo& arm, const std::string& name, const Tasks& tasks) const {
  ReportRow r;
  r.arm = arm;
  r.dataset = name;
  const ArmCells* own = &cells(arm, tasks);
  ArmCells sound, sound_base;
  const ArmInfo* reference = data_.reference(arm);
  PairColumns pairs;
  if (reference == nullptr) {
    pairs = totals_of(*own);
  } else {
    const bool against_itself = reference->id == arm.id;
    if (!against_itself) r.reference = reference->label;
    r.against_server = is_server(*reference);
    const ArmCells* base = &cells(*reference, tasks);
    std::set<PromptSample> looping;
    if (looping_.contains(arm.id) || looping_.contains(reference->id))
      looping = looping_cells(*own, *base);
    r.loops = loops(*own, *base, looping, against_itself, arm.batch);
    if (exclude_degenerate_) {
      sound = without(*own, looping), own = &sound;
      sound_base = without(*base, looping), base = &sound_base;
    }
    pairs = pair_columns(*own, *base, estimator_, arm.batch);
    r.speed = speed(pairs, against_itself);
    r.machines = machine_figures(data_, *own, *base, pairs, against_itself,
                                 designs_.of(pairs.prompts, pairs.batch));
    if (knows_steps(arm) && knows_steps(*reference)) r.why = reasons(pairs);
  }
  if (const auto server = aggregates_.servers.find(arm.id); server != aggregates_.servers.end())
    r.server = server->second;
  r.counts = counts(arm, *own, tasks);
  r.counts.prompts =
      reference == nullptr ? prompts_in(*own) : static_cast<int64_t>(pairs.prompts.size());
  r.counts.unpaired = pairs.unpaired;
  // Rates and times of several machines are theirs (MachineFigure), and in no sum.
  const bool one_machine = !data_.run.several_machines();
  if (one_machine) r.speed.tok_s = ratio(1e9 * pairs.method.n_decode, pairs.method.decode_ns);
  if (arm.batch == 1 && one_machine)
    r.speed.first_token_ms = ratio(pairs.method.first_token_ns, 1e6 * pairs.method.answers);
  r.acceptance = acceptance(arm, pairs.method, *own, tasks);
  if (arm.batch == 1 && one_machine && !is_server(arm)) r.why.bandwidth = bandwidth(pairs.method);
  r.same_tokens = same_tokens(arm, tasks);
  r.replay = replay(arm, tasks);
  const auto kept = [&](int64_t prompt) { return tasks.contains(task_of_.at(prompt)); };
  if (one_machine) r.gpu = aggregates_.gpu.of(arm, kept);
  r.energy = aggregates_.energy.of(arm, reference, kept, designs_);
  return r;
}

// Rows are of one data set or of all of them.
const ArmCells& RowBuilder::cells(const ArmInfo& arm, const Tasks& tasks) const {
  if (tasks.size() != 1) return cells_.at(arm.id);
  static const ArmCells kNone;
  const auto found = cells_of_task_.find({arm.id, *tasks.begin()});
  return found == cells_of_task_.end() ? kNone : found->second;
}

std::optional<Estimate> RowBuilder::headline(const PairColumns& pairs,
                                             std::span<const PromptPair> column) const {
  const Design& design = designs_.of(pairs.prompts, pairs.batch);
  auto estimate = speedup(column, estimator_, design);
  if (estimate && bootstrap_)
    estimate->interval = bootstrap_interval(column, estimator_, resampling_, design);
  return estimate;
}

RowCounts RowBuilder::counts(const ArmInfo& arm, const ArmCells& own, const Tasks& tasks) const {
  RowCounts c;
  std::set<int> samples;
  const PromptSample* last = nullptr;
  for (const auto& [cell, s] : own) {
    if (last == nullptr || last->second != cell.second) samples.insert(cell.second);
    last = &cell;
    c.repeats = std::max<int64_t>(c.repeats, s->n_repeats);
  }
  c.samples = static_cast<int64_t>(samples.size());
  for_tasks(data_.generations.counts, arm, tasks,
            [&](const auto& n) { c.generations += n.first, c.failed += n.second; });
  return c;
}

namespace {

// Whether ratio of sums and geometric mean lie outside each other's interval.
bool apart(const SpeedFigures& f) {
  const auto outside = [](const std::optional<double>& v, const std::optional<base::Interval>& i) {
    return v && i && (*v < i->lo || *v > i->hi);
  };
  return outside(f.geo, f.interval) && outside(f.speedup, f.geo_interval);
}

}  // namespace

SpeedFigures RowBuilder::speed(const PairColumns& pairs, bool against_itself) const {
  SpeedFigures f;
  const bool has_waits = pairs.batch == 1;  // of others only shares are here
  if (against_itself) {                     // no estimate, no interval
    if (pairs.method.decode_ns > 0) f.speedup = f.geo = f.request = 1;
    if (has_waits && pairs.method.first_token_ns > 0) f.first_token_ratio = 1;
    return f;
  }
  if (const auto geo = speedup_geo(pairs.decode, designs_.of(pairs.prompts, pairs.batch))) {
    f.geo = geo->value;
    f.geo_interval = geo->interval;
  }
  if (const auto estimate = headline(pairs, pairs.headline())) {
    f.speedup = estimate->value;
    f.interval = estimate->interval;
    f.n_eff = estimate->n_eff;
  }
  if (estimator_ == Estimator::kSum && apart(f)) f.gap = gap_of_estimators(pairs.decode);
  if (const auto request = headline(pairs, pairs.requests)) {
    f.request = request->value;
    f.request_interval = request->interval;
    f.request_n_eff = request->n_eff;
  }
  // A ratio of times: the inverse of that of the speeds.
  if (const auto first = has_waits ? headline(pairs, pairs.first_tokens) : std::nullopt) {
    f.first_token_ratio = 1 / first->value;
    if (first->interval)
      f.first_token_interval = base::Interval{1 / first->interval->hi, 1 / first->interval->lo};
    f.first_token_n_eff = first->n_eff;
  }
  std::vector<double> per_sample;
  for (const auto& [sample, of] : pairs.by_sample)
    if (const auto value = speedup_value(of, estimator_)) per_sample.push_back(*value);
  if (per_sample.size() > 1) {
    f.sample_mean = base::mean(per_sample);
    f.sample_sd = base::sample_sd(per_sample);
  }
  return f;
}

Acceptance RowBuilder::acceptance(const ArmInfo& arm, const Counters& c, const ArmCells& own,
                                  const Tasks& tasks) const {
  Acceptance a;
  if (!knows_steps(arm)) {
    a.emitted = c.emitted;
    return a;
  }
  a.steps = c.steps, a.drafted = c.drafted, a.drafted_depth = c.drafted_depth;
  a.accepted = c.accepted, a.emitted = c.emitted, a.target_forwards = c.target_forwards;
  a.rows = c.rows, a.undrafted = c.undrafted;
  a.tau = ratio(c.emitted, c.steps);
  a.accepted_per_step = ratio(c.accepted, c.steps);
  a.de = ratio(c.emitted, c.target_forwards);
  a.rows_per_step = ratio(c.rows, c.steps);
  if (arm.drafts()) {
    if (const auto estimate = tau(arm, own); estimate && estimate->interval)
      a.tau_interval = estimate->interval, a.tau_n_eff = estimate->n_eff;
    a.no_draft = ratio(c.undrafted, c.steps);
  }
  a.alpha_draft = ratio(c.accepted, c.drafted);
  a.alpha_draft_depth = ratio(c.accepted, c.drafted_depth);
  a.alpha_share = ratio(c.accepted, c.emitted);
  a.by_node = acceptance_by_node(arm, tasks);
  a.by_depth = acceptance_by_depth(joined(aggregates_.counts.steps, arm, tasks), a.by_node);
  if (is_server(arm)) {  // it tells of no row, and of no step by itself
    a.rows_per_step = a.no_draft = std::nullopt;
    a.by_depth.clear();
  }
  return a;
}

bool RowBuilder::knows_steps(const ArmInfo& arm) const {
  if (!is_server(arm)) return true;
  const auto totals = aggregates_.servers.find(arm.id);
  return totals != aggregates_.servers.end() && totals->second.with_steps == totals->second.turns;
}

std::optional<Estimate> RowBuilder::tau(const ArmInfo& arm, const ArmCells& own) const {
  std::vector<RatioTerm> terms;
  std::vector<int64_t> prompts;
  terms.reserve(own.size()), prompts.reserve(own.size());
  for (const auto& [cell, s] : own) {
    if (prompts.empty() || prompts.back() != cell.first)
      prompts.push_back(cell.first), terms.emplace_back();
    terms.back().numerator += s->emitted, terms.back().denominator += s->steps;
  }
  const Design& design = designs_.of(prompts, arm.batch);
  auto estimate = ratio_of_sums(terms, design);
  if (estimate && bootstrap_) estimate->interval = bootstrap_interval(terms, resampling_, design);
  return estimate;
}

std::vector<NodeAcceptance> RowBuilder::acceptance_by_node(const ArmInfo& arm,
                                                           const Tasks& tasks) const {
  std::map<std::pair<int64_t, int64_t>, NodeAcceptance> nodes;
  for (const NodeAcceptance& n : joined(aggregates_.counts.nodes, arm, tasks)) {
    NodeAcceptance& sum = nodes[{n.depth, n.rank}];
    sum.depth = n.depth, sum.rank = n.rank;
    sum.tested += n.tested, sum.accepted += n.accepted;
  }
  std::vector<NodeAcceptance> list;
  for (const auto& [place, node] : nodes) list.push_back(node);
  return list;
}

// Of the weights: what target forwards must read, whatever else the time went into.
std::optional<double> RowBuilder::bandwidth(const Counters& c) const {
  const auto number = [&](const char* name) {
    const auto found = data_.run.environment.find(name);
    return found == data_.run.environment.end() ? 0.0 : std::strtod(found->second.c_str(), nullptr);
  };
  const double bytes = number("forward_bytes"), memory = number("read_bandwidth");
  if (bytes <= 0 || memory <= 0 || c.decode_ns <= 0) return std::nullopt;
  return 1e9 * bytes * c.target_forwards / c.decode_ns / memory;
}

SameTokens RowBuilder::same_tokens(const ArmInfo& arm, const Tasks& tasks) const {
  SameTokens s;
  if (replayed(arm)) return s;  // by force: it shows nothing
  for_tasks(data_.generations.identity, arm, tasks,
            [&](const auto& n) { s.compared += n.first, s.identical += n.second; });
  s.share = ratio(static_cast<double>(s.identical), static_cast<double>(s.compared));
  return s;
}

void RowBuilder::score(std::span<ReportRow> rows, const Tasks& tasks) const {
  std::vector<const ArmInfo*> arms;
  for (const ReportRow& r : rows) arms.push_back(&r.arm);
  auto pooled = pool_scores(aggregates_.quality, arms, tasks, designs_, resampling_.seed);
  for (size_t a = 0; a < rows.size(); ++a) {
    rows[a].quality = std::move(pooled[a]);
    if (tasks.size() != 1) continue;
    for (auto& [name, q] : rows[a].quality) {
      if (name != "pass@" + q.version) continue;
      const auto& pass_at = aggregates_.quality.pass_at;
      const auto it = pass_at.find({{rows[a].arm.id, *tasks.begin()}, q.version});
      if (it != pass_at.end()) q.pass_at = it->second;
    }
  }
}

LoopCounts RowBuilder::loops(const ArmCells& own, const ArmCells& base,
                             const std::set<PromptSample>& looping, bool against_itself,
                             int64_t batch) const {
  LoopCounts l;
  l.cells = common_cells(own, base);
  l.degenerate = static_cast<int64_t>(looping.size());
  if (looping.empty() || against_itself) return l;
  const PairColumns sound =
      pair_columns(without(own, looping), without(base, looping), estimator_, batch);
  if (const auto estimate = headline(sound, sound.headline())) {
    l.speedup_without = estimate->value;
    l.interval_without = estimate->interval;
    l.n_eff_without = estimate->n_eff;
  }
  return l;
}

std::optional<ReplayCounts> RowBuilder::replay(const ArmInfo& arm, const Tasks& tasks) const {
  std::optional<ReplayCounts> sum;
  for_tasks(aggregates_.replays, arm, tasks, [&](const ReplayCounts& r) {
    if (!sum) sum.emplace();
    sum->asked += r.asked, sum->differing += r.differing, sum->near_ties += r.near_ties;
    if (r.largest_gap)
      sum->largest_gap = std::max(sum->largest_gap.value_or(*r.largest_gap), *r.largest_gap);
  });
  return sum;
}

namespace {

std::optional<base::Interval> factors(const std::optional<base::Interval>& logs) {
  if (!logs) return std::nullopt;
  return base::Interval{std::exp(logs->lo), std::exp(logs->hi)};
}

// Plain decoding of the baseline's model and batch, and the methods that gave its tokens where they
// had to.
bool may_be_ranked(const ReportRow& r, const ArmInfo& baseline) {
  if (r.arm.id == baseline.id) return true;
  if (is_server(r.arm)) return false;
  const bool other_tokens =
      promises_tokens(r.arm) && r.same_tokens.share && *r.same_tokens.share < 1;
  return r.arm.role == "method" && standing(r.arm) == Standing::kLossless && !other_tokens &&
         r.reference == baseline.label && r.arm.model_hash == baseline.model_hash;
}

}  // namespace

void RowBuilder::rank(std::span<ReportRow> rows, const Tasks& tasks) const {
  for (const ArmInfo& arm : data_.arms)
    if (arm.role == "baseline" && data_.reference(arm) == &arm) rank_beside(arm, rows, tasks);
}

void RowBuilder::rank_beside(const ArmInfo& baseline, std::span<ReportRow> rows,
                             const Tasks& tasks) const {
  std::vector<ReportRow*> ranked;
  std::vector<const ArmCells*> cells_of_ranked;
  for (ReportRow& r : rows)
    if (may_be_ranked(r, baseline)) {
      ranked.push_back(&r);
      cells_of_ranked.push_back(&cells(r.arm, tasks));
    }
  if (ranked.size() < 2) return;
  // By prompt, sums over the samples that all have; in the order of prompts.
  std::vector<std::vector<TokensAndTime>> arms(ranked.size());
  std::vector<int64_t> ids;
  const size_t most = cells_of_ranked.front()->size();
  for (auto& of_arm : arms) of_arm.reserve(most);
  ids.reserve(most);
  std::vector<ArmCells::const_iterator> at;
  for (const ArmCells* of : cells_of_ranked) at.push_back(of->begin());
  std::vector<const SampleRow*> samples;
  for (const auto& [cell, unused] : *cells_of_ranked.front()) {
    samples.clear();
    for (size_t a = 0; a < ranked.size(); ++a) {
      const auto end = cells_of_ranked[a]->end();
      while (at[a] != end && at[a]->first < cell) ++at[a];
      if (at[a] != end && at[a]->first == cell) samples.push_back(at[a]->second);
    }
    if (samples.size() < ranked.size()) continue;
    if (exclude_degenerate_ && std::any_of(samples.begin(), samples.end(),
                                           [](const SampleRow* s) { return s->degenerate; }))
      continue;
    if (ids.empty() || ids.back() != cell.first) {
      ids.push_back(cell.first);
      for (auto& of_arm : arms) of_arm.emplace_back();
    }
    for (size_t a = 0; a < samples.size(); ++a) {
      const SampleRow& s = *samples[a];
      const bool whole = estimator_ == Estimator::kLegacy;  // as PairColumns::headline()
      const double stops = ranked[a]->arm.id == baseline.id ? s.stop_tokens : 0;
      arms[a].back().tokens += whole ? s.n_tokens - stops : s.n_decode;
      arms[a].back().ns += whole ? s.request_ns() : s.decode_ns;
    }
  }
  const auto best =
      best_set(arms, estimator_, resampling_.seed, 0.95, designs_.of(ids, baseline.batch));
  for (size_t a = 0; best && a < ranked.size(); ++a)
    ranked[a]->ranking = Ranking{.fastest = a == best->fastest,
                                 .may_be_fastest = best->member[a],
                                 .n = best->n,
                                 .n_eff = best->n_eff,
                                 .against_fastest = std::exp(best->ranks[a].log_ratio),
                                 .against_fastest_interval = factors(best->ranks[a].behind),
                                 .lowest = best->ranks[a].lowest,
                                 .highest = best->ranks[a].highest};
}

}  // namespace evalrun::reports
