#include "reports/table/arm_tables.h"

#include <fmt/format.h>

#include <algorithm>

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

std::string bytes_text(int64_t bytes) {
  const double mb = static_cast<double>(bytes) / 1e6;
  if (bytes <= 0) return "-";
  if (mb < 0.01) return fmt::format("{:.1f} kB", 1000 * mb);
  return fmt::format("{:.{}f} MB", mb, mb < 9.995 ? 2 : mb < 99.95 ? 1 : 0);
}

Table memory_table(const Report& report) {
  Table t;
  t.header = {"method", "weights", "extra parameters", "KV", "peak memory"};
  t.links = {"", definition_of("weight_bytes"), definition_of("extra_parameter_bytes"),
             definition_of("kv_bytes"), definition_of("peak_bytes")};
  for (const ArmInfo* a : arms_of(report))
    t.rows.push_back({a->label, bytes_text(a->weight_bytes), bytes_text(a->extra_parameter_bytes),
                      bytes_text(a->kv_bytes), bytes_text(a->peak_bytes)});
  return t;
}

Table gpu_table(const Report& report) {
  Table t;
  t.header = {"method",  "draft ms", "verify ms", "commit ms",
              "host ms", "busy",     "J/token",   "energy gain"};
  t.links = {"",
             definition_of("gpu_draft_ms"),
             definition_of("gpu_verify_ms"),
             definition_of("gpu_commit_ms"),
             definition_of("gpu_host_ms"),
             definition_of("gpu_busy"),
             definition_of("joules_per_token"),
             definition_of("energy_gain")};
  if (report.rows.empty()) return t;
  const std::string& dataset = report.rows.back().dataset;  // all of them, where there are several
  for (const ReportRow& r : report.rows) {
    if (r.dataset != dataset || r.arm.role == "aa" || !r.gpu) continue;
    const auto estimate = [&](const std::optional<Estimate>& e, int decimals) {
      return e ? with_interval(e->value, e->interval, e->n, decimals) : "-";
    };
    t.rows.push_back({r.arm.label, number(r.gpu->draft_ms, 3), number(r.gpu->verify_ms, 3),
                      number(r.gpu->commit_ms, 3), number(r.gpu->host_ms, 3),
                      percent(r.gpu->busy, 1), estimate(r.gpu->joules_per_token, 3),
                      estimate(r.gpu->energy_gain, 2)});
  }
  return t;
}

}  // namespace evalrun::reports
