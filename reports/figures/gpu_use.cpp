#include "reports/figures/gpu_use.h"

#include <fmt/format.h>

#include <vector>

#include "reports/format.h"

namespace evalrun::reports {

namespace {

// Steps of the generation `g`. Of a batch its parts of them: over all members they are the batch's
// steps, as the shares of time are its time.
constexpr const char* kStepsOfG =
    "coalesce((SELECT sum(1.0 / m.members) FROM turn t JOIN batch_step m ON m.turn_id = t.id "
    "WHERE t.generation_id = g.generation_id), g.steps)";

}  // namespace

GpuTotals::GpuTotals(const results::ResultStore& store, const RunData& data) {
  bool any = false;
  for (const ArmInfo& a : data.arms) any = any || a.device != "cpu";
  if (!any) return;
  store.query(
      fmt::format("SELECT arm_id, prompt_id, sum({}), sum(decode_ns), count(*), count(verify_ns), "
                  "sum(draft_ns), sum(verify_ns), sum(commit_ns) FROM v_gpu g WHERE run_id = ? AND "
                  "fault = '' GROUP BY arm_id, prompt_id",
                  kStepsOfG),
      {data.run.id}, [&](const results::Row& row) {
        Totals& t = totals_[{row.integer(0), row.integer(1)}];
        t.steps = row.number(2), t.decode_ns = row.number(3);
        if (row.integer(5) == row.integer(4))
          t.draft_ns = row.number(6), t.verify_ns = row.number(7), t.commit_ns = row.number(8);
        return true;
      });
  store.query(
      "SELECT slowed_by, count(*) FROM v_gpu WHERE run_id = ? AND fault = '' GROUP BY slowed_by",
      {data.run.id}, [&](const results::Row& row) {
        disturbances_.generations += row.integer(1);
        if (!row.text(0).empty()) disturbances_.slowed[row.text(0)] = row.integer(1);
        return true;
      });
  store.query(
      fmt::format(
          "SELECT a.label, sum(g.graph_misses), CAST(round(sum({})) AS INTEGER) FROM v_gpu g "
          "JOIN arm a ON a.id = g.arm_id WHERE g.run_id = ? AND g.fault = '' GROUP BY g.arm_id "
          "HAVING sum(g.graph_misses) > 0",
          kStepsOfG),
      {data.run.id}, [&](const results::Row& row) {
        disturbances_.graph_misses[row.text(0)] = {row.integer(1), row.integer(2)};
        return true;
      });
}

std::vector<std::string> gpu_remarks(const GpuDisturbances& d) {
  std::vector<std::string> remarks, parts;
  int64_t slowed = 0;
  for (const auto& [reason, n] : d.slowed)
    slowed += n, parts.push_back(fmt::format("{} {}", reason, n));
  if (slowed > 0)
    remarks.push_back(
        fmt::format("The driver held the GPU's clock down at the end of {} of {} generations ({}).",
                    slowed, d.generations, fmt::join(parts, "; ")));
  parts.clear();
  for (const auto& [arm, n] : d.graph_misses)
    parts.push_back(fmt::format("{} {} in {} steps", arm, n.first, n.second));
  if (!parts.empty())
    remarks.push_back(fmt::format(
        "Work that found no CUDA graph yet and was launched kernel by kernel: {}. A longer "
        "warm-up makes them beforehand (-w N: over N prompts; automatic: warmup_limit_s of the "
        "suite).",
        fmt::join(parts, ", ")));
  return remarks;
}

std::optional<GpuUse> GpuTotals::of(const ArmInfo& arm,
                                    const std::function<bool(int64_t)>& keep) const {
  double steps = 0, decode = 0, draft = 0, verify = 0, commit = 0;
  bool phases = true, any = false;
  for (const auto& [key, t] : totals_) {
    const auto& [arm_id, prompt] = key;
    if (arm_id != arm.id || !keep(prompt)) continue;
    any = true;
    steps += t.steps, decode += t.decode_ns;
    phases = phases && t.verify_ns;
    draft += t.draft_ns.value_or(0), verify += t.verify_ns.value_or(0);
    commit += t.commit_ns.value_or(0);
  }
  if (!any) return std::nullopt;
  GpuUse use;
  if (phases && steps > 0 && decode > 0) {
    const double busy = draft + verify + commit;
    use.draft_ms = draft / steps / 1e6, use.verify_ms = verify / steps / 1e6;
    use.commit_ms = commit / steps / 1e6, use.host_ms = (decode - busy) / steps / 1e6;
    use.busy = busy / decode;
  }
  return use;
}

}  // namespace evalrun::reports
