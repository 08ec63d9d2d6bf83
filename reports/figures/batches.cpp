#include "reports/figures/batches.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace evalrun::reports {

namespace {

std::optional<double> mean_of(double sum, double n) {
  return n > 0 ? std::optional(sum / n) : std::nullopt;
}

// Rows of a method at all its batch sizes; the A/A arms are of none.
std::map<std::string, std::vector<ReportRow*>> rows_by_method(std::span<ReportRow> rows) {
  std::map<std::string, std::vector<ReportRow*>> methods;
  for (ReportRow& r : rows)
    if (r.arm.drafts()) methods[label_without_batch(r.arm)].push_back(&r);
  for (auto& [label, sizes] : methods)
    std::stable_sort(sizes.begin(), sizes.end(), [](const ReportRow* a, const ReportRow* b) {
      return a->arm.batch < b->arm.batch;
    });
  return methods;
}

// Arms that no other beats in both tokens per second and time per token. Methods that are not
// lossless, and synthetic acceptance, are ranked with none of the others.
void mark_front(std::span<ReportRow> rows) {
  std::vector<ReportRow*> ranked;
  for (ReportRow& r : rows)
    if (r.arm.role != "aa" && standing(r.arm) == Standing::kLossless && r.batch->tok_s &&
        r.batch->per_token_ms)
      ranked.push_back(&r);
  const auto beats = [](const BatchFigures& a, const BatchFigures& b) {
    const double more = a.tok_s->value - b.tok_s->value;
    const double longer = a.per_token_ms->p50 - b.per_token_ms->p50;
    return more >= 0 && longer <= 0 && (more > 0 || longer < 0);
  };
  for (ReportRow* r : ranked)
    r->batch->on_front = std::none_of(ranked.begin(), ranked.end(), [&](const ReportRow* other) {
      return beats(*other->batch, *r->batch);
    });
}

// Rates and times of several machines are in no sum.
void leave_out_times(BatchFigures& f) {
  f.tok_s.reset();
  f.step_ms = f.step_ratio = f.longest_gap_ms = std::nullopt;
  f.beside_cost.reset();
  f.first_token_ms = f.per_token_ms = f.gap_ms = std::nullopt;
}

}  // namespace

BatchBuilder::BatchBuilder(const results::ResultStore& store, const RunData& data,
                           const ReportOptions& options)
    : data_(data),
      designs_(data.prompts, options.scope),
      sources_{.store = store, .run = data},
      measures_(store, data),
      lengths_(sources_, designs_, cells_, measures_.contexts()) {
  // The steps of several machines have no common T(n), so nothing is predicted from them.
  if (options.row_times && !data.run.several_machines())
    sources_.tables = options.row_times(data.run);
  for (const PromptInfo& p : data.prompts) task_of_[p.id] = p.task;
  for (const ArmInfo& a : data.arms) cells_[a.id] = cells_of(data, a.id);
}

void BatchBuilder::add(std::span<ReportRow> rows, const Tasks& tasks) {
  for (ReportRow& r : rows) r.batch = figures(r.arm, tasks);
  for (const auto& [label, sizes] : rows_by_method(rows)) {
    const std::optional<Crossover> pays_up_to = crossover_of(sizes, tasks);
    for (ReportRow* r : sizes) r->batch->crossover = pays_up_to;
    if (sources_.tables) predict(sizes, tasks);
  }
  std::set<int64_t> prompts;
  for (const auto& [id, task] : task_of_)
    if (tasks.contains(task)) prompts.insert(id);
  std::map<int64_t, DraftLengths> lengths;
  if (!data_.run.several_machines()) lengths = lengths_.lengths(prompts);
  for (ReportRow& r : rows)
    if (const auto of = lengths.find(r.arm.id); of != lengths.end()) r.batch->lengths = of->second;
  mark_front(rows);
}

BatchFigures BatchBuilder::figures(const ArmInfo& arm, const Tasks& tasks) const {
  BatchFigures f;
  f.tok_s = tok_s(arm, tasks);
  f.over_alone = over_alone(arm, tasks);
  const BatchMeasures own = measures_.of(arm, tasks);
  f.members = mean_of(own.members, own.steps);
  f.rows = mean_of(own.rows, own.steps);
  f.step_ms = mean_of(own.full_ms, own.full_steps);
  if (const ArmInfo* reference = data_.reference(arm); reference != nullptr && f.step_ms) {
    const BatchMeasures plain = measures_.of(*reference, tasks);
    f.step_ratio = mean_of(*f.step_ms * plain.full_steps, plain.full_ms);
  }
  f.beside_cost = beside_cost(arm, own);
  add_undrafted(arm, tasks, f);
  f.first_token_ms = percentiles(own.first_tokens);
  f.per_token_ms = percentiles(own.per_token);
  f.gap_ms = percentiles(own.gaps);
  if (!own.gaps.empty()) f.longest_gap_ms = own.longest_gap;
  for (const std::string& task : tasks)
    if (const auto found = data_.generations.identity_alone.find({arm.id, task});
        found != data_.generations.identity_alone.end()) {
      f.same_as_alone.compared += found->second.first;
      f.same_as_alone.identical += found->second.second;
    }
  f.same_as_alone.share = mean_of(static_cast<double>(f.same_as_alone.identical),
                                  static_cast<double>(f.same_as_alone.compared));
  if (data_.run.several_machines()) leave_out_times(f);
  return f;
}

