// The report for programs. Keys and columns: docs/json.md; later versions only add some.
#include <fmt/format.h>

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "reports/document/records.h"
#include "reports/figures/quotable.h"
#include "reports/figures/report.h"
#include "reports/format.h"
#include "reports/json_values.h"
#include "reports/table/flattered.h"
#include "reports/table/training_overlap.h"

namespace evalrun::reports {

namespace {

// Counters are whole numbers except between two repeats that differ.
Json counter(double v) { return v == std::floor(v) ? Json(static_cast<int64_t>(v)) : Json(v); }

Json depths(const ReportRow& r, double DepthAcceptance::*field) {
  Json list = Json::array();
  for (const DepthAcceptance& d : r.acceptance.by_depth) list.push_back(d.*field);
  return list;
}

Json nodes(const ReportRow& r) {
  Json list = Json::array();
  for (const NodeAcceptance& n : r.acceptance.by_node)
    list.push_back(
        {{"depth", n.depth}, {"rank", n.rank}, {"tested", n.tested}, {"accepted", n.accepted}});
  return list;
}

std::optional<base::Interval> behind(const ReportRow& r) {
  return r.ranking ? r.ranking->against_fastest_interval : std::nullopt;
}

void add_percentile_keys(const char* name, const std::optional<Percentiles>& p, bool with_p99,
                         Json& row) {
  row[fmt::format("{}_p50", name)] = p ? Json(p->p50) : Json(nullptr);
  row[fmt::format("{}_p95", name)] = p ? Json(p->p95) : Json(nullptr);
  if (with_p99) row[fmt::format("{}_p99", name)] = p ? Json(p->p99) : Json(nullptr);
}

void add_estimate_keys(const char* name, const std::optional<Estimate>& e, Json& row) {
  const auto interval = e ? e->interval : std::nullopt;
  row[name] = e ? Json(e->value) : Json(nullptr);
  row[fmt::format("{}_lo", name)] = json_lo(interval);
  row[fmt::format("{}_hi", name)] = json_hi(interval);
}

// A number within the measured sizes.
Json place_json(const std::optional<CurvePlace>& place) {
  return place && place->where == CurvePlace::Where::kInside ? Json(place->batch) : Json(nullptr);
}

Json lengths_json(const std::vector<LengthSpeed>& lengths) {
  Json list = Json::array();
  for (const LengthSpeed& of : lengths) {
    list.push_back({{"k", of.k}, {"tau", json_value(of.tau)}});
    add_estimate_keys("speedup", of.speedup, list.back());
  }
  return list;
}

// Of arms that other lengths are predicted from; null for the others.
void add_length_keys(const std::optional<DraftLengths>& lengths, Json& row) {
  const LengthsAt all = lengths ? lengths->at.front() : LengthsAt{};
  for (const auto& [name, list] : {std::pair("best_k_predicted", &all.predicted),
                                   std::pair("best_k_measured", &all.measured)}) {
    const LengthSpeed* best = best_length(*list);
    row[name] = best != nullptr ? Json(best->k) : Json(nullptr);
    row[fmt::format("{}_speedup", name)] =
        best != nullptr ? Json(best->speedup.value) : Json(nullptr);
  }
  row["draft_lengths"] = nullptr;
  if (!lengths) return;
  Json at = Json::array();
  for (const LengthsAt& of : lengths->at)
    at.push_back({{"context_above", of.context ? Json(of.context->above) : Json(nullptr)},
                  {"context_up_to", of.context ? Json(of.context->up_to) : Json(nullptr)},
                  {"n_prompts", of.prompts},
                  {"predicted", lengths_json(of.predicted)},
                  {"measured", lengths_json(of.measured)}});
  row["draft_lengths"] = {
      {"drafter", lengths->drafter},
      {"table_context", lengths->table_context > 0 ? Json(lengths->table_context) : Json(nullptr)},
      {"at", std::move(at)}};
}

// Of runs with a batch above 1.
void add_batch_keys(const ArmInfo& arm, const BatchFigures& b, Json& row) {
  row["batch_mode"] = batch_mode(arm);
  const auto interval = b.tok_s ? b.tok_s->interval : std::nullopt;
  row["tok_s_lo"] = json_lo(interval);
  row["tok_s_hi"] = json_hi(interval);
  add_estimate_keys("speedup_over_batch_1", b.over_alone, row);
  add_estimate_keys("predicted_speedup", b.predicted, row);
  row["members_per_step"] = json_value(b.members);
  row["batch_rows_per_step"] = json_value(b.rows);
  row["step_ms"] = json_value(b.step_ms);
  row["step_ratio"] = json_value(b.step_ratio);
  add_percentile_keys("ttft_ms", b.first_token_ms, false, row);
  add_percentile_keys("tpot_ms", b.per_token_ms, true, row);
  add_percentile_keys("itl_ms", b.gap_ms, true, row);
  row["longest_stall_ms"] = json_value(b.longest_gap_ms);
  row["identical_to_batch_1"] = json_value(b.same_as_alone.share);
  row["on_front"] = b.on_front;
  const Crossover x = b.crossover.value_or(Crossover{});
  row["crossover"] = b.crossover ? place_json(x.at) : Json(nullptr);
  row["crossover_lo"] = place_json(x.lo);
  row["crossover_hi"] = place_json(x.hi);
  row["crossover_text"] = b.crossover ? Json(x.text()) : Json(nullptr);
  row["crossings"] = b.crossover ? Json(x.crossings) : Json(nullptr);
  row["undrafted_steps"] = b.undrafted_steps;
  add_estimate_keys("undrafted_ratio", b.undrafted_ratio, row);
  const StepBesideCost c = b.beside_cost.value_or(StepBesideCost{});
  row["plain_step_ms_p50"] = b.beside_cost ? Json(c.step_ms) : Json(nullptr);
  row["row_cost_ms"] = b.beside_cost ? Json(c.table_ms) : Json(nullptr);
  row["step_over_row_cost"] = b.beside_cost ? Json(c.ratio()) : Json(nullptr);
  add_length_keys(b.lengths, row);
}

// Of runs of several machines.
void add_machine_keys(const RunInfo& run, const MachineFigures& m, Json& row) {
  row["machines"] = Json::array();
  for (const MachineFigure& f : m.each) {
    const MachineInfo& machine = run.machines[static_cast<size_t>(f.machine)];
    Json one = {{"machine", machine.name},
                {"hardware", machine.hardware()},
                {"n_prompts", f.prompts},
                {"tok_s", json_value(f.tok_s)},
                {"base_tok_s", json_value(f.base_tok_s)}};
    add_estimate_keys("speedup", f.speedup, one);
    one["t_ratio"] = json_value(f.t_ratio);
    row["machines"].push_back(std::move(one));
  }
  const MachineSpread s = m.spread.value_or(MachineSpread{});
  const auto tested = [&](double value) { return m.spread ? Json(value) : Json(nullptr); };
  row["machines_q"] = tested(s.q);
  row["machines_p"] = tested(s.p);
  row["machines_i2"] = tested(s.i2);
  row["machines_tau"] = tested(s.tau);
  add_estimate_keys("speedup_like_machines", m.like_these, row);
}

// How a server was asked; null for other arms.
Json endpoint_of(const ReportRow& r) {
  if (!is_server(r.arm)) return {};
  return {{"api", r.arm.params},
          {"api_verified", arm_setting(r.arm, "api_verified") == "yes"},
          {"prompts", arm_setting(r.arm, "prompts")},
          {"tokens", arm_setting(r.arm, "tokens")},
          {"prompt_cache", arm_setting(r.arm, "prompt_cache")},
          {"retries", r.server ? Json(r.server->retries) : Json()}};
}

Json row_of(const Report& report, const ReportRow& r) {
  Json quality = Json::object();
  for (const auto& [name, q] : r.quality) {
    quality[name] = {{"value", q.n > 0 ? Json(q.value) : Json(nullptr)}, {"n", q.n}};
    quality[name]["unscored"] = q.unscored;
    quality[name]["version"] = q.version;
    quality[name]["lo"] = json_lo(q.interval);
    quality[name]["hi"] = json_hi(q.interval);
    if (q.sd) quality[name]["sd"] = *q.sd;
    quality[name]["suspicious"] = q.suspicious;
    quality[name]["unsandboxed"] = q.unsandboxed;
    quality[name]["compared"] = q.compared;
    quality[name]["differing"] = q.differing;
    quality[name]["against"] = q.compared > 0 ? Json(report.control) : Json(nullptr);
    quality[name]["better"] = q.better;
    quality[name]["worse"] = q.worse;
    const ControlDifference d = q.difference.value_or(ControlDifference{});
    quality[name]["difference"] = q.difference ? Json(d.value) : Json(nullptr);
    quality[name]["difference_lo"] = json_lo(d.interval);
    quality[name]["difference_hi"] = json_hi(d.interval);
    quality[name]["difference_p"] = json_value(d.p);
    quality[name]["prompts_compared"] = d.prompts;
    quality[name]["prompts_differing"] = d.differing;
    quality[name]["statuses"] = q.statuses;
    Json pass_at = Json::object();
    for (const auto& [k, share] : q.pass_at) pass_at[std::to_string(k)] = share;
    if (!q.pass_at.empty()) quality[name]["pass_at"] = pass_at;
  }
  const ArmInfo& a = r.arm;
  const GpuUse gpu = r.gpu.value_or(GpuUse{});
  const Estimate* joules =
      r.energy && r.energy->joules_per_token ? &*r.energy->joules_per_token : nullptr;
  const Estimate* gain = r.energy && r.energy->gain ? &*r.energy->gain : nullptr;
  const std::optional<bool> may_be_quoted = quotable(report, r);
  const auto estimated = [](const Estimate* e) { return e ? Json(e->value) : Json(nullptr); };
  const auto interval = [](const Estimate* e) { return e ? e->interval : std::nullopt; };
  Json row{
      {"model", a.model},
      {"method", a.label},
      {"dataset", r.dataset},
      {"n_prompts", r.counts.prompts},
      {"samples", r.counts.samples},
      {"speedup", json_value(r.speed.speedup)},
      {"speedup_lo", json_lo(r.speed.interval)},
      {"speedup_hi", json_hi(r.speed.interval)},
      {"tok_s", json_value(r.speed.tok_s)},
      {"tau", json_value(r.acceptance.tau)},
      {"accepted_per_step", json_value(r.acceptance.accepted_per_step)},
      {"de", json_value(r.acceptance.de)},
      {"alpha_draft", json_value(r.acceptance.alpha_draft)},
      {"alpha_share", json_value(r.acceptance.alpha_share)},
      {"identical_share", json_value(r.same_tokens.share)},
      {"steps", counter(r.acceptance.steps)},
      {"emitted", counter(r.acceptance.emitted)},
      {"t_ratio", json_value(r.why.t_ratio)},
      {"draft_share", json_value(r.why.draft_share)},
      {"overhead", json_value(r.why.overhead)},
      {"residual", json_value(r.why.residual)},
      {"dtype", a.dtype},
      {"isa", a.isa},
      {"device", a.device},
      {"lossless", a.lossless},
      {"quality", quality},
      // Added to the keys that every version has:
      {"role", a.role},
      {"synthetic", synthetic(a)},
      {"params", a.params},
      {"estimator", to_string(report.estimator)},
      {"speedup_geo", json_value(r.speed.geo)},
      {"speedup_geo_lo", json_lo(r.speed.geo_interval)},
      {"speedup_geo_hi", json_hi(r.speed.geo_interval)},
      {"speedup_sample_mean", json_value(r.speed.sample_mean)},
      {"speedup_sample_sd", json_value(r.speed.sample_sd)},
      {"repeats", r.counts.repeats},
      {"generations", r.counts.generations},
      {"failed", r.counts.failed},
      {"unpaired", r.counts.unpaired},
      {"drafted", counter(r.acceptance.drafted)},
      {"drafted_depth", counter(r.acceptance.drafted_depth)},
      {"accepted", counter(r.acceptance.accepted)},
      {"target_forwards", counter(r.acceptance.target_forwards)},
      {"alpha_draft_depth", json_value(r.acceptance.alpha_draft_depth)},
      {"alpha_cond", depths(r, &DepthAcceptance::conditional)},
      {"alpha_joint", depths(r, &DepthAcceptance::joint)},
      {"identical", r.same_tokens.identical},
      {"compared", r.same_tokens.compared},
      {"threads", a.threads},
      {"batch", a.batch},
      {"max_new", a.max_new},
      {"ignore_eos", a.ignore_eos},
      {"temperature", a.temperature},
      {"top_k", a.top_k},
      {"top_p", a.top_p},
      {"weight_bytes", a.weight_bytes},
      {"extra_parameter_bytes", a.extra_parameter_bytes},
      {"kv_bytes", a.kv_bytes},
      {"peak_bytes", a.peak_bytes},
      {"run", report.run.id},
      {"run_label", report.run.label},
      {"suite", report.run.suite},
      {"commit", report.run.commit},
      {"no_draft", json_value(r.acceptance.no_draft)},
      {"rows_per_step", json_value(r.acceptance.rows_per_step)},
      {"undrafted", counter(r.acceptance.undrafted)},
      {"rows", counter(r.acceptance.rows)},
      {"acceptance_by_node", nodes(r)},
      {"tau_lo", json_lo(r.acceptance.tau_interval)},
      {"tau_hi", json_hi(r.acceptance.tau_interval)},
      {"certificate", a.certificate ? Json{{"outcome", a.certificate->outcome},
                                           {"proven", a.certificate->proven},
                                           {"shown", results::shown_by(*a.certificate)},
                                           {"created", a.certificate->created}}
                                    : Json()},
      {"endpoint", endpoint_of(r)},
      {"degenerate", r.loops.degenerate},
      {"cells", r.loops.cells},
      {"degenerate_left_out", report.exclude_degenerate},
      {"speedup_without_degenerate", json_value(r.loops.speedup_without)},
      {"speedup_without_degenerate_lo", json_lo(r.loops.interval_without)},
      {"speedup_without_degenerate_hi", json_hi(r.loops.interval_without)},
      {"replay_asked", r.replay ? Json(r.replay->asked) : Json(nullptr)},
      {"replay_differing", r.replay ? Json(r.replay->differing) : Json(nullptr)},
      {"replay_near_ties", r.replay ? Json(r.replay->near_ties) : Json(nullptr)},
      {"replay_largest_gap", r.replay ? json_value(r.replay->largest_gap) : Json(nullptr)},
      {"bandwidth_share", json_value(r.why.bandwidth)},
      {"quotable", may_be_quoted ? Json(*may_be_quoted) : Json(nullptr)},
      {"interval", report.interval == IntervalKind::kBootstrap ? "bootstrap" : "t"},
      {"scope", to_string(report.scope)},
      {"gpu_draft_ms", json_value(gpu.draft_ms)},
      {"gpu_verify_ms", json_value(gpu.verify_ms)},
      {"gpu_commit_ms", json_value(gpu.commit_ms)},
      {"gpu_host_ms", json_value(gpu.host_ms)},
      {"gpu_busy", json_value(gpu.busy)},
      {"joules_per_token", estimated(joules)},
      {"joules_per_token_lo", json_lo(interval(joules))},
      {"joules_per_token_hi", json_hi(interval(joules))},
      {"energy_gain", estimated(gain)},
      {"energy_gain_lo", json_lo(interval(gain))},
      {"energy_gain_hi", json_hi(interval(gain))},
      {"request_speedup", json_value(r.speed.request)},
      {"request_speedup_lo", json_lo(r.speed.request_interval)},
      {"request_speedup_hi", json_hi(r.speed.request_interval)},
      {"speedup_n_eff", r.speed.interval ? Json(r.speed.n_eff) : Json(nullptr)},
      {"tau_n_eff", r.acceptance.tau_interval ? Json(r.acceptance.tau_n_eff) : Json(nullptr)},
      {"may_be_fastest", r.ranking ? Json(r.ranking->may_be_fastest) : Json(nullptr)},
      {"against_fastest", r.ranking ? Json(r.ranking->against_fastest) : Json(nullptr)},
      {"against_fastest_lo", json_lo(behind(r))},
      {"against_fastest_hi", json_hi(behind(r))},
      {"rank_lo", r.ranking ? Json(r.ranking->lowest) : Json(nullptr)},
      {"rank_hi", r.ranking ? Json(r.ranking->highest) : Json(nullptr)},
      {"request_speedup_n_eff",
       r.speed.request_interval ? Json(r.speed.request_n_eff) : Json(nullptr)},
      {"first_token_ms", json_value(r.speed.first_token_ms)},
      {"first_token_ratio", json_value(r.speed.first_token_ratio)},
      {"first_token_ratio_lo", json_lo(r.speed.first_token_interval)},
      {"first_token_ratio_hi", json_hi(r.speed.first_token_interval)},
      {"first_token_ratio_n_eff",
       r.speed.first_token_interval ? Json(r.speed.first_token_n_eff) : Json(nullptr)},
      {"flatters", flattered_by(a).empty() ? Json(nullptr) : Json(flattered_by(a))},
      {"training_overlap", overlap_json(training_overlap(a))},
  };
  if (r.batch) add_batch_keys(a, *r.batch, row);
  if (r.machines) add_machine_keys(report.run, *r.machines, row);
  return row;
}

}  // namespace

std::string to_json(const Report& report) {
  Json rows = Json::array();
  for (const ReportRow& r : report.rows) rows.push_back(row_of(report, r));
  return rows.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Table report_records(const Report& report) {
  std::set<std::string> evaluators;
  for (const ReportRow& r : report.rows)
    for (const auto& [name, q] : r.quality) evaluators.insert(name);
  Json rows = Json::array();
  for (const ReportRow& r : report.rows) {
    Json flat = Json::object();
    const Json row = row_of(report, r);
    for (const auto& [key, v] : row.items()) {
      if (key == "acceptance_by_node" || key == "draft_lengths" || key == "endpoint" ||
          key == "machines")
        continue;
      if (key == "certificate") {
        flat[key] = v.is_null() ? Json() : v["outcome"];
      } else if (key == "training_overlap") {  // "gsm8k 3;mbpp 1"
        flat[key] = overlap_list(training_overlap(r.arm));
      } else if (key != "quality") {
        flat[key] = v;
      } else {
        for (const std::string& e : evaluators) {
          flat[fmt::format("quality_{}", e)] = v.contains(e) ? v[e]["value"] : Json();
          flat[fmt::format("quality_{}_n", e)] = v.contains(e) ? v[e]["n"] : Json();
        }
      }
    }
    rows.push_back(std::move(flat));
  }
  return records(rows);
}

}  // namespace evalrun::reports
