#include "reports/papers/cells.h"

#include <algorithm>

#include "reports/data/parameters.h"

namespace evalrun::reports {

bool names_arm(const std::string& pattern, const std::string& label) {
  const auto method = [](const std::string& s) { return s.substr(0, s.find(':')); };
  const auto parameters = [&](const std::string& s) {
    return parse_parameters(s.size() > method(s).size() ? s.substr(method(s).size() + 1) : "");
  };
  if (method(pattern) != method(label)) return false;
  const auto wanted = parameters(pattern), found = parameters(label);
  for (const auto& [name, value] : wanted)
    if (value != "*" && (!found.contains(name) || (value != "+" && found.at(name) != value)))
      return false;
  return std::all_of(found.begin(), found.end(), [&](const auto& parameter) {
    return wanted.contains(parameter.first) || parameter.first == "any_target";
  });
}

std::string model_of(const ArmInfo& arm) {
  return arm.model.substr(0, arm.model.find(" tuned by "));
}

std::string decoding_of(const ArmInfo& arm) { return arm.greedy() ? "greedy" : "sampled"; }

PaperCell measured_value(const ReportRow& r, const FormMetric& metric) {
  PaperCell cell;
  cell.n_prompts = r.counts.prompts;
  cell.n_eff = static_cast<double>(r.counts.prompts);
  const auto quality = [&](std::string_view evaluator) -> const Quality* {
    for (const auto& [name, q] : r.quality)
      if (q.n > 0 && name.starts_with(evaluator)) return &q;
    return nullptr;
  };
  if (metric.measured == "speedup") {
    cell.value = r.speed.speedup, cell.interval = r.speed.interval, cell.sd = r.speed.sample_sd;
    cell.n_eff = r.speed.n_eff;
  } else if (metric.measured == "tau") {
    cell.value = r.acceptance.tau, cell.interval = r.acceptance.tau_interval;
    cell.n_eff = r.acceptance.tau_n_eff;
  } else if (metric.measured == "accepted_per_step") {
    cell.value = r.acceptance.accepted_per_step;
  } else if (metric.measured == "alpha_share") {
    cell.value = r.acceptance.alpha_share;
  } else if (metric.measured == "de") {
    cell.value = r.acceptance.de;
  } else if (metric.measured == "tok_s") {
    cell.value = r.speed.tok_s;
  } else if (metric.measured == "rows_per_step") {
    cell.value = r.acceptance.rows_per_step;
  } else if (metric.against_control()) {
    if (const Quality* q = quality("mt_bench_judge@"); q != nullptr && q->compared > 0) {
      const AnswerShare& share = metric.measured == "win"    ? q->better_share
                                 : metric.measured == "lose" ? q->worse_share
                                                             : q->equal_share;
      cell.value = share.value, cell.interval = share.interval, cell.n_eff = share.n_eff;
    }
  } else if (metric.measured == "rougeL") {
    if (const Quality* q = quality("rougeL@"))
      cell.value = q->value, cell.interval = q->interval, cell.sd = q->sd;
  } else if (const Quality* q = quality("pass@")) {
    const int k = r.arm.greedy() ? 1 : 10;
    if (const auto found = q->pass_at.find(k); found != q->pass_at.end()) {
      cell.value = found->second;
      if (k == 1) cell.interval = q->interval;
    }
  }
  const double scale = metric.unit.empty() ? 1 : 100, shift = metric.unit == "gain" ? -100 : 0;
  const auto convert = [&](double& v) { v = scale * v + shift; };
  if (cell.value) convert(*cell.value);
  if (cell.interval) convert(cell.interval->lo), convert(cell.interval->hi);
  if (cell.sd) *cell.sd *= scale;
  return cell;
}

}  // namespace evalrun::reports
