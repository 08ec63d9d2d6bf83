#include "reports/table/arm_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/units.h"
#include "reports/format.h"
#include "reports/table/metric_glossary.h"

namespace evalrun::reports {

std::vector<const ArmInfo*> arms_of(const Report& report) {
  std::vector<const ArmInfo*> arms;
  for (const ReportRow& r : report.rows)
    if (r.arm.role != "aa" && std::none_of(arms.begin(), arms.end(), [&](const ArmInfo* known) {
          return known->id == r.arm.id;
        }))
      arms.push_back(&r.arm);
  return arms;
}

namespace {

std::string bytes_text(int64_t bytes) { return bytes > 0 ? base::format_bytes(bytes) : "-"; }

}  // namespace

Table memory_table(const Report& report) {
  Table t{.columns = {{.name = "method", .words = true},
                      metric_column("weights", "weight_bytes"),
                      metric_column("extra parameters", "extra_parameter_bytes"),
                      metric_column("KV", "kv_bytes"),
                      metric_column("peak memory", "peak_bytes")}};
  for (const ArmInfo* a : arms_of(report))
    t.rows.push_back({a->label, bytes_text(a->weight_bytes), bytes_text(a->extra_parameter_bytes),
                      bytes_text(a->kv_bytes), bytes_text(a->peak_bytes)});
  t.caption =
      "Memory: weights of the target, what the method keeps beside it (adapter, draft model, "
      "datastore), keys and values, most memory of the process.";
  t.label = "memory";
  return t;
}

Table gpu_table(const Report& report) {
  Table t{.columns = {{.name = "method", .words = true},
                      metric_column("draft ms", "gpu_draft_ms"),
                      metric_column("verify ms", "gpu_verify_ms"),
                      metric_column("commit ms", "gpu_commit_ms"),
                      metric_column("host ms", "gpu_host_ms"),
                      metric_column("busy", "gpu_busy"),
                      metric_column("J/token", "joules_per_token"),
                      metric_column("energy gain", "energy_gain")}};
  t.caption =
      "GPU: milliseconds of a step that it was busy with each phase, by its own clock, and that it "
      "was not (host); its share of decoding; energy of whole generations, and tokens per joule "
      "over those of the arm that speedup is against.";
  t.label = "gpu";
  if (report.rows.empty()) return t;
  const std::string& dataset = report.rows.back().dataset;  // all of them, where there are several
  for (const ReportRow& r : report.rows) {
    if (r.dataset != dataset || r.arm.role == "aa" || !r.gpu) continue;
    const auto estimate = [&](const std::optional<Estimate>& e, int decimals) -> Cell {
      return e ? figure_cell(e->value, e->interval, e->n, decimals) : "-";
    };
    t.rows.push_back({r.arm.label, number(r.gpu->draft_ms, 3), number(r.gpu->verify_ms, 3),
                      number(r.gpu->commit_ms, 3), number(r.gpu->host_ms, 3),
                      percent(r.gpu->busy, 1), estimate(r.gpu->joules_per_token, 3),
                      estimate(r.gpu->energy_gain, 2)});
  }
  return t;
}

}  // namespace evalrun::reports
