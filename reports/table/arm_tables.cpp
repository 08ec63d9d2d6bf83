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
    if (!is_server(*a))
      t.rows.push_back({a->label, bytes_text(a->weight_bytes), bytes_text(a->extra_parameter_bytes),
                        bytes_text(a->kv_bytes), bytes_text(a->peak_bytes)});
  t.caption =
      "Memory: weights of the target, what the method keeps beside it (adapter, draft model, "
      "datastore), keys and values, most memory of the process.";
  t.label = "memory";
  return t;
}

namespace {

// Arms over all data sets, where there are several; the A/A arm is left out.
std::vector<const ReportRow*> pooled_rows(const Report& report) {
  std::vector<const ReportRow*> rows;
  for (const ReportRow& r : report.rows)
    if (r.dataset == report.rows.back().dataset && r.arm.role != "aa") rows.push_back(&r);
  return rows;
}

}  // namespace

Table gpu_table(const Report& report) {
  Table t{.columns = {{.name = "method", .words = true},
                      metric_column("draft ms", "gpu_draft_ms"),
                      metric_column("verify ms", "gpu_verify_ms"),
                      metric_column("commit ms", "gpu_commit_ms"),
                      metric_column("host ms", "gpu_host_ms"),
                      metric_column("busy", "gpu_busy")}};
  t.caption =
      "GPU: milliseconds of a step that it was busy with each phase, by its own clock, and that it "
      "was not (host); its share of decoding.";
  t.label = "gpu";
  for (const ReportRow* r : pooled_rows(report))
    if (r->gpu)
      t.rows.push_back({r->arm.label, number(r->gpu->draft_ms, 3), number(r->gpu->verify_ms, 3),
                        number(r->gpu->commit_ms, 3), number(r->gpu->host_ms, 3),
                        percent(r->gpu->busy, 1)});
  return t;
}

Table energy_table(const Report& report) {
  Table t{.columns = {{.name = "method", .words = true},
                      metric_column("J/token", "joules_per_token"),
                      metric_column("energy gain", "energy_gain")}};
  t.label = "energy";
  const auto cell = [](const Estimate& e, int decimals) {
    return figure_cell(e.value, e.interval, e.n, decimals);
  };
  bool gpu = false;
  for (const ReportRow* r : pooled_rows(report)) {
    if (!r->energy) continue;
    gpu = r->arm.device != "cpu";
    t.rows.push_back(
        {r->arm.label,
         r->energy->joules_per_token ? cell(*r->energy->joules_per_token, 3) : Cell("-"),
         r->energy->gain ? cell(*r->energy->gain, 2) : Cell("-")});
  }
  t.caption = fmt::format(
      "Energy of whole generations, {}, and tokens per joule over those of the arm that speedup is "
      "against.",
      gpu ? "of the GPU's board" : "of the processor and its memory, whatever else ran there");
  return t;
}

}  // namespace evalrun::reports
