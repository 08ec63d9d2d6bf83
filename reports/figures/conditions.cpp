#include "reports/figures/conditions.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "engine/base/stats.h"
#include "reports/format.h"

namespace evalrun::reports {
namespace {

struct ArmClocks {
  std::string label;
  std::vector<double> mhz;
};

void judge_clocks(const std::map<int64_t, ArmClocks>& arms, int64_t baseline,
                  const std::vector<double>& in_order, Conditions& c) {
  const auto base = arms.find(baseline);
  if (base != arms.end() && static_cast<int64_t>(base->second.mhz.size()) >= kFewestClocks) {
    const double usual = base::median(base->second.mhz);
    for (const auto& [id, arm] : arms) {
      if (id == baseline || static_cast<int64_t>(arm.mhz.size()) < kFewestClocks) continue;
      const double change = base::median(arm.mhz) / usual - 1;
      if (std::abs(change) > kMostBetweenArms)
        c.throttling.push_back(fmt::format("{} ran at a clock {:+.1f} % off {}'s", arm.label,
                                           100 * change, base->second.label));
    }
  }
  const size_t third = in_order.size() / 3;
  if (static_cast<int64_t>(third) < kFewestClocks) return;
  const std::vector<double> first(in_order.begin(),
                                  in_order.begin() + static_cast<std::ptrdiff_t>(third));
  const std::vector<double> last(in_order.end() - static_cast<std::ptrdiff_t>(third),
                                 in_order.end());
  const double drift = base::median(last) / base::median(first) - 1;
  if (std::abs(drift) > kMostDrift)
    c.throttling.push_back(fmt::format("the clock moved by {:+.1f} % within the run", 100 * drift));
}

}  // namespace

Conditions read_conditions(const results::ResultStore& store, int64_t run_id) {
  Conditions c;
  double available = 0, others = 0, steal = 0;
  store.query(
      "SELECT count(*), sum(disturbed), sum(available_ns), sum(others_ns), sum(steal_ns) FROM "
      "v_clock WHERE run_id = ? AND fault = ''",
      {run_id}, [&](const results::Row& row) {
        c.generations = row.integer(0), c.disturbed = row.integer(1);
        available = row.number(2), others = row.number(3), steal = row.number(4);
        return false;
      });
  if (c.generations == 0) return c;
  if (available > 0) c.others_share = others / available, c.steal_share = steal / available;
  std::map<int64_t, ArmClocks> arms;
  int64_t baseline = 0;
  std::vector<double> in_order;
  store.query(
      "SELECT c.arm_id, a.label, a.role, c.device_mhz FROM v_clock c JOIN arm a ON a.id = c.arm_id "
      "WHERE c.run_id = ? AND c.fault = '' AND c.device_mhz IS NOT NULL ORDER BY c.generation_id",
      {run_id}, [&](const results::Row& row) {
        ArmClocks& arm = arms[row.integer(0)];
        arm.label = row.text(1);
        if (row.text(2) == "baseline") baseline = row.integer(0);
        arm.mhz.push_back(row.number(3));
        in_order.push_back(row.number(3));
        return true;
      });
  if (!in_order.empty()) c.device_mhz = base::median(in_order);
  judge_clocks(arms, baseline, in_order, c);
  const double share = static_cast<double>(c.disturbed) / static_cast<double>(c.generations);
  if (share > kMostDisturbed)
    c.interference.push_back(fmt::format(
        "others had more than a tenth of the processor time during {} of {} generations",
        c.disturbed, c.generations));
  return c;
}

std::string conditions_text(const Conditions& c, const std::vector<std::string>& noise) {
  if (c.generations == 0) return "";
  std::string text = "Machine while measuring: ";
  if (c.device_mhz) text += fmt::format("{:.2f} GHz, ", *c.device_mhz / 1000);
  text += fmt::format("{} of the processor time to other processes, {} to other guests",
                      percent(c.others_share, 1), percent(c.steal_share, 1));
  std::vector<std::string> problems = noise;
  problems.insert(problems.end(), c.throttling.begin(), c.throttling.end());
  problems.insert(problems.end(), c.interference.begin(), c.interference.end());
  // Others may have had more than the share a generation may lose, and yet no generation lost it:
  // the machine was busy between them, or they are short.
  if (problems.empty() && c.others_share + c.steal_share > kMostOfOthers)
    return text + fmt::format(
                      ": quotable all the same, as others took both 50 ms and a tenth of the "
                      "processor time during {} of {} generations only.",
                      c.disturbed, c.generations);
  if (problems.empty()) return text + ": quotable.";
  return text + fmt::format(": NOT QUOTABLE, {}.", fmt::join(problems, "; "));
}

}  // namespace evalrun::reports