std::optional<Estimate> BatchBuilder::tok_s(const ArmInfo& arm, const Tasks& tasks) const {
  std::vector<RatioTerm> terms;
  std::vector<int64_t> prompts;
  for (const auto& [cell, s] : cells(arm)) {
    if (!tasks.contains(task_of_.at(cell.first))) continue;
    if (prompts.empty() || prompts.back() != cell.first)
      prompts.push_back(cell.first), terms.emplace_back();
    terms.back().numerator += s->n_decode, terms.back().denominator += s->decode_ns / 1e9;
  }
  return ratio_of_sums(terms, designs_.of(prompts, arm.batch));
}

std::optional<StepBesideCost> BatchBuilder::beside_cost(const ArmInfo& arm,
                                                        const BatchMeasures& own) const {
  const std::optional<Percentiles> step = percentiles(own.plain_steps);
  if (!sources_.tables || !step) return std::nullopt;
  const int sequences = static_cast<int>(arm.batch);
  return StepBesideCost{.step_ms = step->p50,
                        .table_ms = sources_.tables.of(sequences)(1),
                        .own_table = sequences == 1 || sources_.tables.batches.contains(sequences)};
}

void BatchBuilder::add_undrafted(const ArmInfo& arm, const Tasks& tasks, BatchFigures& f) const {
  std::vector<RatioTerm> terms;
  std::vector<int64_t> prompts;
  const std::map<int64_t, double> scales = data_.time_scales();
  for (const auto& [prompt, times] : measures_.undrafted(arm)) {
    if (!tasks.contains(task_of_.at(prompt))) continue;
    prompts.push_back(prompt);
    const double scale = scales.empty() ? 1 : scales.at(prompt);
    terms.push_back({.numerator = scale * times.ms, .denominator = scale * times.plain_ms});
    f.undrafted_steps += times.steps;
  }
  if (!prompts.empty()) f.undrafted_ratio = ratio_of_sums(terms, designs_.of(prompts, arm.batch));
}

std::optional<Estimate> BatchBuilder::over_alone(const ArmInfo& arm, const Tasks& tasks) const {
  const ArmInfo* alone = data_.reference_alone(arm);
  if (alone == nullptr || alone->id == arm.id) return std::nullopt;
  const Pairing pairs = pair_with_reference(
      cells(arm), cells(*alone), [&](int64_t id) { return tasks.contains(task_of_.at(id)); });
  std::vector<int64_t> prompts;
  for (const auto& [id, pair] : pairs.prompts) prompts.push_back(id);
  return speedup_sum(values_of(pairs.prompts), designs_.of(prompts, arm.batch));
}

std::optional<Crossover> BatchBuilder::crossover_of(std::span<ReportRow* const> sizes,
                                                    const Tasks& tasks) const {
  std::vector<PromptPairs> pairs;
  for (const ReportRow* r : sizes) {
    const ArmInfo* reference = data_.reference(r->arm);
    if (reference == nullptr) return std::nullopt;
    pairs.push_back(pair_with_reference(cells(r->arm), cells(*reference), [&](int64_t id) {
                      return tasks.contains(task_of_.at(id));
                    }).prompts);
  }
  if (pairs.empty()) return std::nullopt;
  // Of prompts that all sizes have: an unfinished run lacks some.
  std::vector<int64_t> prompts;
  for (const auto& [id, pair] : pairs.front()) {
    const int64_t prompt = id;
    if (std::all_of(pairs.begin(), pairs.end(),
                    [&](const PromptPairs& of) { return of.contains(prompt); }))
      prompts.push_back(prompt);
  }
  std::vector<SpeedupAtBatch> curve;
  for (size_t i = 0; i < sizes.size(); ++i) {
    curve.push_back({.batch = sizes[i]->arm.batch, .pairs = {}});
    for (const int64_t id : prompts) curve.back().pairs.push_back(pairs[i].at(id));
  }
  return crossover(curve, prompts, designs_);
}

void BatchBuilder::predict(std::span<ReportRow* const> sizes, const Tasks& tasks) const {
  const ArmInfo& alone = sizes.front()->arm;
  if (alone.batch != 1) return;
  PredictSources sources = sources_;
  std::set<std::string> keys;
  for (const PromptInfo& p : data_.prompts)
    if (tasks.contains(p.task)) keys.insert(p.key);
  sources.prompts = [&](const std::string& key) { return keys.contains(key); };
  const ArmInfo* reference = data_.reference(alone);
  if (!why_not_predicted(sources, alone).empty() ||
      pair_with_reference(cells(alone), cells(*reference), [&](int64_t id) {
        return tasks.contains(task_of_.at(id));
      }).method.steps <= 0)
    return;
  const Predictor predictor(sources, alone);
  for (ReportRow* r : sizes)
    if (r->arm.batch > 1)
      r->batch->predicted = predictor.predict({}, static_cast<int>(r->arm.batch)).speedup;
}

}  // namespace evalrun::reports
